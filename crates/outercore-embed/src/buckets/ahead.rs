//! A thread that reads the triples of the next step while the caller trains.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outercore_core::{Error, Result};

use super::{Buckets, TriplePool};
use crate::step::Step;
use crate::walk::Visit;

/// Reads pools of triples; reads the next pool ahead once its step is known.
///
/// **Memory**: the memory of [`Buckets`], and the largest pool so far.
///
/// # Example
/// ```no_run
/// # use outercore_embed::{Buckets, Executor, PoolReader};
/// # fn train(mut executor: Executor, buckets: Buckets) -> outercore_core::Result<()> {
/// let slot_rows = executor.layout().slot_rows();
/// let mut pools = PoolReader::new(buckets)?;
/// while let Some(step) = executor.advance()? {
///     let triples = pools.read(&step, slot_rows)?.triples.clone();
///     if let Some(visits) = executor.upcoming() {
///         pools.begin(visits.to_vec())?;
///     }
///     // Meanwhile `triples` are trained.
/// }
/// # Ok(())
/// # }
/// ```
pub struct PoolReader {
    /// `None` while the thread holds it.
    reading: Option<Reading>,
    /// The visits whose pool was read ahead, and the result; the triples are in the pool.
    ready: Option<(Vec<Visit>, Result<()>)>,
    jobs: Option<Sender<Job>>,
    answers: Receiver<(Job, Result<()>)>,
    thread: Option<JoinHandle<()>>,
    waited: Duration,
}

struct Reading {
    buckets: Buckets,
    pool: TriplePool,
}

/// A request to the thread. It carries the buckets and their memory; the answer returns them.
struct Job {
    reading: Reading,
    visits: Vec<Visit>,
}

impl PoolReader {
    /// A reader of `buckets`.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn new(buckets: Buckets) -> Result<Self> {
        let (jobs, to_do) = channel::<Job>();
        let (done, answers) = channel();
        let thread =
            std::thread::Builder::new().name("outercore-triples".to_owned()).spawn(move || {
                for mut job in to_do {
                    let Reading { buckets, pool } = &mut job.reading;
                    let result = buckets.fill(&job.visits, pool);
                    if done.send((job, result)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            reading: Some(Reading { buckets, pool: TriplePool::default() }),
            ready: None,
            jobs: Some(jobs),
            answers,
            thread: Some(thread),
            waited: Duration::ZERO,
        })
    }

    /// Starts to read the triples of the next step. This overwrites the triples of the last step.
    ///
    /// # Errors
    /// Internal errors only; errors of the read are returned by [`PoolReader::read`].
    pub fn begin(&mut self, visits: Vec<Visit>) -> Result<()> {
        self.settle()?;
        self.ready = None;
        let reading = self.reading.take().ok_or_else(gone)?;
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(Job { reading, visits }).map_err(|_| gone())
    }

    /// The triples of a step, as row numbers in the memory of the slots; a slot has `slot_rows`
    /// rows.
    ///
    /// **Cost**: as [`Buckets::read`], or waiting for the thread if it already reads this step.
    ///
    /// # Errors
    /// As [`Buckets::read`].
    pub fn read(&mut self, step: &Step, slot_rows: u64) -> Result<&TriplePool> {
        let start = Instant::now();
        self.settle()?;
        let ready = self.ready.take();
        let Reading { buckets, pool } = self.reading.as_mut().ok_or_else(gone)?;
        match ready {
            Some((visits, result)) if step.visits().eq(visits.iter().copied()) => result?,
            _ => buckets.fill(&step.visits().collect::<Vec<_>>(), pool)?,
        }
        self.waited += start.elapsed();
        buckets.put(step, slot_rows, pool)?;
        Ok(pool)
    }

    /// Total time that [`PoolReader::read`] has waited for triples.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// The buckets; waits for the read in progress.
    ///
    /// # Errors
    /// Internal errors only.
    pub fn buckets(&mut self) -> Result<&mut Buckets> {
        self.settle()?;
        Ok(&mut self.reading.as_mut().ok_or_else(gone)?.buckets)
    }

    /// Waits for the thread if it reads. The wait is bounded, because reads have a deadline.
    fn settle(&mut self) -> Result<()> {
        if self.reading.is_none() {
            let (Job { reading, visits }, result) = self.answers.recv().map_err(|_| gone())?;
            self.reading = Some(reading);
            self.ready = Some((visits, result));
        }
        Ok(())
    }
}

impl Drop for PoolReader {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Ignore the result: a panic was already reported as `gone`.
            let _ = thread.join();
        }
    }
}

fn gone() -> Error {
    Error::internal("the thread that reads triples has ended")
}
