//! One pass over the seeds.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use outercore_core::{Context, Error, Result, StageClock};
use outercore_sample::{SampledBatch, Shelf};
use rayon::prelude::*;

use super::Batch;
use crate::arrays::Arrays;
use crate::counters::{SharedState, lock};
use crate::fetch::{Fetcher, Ready};
use crate::group::GroupBatch;
use crate::row_space::{RowSpace, covers};
use crate::rows::RowArena;
use crate::sampling::Sampling;
use crate::timeline::Stage;

/// Rows that one task gathers when a batch is assembled.
const GATHER_ROWS: usize = 1024;

/// Result of moving to the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// [`Epoch::batch`] is the next batch.
    Batch,
    /// The epoch is over.
    End,
    /// No batch arrived within the given time; try again.
    NotYet,
}

/// One pass over the seeds.
///
/// The current batch is borrowed from the epoch ([`Epoch::batch`], [`Epoch::gather`]), and the next
/// [`Epoch::advance`] releases it. The slots of its rows are therefore never held longer than the
/// pipeline expects.
pub struct Epoch {
    pub(super) sampling: Arc<Sampling>,
    pub(super) arena: Option<(Arc<RowArena>, RowSpace)>,
    pub(super) ready: Option<Receiver<Result<Ready>>>,
    pub(super) release: Option<Sender<u64>>,
    pub(super) sampler: JoinHandle<u64>,
    pub(super) fetch: JoinHandle<(Option<Fetcher>, Option<Arrays>)>,
    pub(super) current: Option<Ready>,
    pub(super) position: usize,
    /// Whether the current batch was taken.
    pub(super) taken: bool,
    /// Whether the epoch times the stages: its cache is dropped at the end.
    pub(super) is_timed: bool,
    pub(super) clock: StageClock,
    pub(super) shared: SharedState,
}

impl Epoch {
    /// Moves to the next batch, waiting for it at most `patience`.
    ///
    /// # Errors
    /// The first error of any stage; afterwards the epoch is over.
    pub fn advance(&mut self, patience: Duration) -> Result<Advance> {
        self.taken = false;
        if let Some(ready) = &self.current {
            self.position += 1;
            if self.position < ready.group.batches.len() {
                return Ok(Advance::Batch);
            }
        }
        if let Some(Ready { group, .. }) = self.current.take() {
            let number = group.number;
            self.sampling.give_back(group);
            if let Some(release) = &self.release {
                // After an error, the fetch stage may have ended; the next receive reports it.
                let _ = release.send(number);
            }
        }
        let Some(receiver) = &self.ready else { return Ok(Advance::End) };
        let mut away = 0.0;
        self.clock.lap(&mut away);
        let received = receiver.recv_timeout(patience);
        self.clock.lap(&mut lock(&self.shared).counters.assemble.starved_s);
        match received {
            Ok(Ok(ready)) => {
                self.position = 0;
                self.current = Some(ready);
                Ok(Advance::Batch)
            }
            Ok(Err(error)) => {
                self.ready = None;
                Err(error)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Advance::NotYet),
            Err(RecvTimeoutError::Disconnected) => {
                // The epoch is over, or a stage panicked; `Loader::finish` reports which.
                self.ready = None;
                Ok(Advance::End)
            }
        }
    }

