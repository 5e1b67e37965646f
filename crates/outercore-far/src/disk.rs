//! The disk reader next to far memory. It is called directly if only the disk has reads in flight.
//! If both have, a separate thread runs it, so that the caller can wait for both at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use outercore_core::{Context, Error, Result};
use outercore_io::{Completion, ReadRequest, Reader};

use crate::queue::{Arrivals, Transferred};

/// How long the thread waits for a read before it checks again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A disk reader, in the caller's thread or in a separate one.
pub(crate) struct Disk {
    home: Home,
    arrivals: Arrivals,
    /// Requests that were not yet passed to the reader.
    backlog: VecDeque<ReadRequest>,
    /// Number of queued reads that have not ended.
    in_flight: usize,
    alignment: usize,
    done: Vec<Completion>,
}

enum Home {
    Here(Box<dyn Reader>),
    There(Apart),
    /// The thread has panicked.
    Gone,
}

/// A reader in a separate thread.
struct Apart {
    /// `None` only wakes the thread.
    sender: Sender<Option<ReadRequest>>,
    thread: JoinHandle<Option<Unfinished>>,
    trouble: Arc<Trouble>,
}

/// A reader and the requests that it has not yet accepted.
type Unfinished = (Box<dyn Reader>, VecDeque<ReadRequest>);

