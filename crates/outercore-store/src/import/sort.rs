//! Phase 3: each bucket is sorted and appended to the arrays of the CSC.
//!
//! Threads read and sort buckets in turn; the calling thread writes them in order.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use outercore_core::Result;
use outercore_io::Disk;
use serde::{Deserialize, Serialize};

use super::arc::Arc;
use super::csc::{CscState, CscWriter};
use super::merge::{Extent, merge_sort, open, read_arcs};
use super::options::Tuning;
use super::plan::{BucketLimits, Plan};
use super::progress::{OnProgress, Phase, Progress, Unit};

/// Durable progress of the sort phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SortState {
    /// Number of buckets whose arcs are in the arrays.
    pub buckets: usize,
    pub csc: CscState,
}

/// Input of the sort phase.
pub(crate) struct Sort<'a> {
    pub disk: &'a dyn Disk,
    /// The bucket file.
    pub path: &'a Path,
    /// File for the runs of a bucket that exceeds the memory.
    pub runs: &'a Path,
    pub plan: &'a Plan,
    pub threads: usize,
    pub tuning: Tuning,
}

impl Sort<'_> {
    /// Continues with bucket `first`; `save` records a new durable point.
    ///
    /// # Errors
    /// A failed read or write; errors of `save` and `on_progress`.
    pub fn run<A: Arc>(
        &self,
        first: usize,
        csc: &mut CscWriter,
        save: &mut dyn FnMut(SortState) -> Result<()>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let starts = self.plan.starts();
        let limits = BucketLimits::of_memory::<A>(&self.tuning, self.threads);
        std::thread::scope(|scope| {
            let mut lanes = Vec::new();
            for lane in 0..self.threads {
                let (full, sorted) = sync_channel(1);
                let (empty, unused) = channel();
                lanes.push(Lane { sorted, empty });
                let mine = (first + lane..self.plan.buckets.len()).step_by(self.threads);
                let sorter = Sorter { sort: self, starts: &starts, largest: limits.arcs };
                scope.spawn(move || sorter.run::<A>(mine, full, unused));
            }
            let mut unsaved = 0;
            let total = self.plan.arcs;
            for bucket in first..self.plan.buckets.len() {
                let lane = &lanes[(bucket - first) % self.threads];
                let Ok(sorted) = lane.sorted.recv() else {
                    return Err(outercore_core::Error::internal("a sorting thread is gone"));
                };
                match sorted? {
                    Sorted::InMemory(columns) => {
                        write_columns::<A>(self.plan.first_node(bucket), &columns, csc)?;
                        // The thread may already have ended.
                        let _ = lane.empty.send(columns);
                    }
                    Sorted::TooLarge => {
                        let arcs = self.plan.buckets[bucket].arcs;
                        let extent = Extent { path: self.path, start: starts[bucket], arcs };
                        let mut beat = Heartbeat { arcs: starts[bucket], total, on_progress };
                        merge_sort::<A>(
                            self.disk,
                            &extent,
                            self.runs,
                            self.tuning.run,
                            &mut |arc| {
                                let (source, id) = A::open(arc.entry());
                                csc.arc(arc.target(), source, id)?;
                                beat.arc()
                            },
                        )?;
                    }
                }
                csc.close_before(self.plan.buckets[bucket].end)?;
                unsaved += self.plan.buckets[bucket].arcs * self.plan.arc_size();
                let done = starts[bucket] + self.plan.buckets[bucket].arcs;
                let going =
                    on_progress(Progress { phase: Phase::Sort, done, total, unit: Unit::Arcs });
                if going.is_err() || unsaved >= self.tuning.checkpoint {
                    unsaved = 0;
                    let saved =
                        csc.sync().and_then(|csc| save(SortState { buckets: bucket + 1, csc }));
                    // Return the error that stopped the task, not an error of the last durable
                    // point.
                    going.and(saved)?;
                }
            }
            Ok(())
        })
    }
}

/// Reports progress within a bucket that exceeds the memory.
struct Heartbeat<'a> {
    arcs: u64,
    total: u64,
    on_progress: OnProgress<'a>,
}

impl Heartbeat<'_> {
    fn arc(&mut self) -> Result<()> {
        const BEAT: u64 = 1 << 20;
        self.arcs += 1;
        if !self.arcs.is_multiple_of(BEAT) {
            return Ok(());
        }
        (self.on_progress)(Progress {
            phase: Phase::Sort,
            done: self.arcs,
            total: self.total,
            unit: Unit::Arcs,
        })
    }
}

/// The sorted arcs of a range of nodes.
struct Columns<E> {
    /// The end of each node's entries.
    ends: Vec<u32>,
    entries: Vec<E>,
}

enum Sorted<E> {
    InMemory(Columns<E>),
    TooLarge,
}

