//! Phase 2: every arc goes into the bucket of its target.
//!
//! The histogram gives the number of arcs in each bucket, so all buckets share one file with known
//! places. A durable point is one sync and one number per bucket. Writing a part again after a
//! crash changes nothing.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::ScopedJoinHandle;

use outercore_core::{Error, Result, hint};
use outercore_io::{Disk, WriteFile};
use serde::{Deserialize, Serialize};

use super::arc::Arc;
use super::options::Tuning;
use super::plan::{Plan, SPARE_BUFFERS};
use super::progress::{OnProgress, Phase, Progress, Unit};
use super::segment::{Segment, read_segments};

/// Durable progress of the partition phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartitionState {
    /// Input edges whose arcs are in the bucket file.
    pub edges: u64,
    /// Arcs in each bucket; empty at the start.
    pub written: Vec<u64>,
}

/// Input of the partition phase.
pub(crate) struct Partition<'a> {
    pub disk: &'a dyn Disk,
    /// The bucket file.
    pub path: &'a Path,
    pub segments: &'a [Segment],
    pub plan: &'a Plan,
    pub undirected: bool,
    pub drop_loops: bool,
    pub tuning: Tuning,
    /// Number of arcs in a write-combining buffer.
    pub buffer_arcs: usize,
}

impl Partition<'_> {
    /// Continues from `state`; `save` records a new durable point.
    ///
    /// # Errors
    /// A failed read or write; an input file that changed after it was counted; errors of `save`
    /// and `on_progress`.
    pub fn run<A: Arc>(
        &self,
        state: PartitionState,
        save: &mut dyn FnMut(PartitionState) -> Result<()>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let fresh = state.written.is_empty();
        let file = if fresh { self.disk.create(self.path)? } else { self.disk.open(self.path)? };
        if fresh {
            self.disk.sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        }
        std::thread::scope(|scope| {
            let (to_writer, work) = sync_channel(SPARE_BUFFERS / 2);
            let (used, unused) = channel();
            let writer = scope.spawn(move || write_buffers(file, work, used));
            let mut dealer = Dealer::<A>::new(self, &state, Pipe { to_writer, unused });
            let dealt = self.deal(&mut dealer, state.edges, save, on_progress);
            drop(dealer);
            join(writer, dealt)
        })
    }

    fn deal<A: Arc>(
        &self,
        dealer: &mut Dealer<'_, A>,
        start: u64,
        save: &mut dyn FnMut(PartitionState) -> Result<()>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let total = self.plan.input_edges;
        let mut edges = start;
        let mut saved_bytes = 0;
        // Whether the buffers hold exactly the edges before `edges`, that is, only whole blocks.
        let mut settled = true;
        let read =
            read_segments(self.segments, start, self.tuning.edge_block, &mut |first, block| {
                settled = false;
                dealer.add(first, block, self.undirected, self.drop_loops)?;
                settled = true;
                edges = first + block.len() as u64;
                if dealer.bytes - saved_bytes >= self.tuning.checkpoint {
                    saved_bytes = dealer.bytes;
                    save(dealer.checkpoint(edges)?)?;
                }
                on_progress(Progress {
                    phase: Phase::Partition,
                    done: edges,
                    total,
                    unit: Unit::Edges,
                })
            });
        if let Err(error) = read {
            // Best effort: record the finished work, so that it need not be repeated.
            if settled && let Ok(state) = dealer.checkpoint(edges) {
                let _ = save(state);
            }
            return Err(error);
        }
        let state = dealer.checkpoint(edges)?;
        let complete = edges == total
            && state.written.iter().zip(&self.plan.buckets).all(|(arcs, b)| *arcs == b.arcs);
        if !complete {
            return Err(changed_input());
        }
        save(state)
    }
}

fn changed_input() -> Error {
    Error::corrupt("an edge array changed while it was imported").hint(hint!(
        "leave the input alone during the import; start again with " {overwrite = true}
    ))
}

/// Returns the first error. A failed writer makes the sends of the dealer fail, so its error comes
/// first.
fn join(writer: ScopedJoinHandle<'_, Result<()>>, dealt: Result<()>) -> Result<()> {
    match writer.join() {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) => dealt,
        Err(_) => Err(Error::internal("the writer of the partition phase panicked")),
    }
}

enum Work {
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The answer says that all earlier writes are durable.
    Sync(SyncSender<()>),
}

