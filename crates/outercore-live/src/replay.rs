//! Replays the log: applies its updates to the arrays again, in memory.

use std::path::Path;

use outercore_core::{Bytes, Error, Result};
use outercore_format::log::Record;
use outercore_format::{Rows, Update};
use outercore_io::{CostModel, Disk, EngineConfig, FileLock};
use outercore_store::Topology;
use outercore_store::dataset::DataSet;
use outercore_store::delta::Delta;
use outercore_store::paged::PagedTopology;

use crate::answers::{Ack, Answers};
use crate::fold::{KeepGoing, fold};
use crate::log::{LogReader, Recovered};

/// Read buffers for copying lists.
pub(crate) const STAGING: Bytes = Bytes::kib(512);

/// Memory for looking up the lists to copy.
pub(crate) const WORKING: Bytes = Bytes::mib(1);

/// Records whose lists are copied together.
const TOGETHER: usize = 1024;

/// Most updates in these records, and most bytes of their rows.
const MOST_UPDATES: usize = 4096;
const MOST_BYTES: usize = 1 << 20;

/// The topology in the arrays, opened for copying lists.
///
/// # Errors
/// As [`PagedTopology::open`].
pub(crate) fn base_topology(data_set: &DataSet) -> Result<PagedTopology> {
    let reading = EngineConfig { staging: STAGING, ..EngineConfig::default() };
    let topology = PagedTopology::open(data_set, reading, CostModel::default(), false)?;
    Ok(topology.with_working_memory(WORKING))
}

/// A data set with the changes of its log.
pub(crate) struct Replayed {
    /// The arrays, into which a part of the log may have been folded.
    pub data_set: DataSet,
    /// Their topology.
    pub base: PagedTopology,
    /// The changes of the remaining log.
    pub delta: Delta,
    /// The end of the log.
    pub recovered: Recovered,
    /// Answers to requests with a key.
    pub answers: Answers,
}

/// Resources for folding during a replay.
pub(crate) struct Folding<'a> {
    pub disk: &'a dyn Disk,
    pub lock: &'a FileLock,
    /// Memory for changes; when they exceed it, they are folded into the arrays.
    pub memory: Bytes,
    pub keep_going: KeepGoing<'a>,
}

/// Reads the log of the data set in `root`, and applies it to the arrays.
///
/// # Errors
/// As [`LogReader`]; `Corrupt` for a record that cannot be applied; errors of folds.
pub(crate) fn replay(root: &Path, folding: &Folding<'_>) -> Result<Replayed> {
    let data_set = DataSet::open(root)?;
    let live = data_set.manifest().live.clone();
    let live = live.ok_or_else(|| Error::internal("a data set without a log is replayed"))?;
    let id = live.id_bytes().ok_or_else(|| Error::corrupt("a log with a damaged id"))?;
    let mut reader = LogReader::open(root, &live)?;
    let (base, delta) = (base_topology(&data_set)?, Delta::new(&data_set)?);
    let mut state = Replay { data_set, base, delta, answers: Answers::read(root, id)? };
    let (mut together, mut updates, mut bytes) = (Vec::new(), 0, 0);
    while let Some(record) = reader.next()? {
        updates += record.updates.len();
        bytes += record.updates.iter().map(size).sum::<usize>();
        together.push(record);
        if together.len() == TOGETHER || updates >= MOST_UPDATES || bytes >= MOST_BYTES {
            (updates, bytes) = (0, 0);
            (folding.keep_going)()?;
            state.apply(&mut together)?;
            if state.delta.memory() > folding.memory {
                state.fold(folding, id)?;
            }
        }
    }
    state.apply(&mut together)?;
    let recovered = reader.end();
    if state.answers.forget_after(recovered.lsn) {
        state.answers.save(folding.disk, root, id)?;
    }
    let Replay { data_set, base, delta, answers } = state;
    Ok(Replayed { data_set, base, delta, recovered, answers })
}

struct Replay {
    data_set: DataSet,
    base: PagedTopology,
    delta: Delta,
    answers: Answers,
}

impl Replay {
    fn apply(&mut self, records: &mut Vec<Record>) -> Result<()> {
        let Self { delta, base, answers, .. } = self;
        let updates = records.iter().flat_map(|record| &record.updates);
        let touched: Vec<u64> = updates.flat_map(|update| delta.touched(update)).collect();
        delta.adopt(&touched, base as &dyn Topology)?;
        for Record { lsn, key, updates, .. } in records.drain(..) {
            let applied = delta.apply(lsn, &updates, base).map_err(|error| {
                Error::corrupt(format!("update {lsn} of the log cannot be applied: {error}"))
            })?;
            if let Some(key) = key {
                answers.insert(key, Ack { lsn, applied });
            }
        }
        Ok(())
    }

    /// Frees memory for the remaining log. The next start skips the records that are in the arrays.
    fn fold(&mut self, folding: &Folding<'_>, id: [u8; 16]) -> Result<()> {
        let Folding { disk, lock, keep_going, .. } = *folding;
        let root = self.data_set.root();
        // Folded records are no longer a source of answers.
        self.answers.save(disk, root, id)?;
        fold(disk, &self.data_set, &self.delta, lock, keep_going)?;
        self.data_set = DataSet::open(root)?;
        self.base = base_topology(&self.data_set)?;
        self.delta = Delta::new(&self.data_set)?;
        Ok(())
    }
}

/// Memory of an edge or a node of a registered graph, without its rows.
const PART: usize = 64;

/// Memory of an update's parts.
fn size(update: &Update) -> usize {
    let of = |rows: &Rows| rows.values().map(Vec::len).sum::<usize>();
    match update {
        Update::AddEdge { rows, .. }
        | Update::AddNode { rows, .. }
        | Update::UpdateNode { rows, .. } => of(rows),
        Update::RegisterGraph { rows, nodes, edges } => {
            of(rows)
                + nodes.iter().map(|rows| PART + of(rows)).sum::<usize>()
                + edges.iter().map(|edge| PART + of(&edge.rows)).sum::<usize>()
        }
        Update::RemoveEdge { .. } | Update::RemoveNode { .. } | Update::UnregisterGraph { .. } => 0,
    }
}
