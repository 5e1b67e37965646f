//! The thread that reads and writes partitions while the caller computes.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use outercore_core::{Error, Result};

use crate::partition::{CopyIndex, PartitionFile, Slot, Sums};

/// Work for a slot: write its partition, then read another one into it.
pub(super) struct Exchange {
    pub slot: Slot,
    pub store: Option<Store>,
    pub load: Option<Load>,
}

/// A copy of a partition to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub partition: usize,
    pub copy: CopyIndex,
}

/// A copy of a partition to read, and its checksums.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub partition: usize,
    pub copy: CopyIndex,
    pub sums: Sums,
}

/// A request to the thread. It carries the memory, and the answer returns it, so no other thread
/// can use the memory meanwhile.
pub(super) enum Job {
    /// Exchange partitions: everything is written and durable before anything is read.
    Swap(Vec<Exchange>),
    /// Read embeddings, starting at a row.
    Rows { load: Load, first_row: u64, rows: Vec<f32> },
}

pub(super) enum Answer {
    Swap(Swapped),
    Rows(Result<Vec<f32>>),
}

pub(super) struct Swapped {
    /// The slots in the order of the request, with checksums of the written copies.
    pub slots: Vec<(Slot, Option<Sums>)>,
    pub result: Result<()>,
    pub busy_s: f64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// The thread and its channels. Answers come in the order of the requests.
pub(super) struct Worker {
    jobs: Option<Sender<Job>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn start(file: PartitionFile, partition_bytes: u64) -> Result<Self> {
        let (jobs, to_do) = channel();
        let (done, answers) = channel();
        let thread = std::thread::Builder::new()
            .name("outercore-partitions".to_owned())
            .spawn(move || run(file, partition_bytes, &to_do, &done))?;
        Ok(Self { jobs: Some(jobs), answers, thread: Some(thread) })
    }

    pub fn ask(&self, job: Job) -> Result<()> {
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job).map_err(|_| gone())
    }

    /// Waits for the next answer. The wait is bounded: reads have a deadline, and writes end with
    /// the device.
    pub fn answer(&self) -> Result<Answer> {
        self.answers.recv().map_err(|_| gone())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Ignore the result: a panic was already reported as `gone`.
            let _ = thread.join();
        }
    }
}

fn gone() -> Error {
    Error::internal("the thread that reads and writes partitions has ended")
}

fn run(mut file: PartitionFile, bytes: u64, jobs: &Receiver<Job>, done: &Sender<Answer>) {
    while let Ok(job) = jobs.recv() {
        let answer = match job {
            Job::Swap(exchanges) => Answer::Swap(swap(&mut file, bytes, exchanges)),
            Job::Rows { load, first_row, mut rows } => {
                let Load { partition, copy, sums } = load;
                let read = file.load_rows(partition, copy, &sums, first_row, &mut rows);
                Answer::Rows(read.map(|_| rows))
            }
        };
        if done.send(answer).is_err() {
            return;
        }
    }
}

fn swap(file: &mut PartitionFile, bytes: u64, mut exchanges: Vec<Exchange>) -> Swapped {
    let start = Instant::now();
    let (mut bytes_read, mut bytes_written) = (0, 0);
    let mut stored = vec![None; exchanges.len()];
    let mut work = || -> Result<()> {
        for (exchange, sums) in exchanges.iter().zip(&mut stored) {
            if let Some(Store { partition, copy }) = exchange.store {
                *sums = Some(file.store(partition, copy, &exchange.slot)?);
                bytes_written += bytes;
            }
        }
        if bytes_written > 0 {
            file.sync()?;
        }
        for exchange in &mut exchanges {
            if let Some(Load { partition, copy, sums }) = &exchange.load {
                bytes_read += file.load(*partition, *copy, sums, &mut exchange.slot)?.bytes;
            }
        }
        Ok(())
    };
    let result = work();
    Swapped {
        slots: exchanges.into_iter().map(|exchange| exchange.slot).zip(stored).collect(),
        result,
        busy_s: start.elapsed().as_secs_f64(),
        bytes_read,
        bytes_written,
    }
}
