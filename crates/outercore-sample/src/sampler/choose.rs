//! Chooses the edges of a node, and assigns local numbers to nodes.

use outercore_core::{NodeId, Result, Uniform};
use outercore_store::Extent;

use outercore_store::resident::Announcer;
use rayon::prelude::*;

use super::Work;
use crate::floyd::{Drawn, Hop, MOST_PICKS};
use crate::pick::{Picker, Taken};
use crate::stored::Stored;

/// Picks without replacement, for many nodes at once.
pub(super) fn choose_few(
    hop: Hop,
    nodes: &[NodeId],
    extents: &[Extent],
    drawn: &mut Drawn,
    positions: &mut [u64],
    announcer: Announcer<'_>,
) {
    drawn.reset(nodes.len());
    let mut at = 0;
    for (&node, &Extent { start, degree }) in nodes.iter().zip(extents) {
        let count = degree.min(hop.count as u64) as usize;
        // Always writes as many positions as the greatest fan-out, from registers: the next node
        // overwrites the excess.
        match positions.get_mut(at..at + MOST_PICKS) {
            Some(wide) => write_run(start, wide),
            None => write_run(start, &mut positions[at..at + count]),
        }
        drawn.enter(node, (start, degree as u32), at, degree > count as u64);
        at += count;
    }
    drawn.pick(hop, positions, announcer);
}

#[inline(always)]
pub(super) fn write_run(start: u64, positions: &mut [u64]) {
    for (position, i) in positions.iter_mut().zip(start..) {
        *position = i;
    }
}

/// Picks by any rule, node by node.
pub(super) fn choose_each(
    picker: Picker,
    nodes: &[NodeId],
    extents: &[Extent],
    draws: impl Fn(NodeId) -> Uniform,
    positions: &mut [u64],
) {
    let (mut taken, mut rest) = (Taken::default(), positions);
    for (&node, extent) in nodes.iter().zip(extents) {
        let count = picker.count(extent.degree) as usize;
        let own = rest.split_off_mut(..count).expect("counted before");
        picker.pick(extent.degree, || draws(node), own, &mut taken);
        for position in own {
            *position += extent.start;
        }
    }
}

/// Adds the sources of one step, the first of `rest`, to the batches.
pub(super) fn relabel_all(
    works: &mut [Work<impl Stored>],
    picked: &[usize],
    rest: &mut &[NodeId],
    meanwhile: impl Fn(usize) + Copy + Sync + Send,
) -> Result<()> {
    let shares: Vec<_> = works
        .iter_mut()
        .zip(picked)
        .map(|(work, &picked)| (work, rest.split_off(..picked).expect("a source for each edge")))
        .collect();
    for_each(shares, |(work, sources)| work.relabel(sources, meanwhile))
}

/// Runs in parallel if there are several shares.
pub(super) fn for_each<T: Send>(
    mut shares: Vec<T>,
    run: impl Fn(T) -> Result<()> + Sync + Send,
) -> Result<()> {
    match shares.pop() {
        Some(only) if shares.is_empty() => run(only),
        Some(last) => {
            shares.push(last);
            shares.into_par_iter().try_for_each(run)
        }
        None => Ok(()),
    }
}