    /// The current batch, unless it was taken.
    pub fn batch(&self) -> Option<Batch<'_>> {
        self.reached().filter(|_| !self.taken)
    }

    /// Takes the subgraph of the batch and the places of its seeds in the input. Its features can
    /// still be gathered.
    ///
    /// Return the memory to [`Epoch::shelf`] after use.
    pub fn take_batch(&mut self) -> Option<(SampledBatch, Vec<u64>)> {
        if self.taken {
            return None;
        }
        let batch = self.current.as_mut()?.group.batches.get_mut(self.position)?;
        self.taken = true;
        // The remaining batch keeps its number.
        let left = SampledBatch { batch: batch.sampled.batch, ..SampledBatch::default() };
        Some((std::mem::replace(&mut batch.sampled, left), std::mem::take(&mut batch.input_ids)))
    }

    /// Takes the rows of the batch's further arrays, in the order of the configuration. Each array
    /// holds the rows of the batch's nodes or edges, in order and in their stored form.
    pub fn take_arrays(&mut self) -> Vec<Vec<u8>> {
        let batch = self.current.as_mut().and_then(|ready| {
            let batch: Option<&mut GroupBatch> = ready.group.batches.get_mut(self.position);
            batch
        });
        batch.map(|batch| std::mem::take(&mut batch.arrays)).unwrap_or_default()
    }

    /// The memory of finished batches, for reuse by later ones.
    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.sampling.shelf
    }

    fn reached(&self) -> Option<Batch<'_>> {
        let ready = self.current.as_ref()?;
        let batch = ready.group.batches.get(self.position)?;
        Some(Batch { ready, batch })
    }

    /// Writes the feature rows of the batch's nodes of one type, in the order of the batch.
    ///
    /// **Shapes** `out`: nodes x width, row-major.
    ///
    /// # Errors
    /// `Invalid` if `out` has another size, there is no current batch or the type has no features,
    /// or a feature does not fit `float32` (with its node and column).
    pub fn gather(&mut self, node_type: usize, out: &mut [f32]) -> Result<()> {
        let started = lock(&self.shared).timeline.now();
        let part = self.arena.as_ref().and_then(|(arena, rows)| {
            rows.of_type(node_type).map(|part| (arena, part, rows.parts().len() == 1))
        });
        let Some((arena, part, only)) = part else {
            return Err(Error::invalid("the loader delivers no features"));
        };
        let Some(Batch { ready, batch }) = self.reached() else {
            return Err(Error::invalid("there is no batch to gather"));
        };
        let width = part.source.width;
        let whole = only && part.nodes == (0..self.sampling.topology.num_nodes());
        let index = if whole {
            Cow::Borrowed(&batch.row_index[..])
        } else {
            let nodes = batch.sampled.nodes.iter().zip(&batch.row_index);
            let own = nodes.filter(|(node, _)| covers(std::slice::from_ref(&part.nodes), *node));
            Cow::Owned(own.map(|(_, &index)| index).collect())
        };
        if out.len() != index.len() * width {
            return Err(Error::invalid(format!(
                "room for {} values, expected {} nodes x {width} features",
                out.len(),
                index.len()
            )));
        }
        let chunks = out.par_chunks_mut(GATHER_ROWS * width).zip(index.par_chunks(GATHER_ROWS));
        self.sampling.pool.install(|| {
            chunks.try_for_each(|(out, index)| {
                for (row, &place) in out.chunks_exact_mut(width).zip(index) {
                    let slot = ready.slots[place as usize];
                    part.source.deliver(arena, slot, row).with_context(|| {
                        let node = ready.group.rows[place as usize] - part.nodes.start;
                        format!("features of node {node}")
                    })?;
                }
                Ok::<(), Error>(())
            })
        })?;
        let item = batch.sampled.batch;
        let mut shared = lock(&self.shared);
        shared.counters.assemble.items += 1;
        let now = shared.timeline.now();
        shared.counters.assemble.busy_s += now - started;
        shared.timeline.record(Stage::Assemble, item, started);
        Ok(())
    }

    /// Stops the stages and returns the fetcher, the arrays and the number of the next group.
    pub(super) fn stop(mut self) -> (Option<Fetcher>, Option<Arrays>, u64, Result<()>) {
        // Close both channels, so a stage that waits to send or receive ends.
        self.current = None;
        self.ready = None;
        self.release = None;
        let mut result = Ok(());
        let (fetcher, arrays) = self.fetch.join().unwrap_or_else(|panic| {
            result = Err(stage_panicked("fetch", &*panic));
            (None, None)
        });
        let next_group = self.sampler.join().unwrap_or_else(|panic| {
            result = Err(stage_panicked("sample", &*panic));
            0
        });
        (fetcher, arrays, next_group, result)
    }
}

fn stage_panicked(stage: &str, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    Error::internal(format!("the {stage} stage panicked: {text}"))
}