/// Errors of the thread that no completion can carry.
#[derive(Default)]
struct Trouble {
    /// Waiting for the device failed, and the thread waits to be woken.
    stuck: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Disk {
    pub(crate) fn new(reader: Box<dyn Reader>, arrivals: Arrivals) -> Self {
        let alignment = reader.alignment();
        Self {
            home: Home::Here(reader),
            arrivals,
            backlog: VecDeque::new(),
            in_flight: 0,
            alignment,
            done: Vec::new(),
        }
    }

    pub(crate) fn alignment(&self) -> usize {
        self.alignment
    }

    /// Updates the alignment after a file was registered.
    pub(crate) fn learn(&mut self) {
        if let Home::Here(reader) = &self.home {
            self.alignment = reader.alignment();
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn is_here(&self) -> bool {
        matches!(self.home, Home::Here(_))
    }

    /// Queues a request; [`Disk::pump`] starts it.
    pub(crate) fn queue(&mut self, request: ReadRequest) {
        self.in_flight += 1;
        self.backlog.push_back(request);
    }

    /// Counts one read as ended, after it was taken from the arrivals.
    pub(crate) fn ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Starts the queued requests. If far memory has reads in flight (`others`), the reader moves
    /// to its thread.
    pub(crate) fn pump(&mut self, others: bool) -> Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        if others && self.is_here() {
            self.move_out()?;
        }
        match &mut self.home {
            Home::Here(reader) => {
                if !self.backlog.is_empty() {
                    reader.submit(&mut self.backlog)?;
                }
                Ok(())
            }
            Home::There(apart) => {
                // The thread ends only when the sender is dropped.
                let mut sent =
                    self.backlog.drain(..).map(|request| apart.sender.send(Some(request)));
                sent.try_for_each(|sent| sent.map_err(|_| gone()))
            }
            Home::Gone => Err(gone()),
        }
    }

    /// Waits for reads, if the reader is in the caller's thread.
    pub(crate) fn wait_here(
        &mut self,
        at_least: usize,
        left: Duration,
        ended: &mut Vec<Transferred>,
    ) -> Result<()> {
        let Home::Here(reader) = &mut self.home else { return Ok(()) };
        reader.wait(at_least, left, &mut self.done)?;
        ended.extend(self.done.drain(..).map(transferred));
        Ok(())
    }

    /// Wakes a thread that stopped waiting after an error, because reads in flight are needed.
    pub(crate) fn wake(&self) {
        if let Home::There(apart) = &self.home
            && self.in_flight > 0
            && apart.trouble.stuck.load(Ordering::Acquire)
        {
            // If the thread has ended, the next request reports it.
            let _ = apart.sender.send(None);
        }
    }

    /// The error after which the thread stopped waiting, if any.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        let Home::There(apart) = &self.home else { return None };
        apart.trouble.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn move_out(&mut self) -> Result<()> {
        let (sender, receiver) = channel();
        let (hand_over, handed_over) = channel();
        let trouble = Arc::new(Trouble::default());
        let (arrivals, shared) = (self.arrivals.clone(), Arc::clone(&trouble));
        // Send the reader only after the thread was created, so that it is not lost if that fails.
        let thread = std::thread::Builder::new()
            .name("outercore-far-disk".to_owned())
            .spawn(move || {
                let reader = handed_over.recv().ok()?;
                let backlog = VecDeque::new();
                Some(Outside { reader, backlog, receiver, arrivals, trouble: shared }.run())
            })
            .context("a thread for reads from the disk")?;
        match std::mem::replace(&mut self.home, Home::Gone) {
            Home::Here(reader) => {
                hand_over.send(reader).map_err(|_| gone())?;
                self.home = Home::There(Apart { sender, thread, trouble });
            }
            other => self.home = other,
        }
        Ok(())
    }

    /// Moves the reader back to the caller's thread.
    ///
    /// Blocks until one of its reads has ended, if any are in flight.
    pub(crate) fn bring_home(&mut self) -> Result<&mut dyn Reader> {
        self.home = match std::mem::replace(&mut self.home, Home::Gone) {
            Home::There(Apart { sender, thread, .. }) => {
                drop(sender);
                let (reader, unsent) = thread.join().ok().flatten().ok_or_else(gone)?;
                self.backlog.extend(unsent);
                Home::Here(reader)
            }
            home => home,
        };
        match &mut self.home {
            Home::Here(reader) => Ok(&mut **reader),
            _ => Err(gone()),
        }
    }
}

impl Drop for Disk {
    /// Dropping the reader waits for its reads, so take it back and wait here.
    fn drop(&mut self) {
        // No caller is left to receive an error.
        let _ = self.bring_home();
    }
}

fn gone() -> Error {
    Error::internal("the thread that reads from the disk is gone")
}

fn transferred(completion: Completion) -> Transferred {
    let Completion { tag, lease, result } = completion;
    Transferred { tag, lease, result }
}

/// The side of the thread.
struct Outside {
    reader: Box<dyn Reader>,
    backlog: VecDeque<ReadRequest>,
    receiver: Receiver<Option<ReadRequest>>,
    arrivals: Arrivals,
    trouble: Arc<Trouble>,
}

impl Outside {
    /// Serves requests until the sender is dropped; returns the reader with its reads in flight.
    fn run(mut self) -> Unfinished {
        let mut done = Vec::new();
        loop {
            if !self.take_requests() {
                return (self.reader, self.backlog);
            }
            if let Err(error) = self.reader.submit(&mut self.backlog) {
                self.fail_backlog(&error);
            }
            match self.reader.wait(1, PATIENCE, &mut done) {
                Ok(()) => done.drain(..).for_each(|one| self.arrivals.put(transferred(one))),
                Err(error) => {
                    let mut first =
                        self.trouble.error.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(error);
                    self.trouble.stuck.store(true, Ordering::Release);
                }
            }
        }
    }

    /// Takes the sent requests, and waits for them if no read is in flight; `false` at the end.
    fn take_requests(&mut self) -> bool {
        let idle = self.backlog.is_empty() && self.reader.in_flight() == 0;
        if idle || self.trouble.stuck.load(Ordering::Acquire) {
            match self.receiver.recv() {
                Ok(request) => self.backlog.extend(request),
                Err(_) => return false,
            }
            self.trouble.stuck.store(false, Ordering::Release);
        }
        loop {
            match self.receiver.try_recv() {
                Ok(request) => self.backlog.extend(request),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Ends all requests that the reader has not accepted with this error.
    fn fail_backlog(&mut self, error: &Error) {
        for ReadRequest { tag, lease, .. } in self.backlog.drain(..) {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default();
            let result = Err(Error::new(error.kind(), text));
            self.arrivals.put(Transferred { tag, lease, result });
        }
    }
}
