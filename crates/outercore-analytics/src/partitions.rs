//! Operations on all partitions, shared by several algorithms.

use std::sync::Mutex;

use outercore_core::Result;

use crate::program::{Degree, Passes, Selection};
use crate::state::{Stored, Table};

/// All partitions.
pub(crate) fn all(partitions: usize) -> Vec<bool> {
    vec![true; partitions]
}

/// The degrees in all partitions, in memory: one scan.
pub(crate) fn degrees_here<R: Passes, T: Clone + Default + From<u32>>(
    run: &mut R,
    which: Degree,
) -> Result<Vec<Vec<T>>> {
    let shape = *run.shape();
    let mut degrees: Vec<Vec<T>> =
        (0..shape.partitions()).map(|part| vec![T::default(); shape.partition_len(part)]).collect();
    run.scan_degrees(which, &mut |part, local, degree| degrees[part][local] = degree.into())?;
    Ok(degrees)
}

/// The degrees in all partitions: one scan if they fit into memory, otherwise by partition.
pub(crate) fn degrees_table<R: Passes, T: Clone + Default + From<u32>>(
    run: &mut R,
    which: Degree,
) -> Result<Table<Vec<T>>>
where
    Vec<T>: Stored,
{
    if run.spill().is_none() {
        return degrees_here(run, which).map(Table::Here);
    }
    Table::build(run, 1, |run, part| {
        Ok(run.degrees(which, part)?.into_iter().map(T::from).collect())
    })
}

/// Calls `add(its value, its degree)` for every node: one scan if the values are in memory,
/// otherwise by partition.
pub(crate) fn add_degrees<R: Passes, T>(
    run: &mut R,
    which: Degree,
    values: &mut Table<Vec<T>>,
    mut add: impl FnMut(&mut T, u32),
) -> Result<()>
where
    Vec<T>: Stored,
{
    match values {
        Table::Here(values) => run.scan_degrees(which, &mut |part, local, degree| {
            add(&mut values[part][local], degree);
        }),
        away => away.each(|part, values| {
            let degrees = run.degrees(which, part)?;
            values.iter_mut().zip(degrees).for_each(|(value, degree)| add(value, degree));
            Ok(true)
        }),
    }
}

/// Whether a search has reached every partition, so the next step will probably need all of them
/// too.
pub(crate) fn is_everywhere(select: &Selection<'_>) -> bool {
    !select.sources.contains(&false) && !select.targets.contains(&false)
}

/// Calls `each(partition, its state)` for all partitions in parallel; returns the results by
/// partition.
pub(crate) fn each_partition<R: Passes, S: Send, T: Send>(
    run: &mut R,
    states: &mut [S],
    each: impl Fn(usize, &mut S) -> T + Sync,
) -> Vec<T> {
    let states: Vec<Mutex<&mut S>> = states.iter_mut().map(Mutex::new).collect();
    run.partitions(|part| each(part, *states[part].lock().expect("each is visited once")))
}