struct Lane<E> {
    sorted: Receiver<Result<Sorted<E>>>,
    empty: Sender<Columns<E>>,
}

fn write_columns<A: Arc>(
    first: u64,
    columns: &Columns<A::Entry>,
    csc: &mut CscWriter,
) -> Result<()> {
    let mut start = 0;
    for (node, &end) in (first..).zip(&columns.ends) {
        for &entry in &columns.entries[start..end as usize] {
            let (source, id) = A::open(entry);
            csc.arc(node, source, id)?;
        }
        start = end as usize;
    }
    Ok(())
}

struct Sorter<'a> {
    sort: &'a Sort<'a>,
    starts: &'a [u64],
    /// Arcs of the largest bucket that fits in memory.
    largest: u64,
}

impl Sorter<'_> {
    fn run<A: Arc>(
        self,
        buckets: impl Iterator<Item = usize>,
        full: SyncSender<Result<Sorted<A::Entry>>>,
        unused: Receiver<Columns<A::Entry>>,
    ) {
        let mut arcs = Vec::new();
        for bucket in buckets {
            let result = self.sorted::<A>(bucket, &mut arcs, &unused);
            let failed = result.is_err();
            if full.send(result).is_err() || failed {
                return;
            }
        }
    }

    fn sorted<A: Arc>(
        &self,
        bucket: usize,
        arcs: &mut Vec<A>,
        unused: &Receiver<Columns<A::Entry>>,
    ) -> Result<Sorted<A::Entry>> {
        let plan = self.sort.plan;
        let count = plan.buckets[bucket].arcs;
        if count > self.largest {
            return Ok(Sorted::TooLarge);
        }
        if count > 0 {
            let file = open(self.sort.path)?;
            read_arcs(&file, self.sort.path, self.starts[bucket], count as usize, arcs)?;
        } else {
            arcs.clear();
        }
        let first = plan.first_node(bucket);
        let nodes = (plan.buckets[bucket].end - first) as usize;
        let columns =
            unused.try_recv().unwrap_or(Columns { ends: Vec::new(), entries: Vec::new() });
        Ok(Sorted::InMemory(sort_columns(arcs, first, nodes, columns)))
    }
}

/// Sorts by target with a counting sort, then each column by source and id.
///
/// **Cost** One random write per arc into memory of the bucket's size, and a comparison sort of
/// every column.
fn sort_columns<A: Arc>(
    arcs: &[A],
    first: u64,
    nodes: usize,
    mut columns: Columns<A::Entry>,
) -> Columns<A::Entry> {
    let Columns { ends, entries } = &mut columns;
    ends.clear();
    ends.reserve_exact(nodes);
    ends.resize(nodes, 0);
    for arc in arcs {
        ends[(arc.target() - first) as usize] += 1;
    }
    // Counts become starts; the starts become ends as the entries are placed.
    let mut sum = 0;
    for end in ends.iter_mut() {
        (*end, sum) = (sum, sum + *end);
    }
    entries.clear();
    entries.reserve_exact(arcs.len());
    entries.resize(arcs.len(), bytemuck::Zeroable::zeroed());
    for arc in arcs {
        let place = &mut ends[(arc.target() - first) as usize];
        entries[*place as usize] = arc.entry();
        *place += 1;
    }
    let mut start = 0;
    for &end in ends.iter() {
        entries[start..end as usize].sort_unstable();
        start = end as usize;
    }
    columns
}

#[cfg(test)]
mod tests {
    use outercore_core::Stream;

    use super::super::arc::{Narrow, Wide};
    use super::*;

    fn check<A: Arc>(offset: u64) {
        let mut draws = Stream::new(1, 0).uniform(0, 0, 0);
        let mut arcs: Vec<A> = (0..3000)
            .map(|id| A::new(offset + draws.below(40), offset + draws.below(99), offset + id))
            .collect();
        let empty = Columns { ends: vec![9; 3], entries: Vec::new() };
        let columns = sort_columns(&arcs, offset, 50, empty);
        arcs.sort_unstable();
        let mut found = Vec::new();
        let mut start = 0;
        for (target, &end) in (offset..).zip(&columns.ends) {
            let column = &columns.entries[start..end as usize];
            found.extend(column.iter().map(|&entry| {
                let (source, id) = A::open(entry);
                A::new(target, source, id)
            }));
            start = end as usize;
        }
        assert_eq!(columns.ends.len(), 50);
        assert!(found == arcs);
    }

    #[test]
    fn columns_are_sorted_by_source_then_id_in_both_widths() {
        check::<Narrow>(0);
        check::<Narrow>(u64::from(u32::MAX) - 5000);
        check::<Wide>(0);
        check::<Wide>(1 << 40);
    }
}