struct Pipe {
    to_writer: SyncSender<Work>,
    unused: Receiver<Vec<u8>>,
}

fn write_buffers(
    mut file: Box<dyn WriteFile>,
    work: Receiver<Work>,
    used: Sender<Vec<u8>>,
) -> Result<()> {
    for item in work {
        match item {
            Work::Write { offset, bytes } => {
                file.write_at(offset, &bytes)?;
                // The receiver is gone at the end of the phase.
                let _ = used.send(bytes);
            }
            Work::Sync(done) => {
                file.sync()?;
                let _ = done.send(());
            }
        }
    }
    Ok(())
}

fn writer_gone<T>(_: T) -> Error {
    Error::internal("the writer of the partition phase is gone")
}

/// Write-combining buffers, one per bucket.
struct Dealer<'a, A> {
    plan: &'a Plan,
    bucket_of_granule: Vec<u32>,
    /// Position of each bucket in the file, in arcs.
    starts: Vec<u64>,
    /// Arcs of each bucket that were sent to the writer.
    written: Vec<u64>,
    buffers: Vec<Vec<u8>>,
    capacity: usize,
    pipe: Pipe,
    /// Bytes that were sent to the writer.
    bytes: u64,
    arc: std::marker::PhantomData<A>,
}

impl<'a, A: Arc> Dealer<'a, A> {
    fn new(partition: &Partition<'a>, state: &PartitionState, pipe: Pipe) -> Self {
        let plan = partition.plan;
        let buckets = plan.buckets.len();
        let capacity = partition.buffer_arcs * size_of::<A>();
        let written =
            if state.written.is_empty() { vec![0; buckets] } else { state.written.clone() };
        Self {
            plan,
            bucket_of_granule: plan.bucket_of_granule(),
            starts: plan.starts(),
            written,
            buffers: (0..buckets).map(|_| Vec::with_capacity(capacity)).collect(),
            capacity,
            pipe,
            bytes: 0,
            arc: std::marker::PhantomData,
        }
    }

    fn add(
        &mut self,
        first: u64,
        edges: &[[u64; 2]],
        undirected: bool,
        drop_loops: bool,
    ) -> Result<()> {
        for (id, &[source, target]) in (first..).zip(edges) {
            let is_loop = source == target;
            if !(is_loop && drop_loops) {
                self.put(A::new(target, source, id))?;
            }
            if undirected && !is_loop {
                self.put(A::new(source, target, id))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, arc: A) -> Result<()> {
        let granule = (arc.target() >> self.plan.shift) as usize;
        // Ids were checked when they were counted, so only a file that changed since then fails
        // here.
        let Some(&bucket) = self.bucket_of_granule.get(granule) else {
            return Err(changed_input());
        };
        let buffer = &mut self.buffers[bucket as usize];
        buffer.extend_from_slice(bytemuck::bytes_of(&arc));
        if buffer.len() < self.capacity { Ok(()) } else { self.hand_over(bucket as usize) }
    }

    fn hand_over(&mut self, bucket: usize) -> Result<()> {
        let mut bytes =
            self.pipe.unused.try_recv().unwrap_or_else(|_| Vec::with_capacity(self.capacity));
        bytes.clear();
        std::mem::swap(&mut bytes, &mut self.buffers[bucket]);
        let arcs = (bytes.len() / size_of::<A>()) as u64;
        if self.written[bucket] + arcs > self.plan.buckets[bucket].arcs {
            return Err(changed_input());
        }
        let offset = (self.starts[bucket] + self.written[bucket]) * size_of::<A>() as u64;
        self.written[bucket] += arcs;
        self.bytes += bytes.len() as u64;
        self.pipe.to_writer.send(Work::Write { offset, bytes }).map_err(writer_gone)
    }

    /// Empties all buffers and waits until everything is durable.
    fn checkpoint(&mut self, edges: u64) -> Result<PartitionState> {
        for bucket in 0..self.buffers.len() {
            if !self.buffers[bucket].is_empty() {
                self.hand_over(bucket)?;
            }
        }
        let (done, answer) = sync_channel(1);
        self.pipe.to_writer.send(Work::Sync(done)).map_err(writer_gone)?;
        answer.recv().map_err(writer_gone)?;
        Ok(PartitionState { edges, written: self.written.clone() })
    }
}
