//! What the log makes of the arrays: updates applied again, in memory.

use outercore_core::{Bytes, Error, Result};
use outercore_format::log::Record;
use outercore_io::{CostModel, EngineConfig};
use outercore_store::Topology;
use outercore_store::dataset::DataSet;
use outercore_store::delta::Delta;
use outercore_store::paged::PagedTopology;

use crate::log::{self, Recovered};

/// Read buffers for lists that are copied.
pub(crate) const STAGING: Bytes = Bytes::kib(512);

/// Memory for looking up lists that are copied.
pub(crate) const WORKING: Bytes = Bytes::mib(1);

/// Records whose lists are copied together.
const TOGETHER: usize = 1024;

/// The topology in the arrays, as lists are copied from it.
///
/// # Errors
/// As [`PagedTopology::open`].
pub(crate) fn base_topology(data_set: &DataSet) -> Result<PagedTopology> {
    let reading = EngineConfig { staging: STAGING, ..EngineConfig::default() };
    let topology = PagedTopology::open(data_set, reading, CostModel::default(), false)?;
    Ok(topology.with_working_memory(WORKING))
}

/// The delta that the log makes of the arrays, and where the log ends.
///
/// # Errors
/// As [`log::recover`]; `Corrupt` for a record that cannot be applied.
pub(crate) fn replay(data_set: &DataSet, base: &dyn Topology) -> Result<(Delta, Recovered)> {
    let live = data_set.manifest().live.as_ref();
    let live = live.ok_or_else(|| Error::internal("a data set without a log is replayed"))?;
    let mut delta = Delta::new(data_set)?;
    let mut together = Vec::new();
    let recovered = log::recover(data_set.root(), live, &mut |record| {
        together.push(record);
        if together.len() < TOGETHER { Ok(()) } else { apply(&mut delta, &mut together, base) }
    })?;
    apply(&mut delta, &mut together, base)?;
    Ok((delta, recovered))
}

fn apply(delta: &mut Delta, records: &mut Vec<Record>, base: &dyn Topology) -> Result<()> {
    let updates = records.iter().flat_map(|record| &record.updates);
    let touched: Vec<u64> = updates.flat_map(|update| delta.touched(update)).collect();
    delta.adopt(&touched, base)?;
    for record in records.drain(..) {
        delta.apply(record.lsn, &record.updates, base).map_err(|error| {
            Error::corrupt(format!("update {} of the log cannot be applied: {error}", record.lsn))
        })?;
    }
    Ok(())
}
