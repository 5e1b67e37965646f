//! The disk's reader beside far memory: in the caller's hands while it is alone, in a thread of
//! its own while both have reads in flight, so that one wait serves both.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use outercore_core::{Context, Error, Result};
use outercore_io::{Completion, ReadRequest, Reader};

use crate::queue::{Arrivals, Transferred};

/// How long the thread waits for a read before it looks up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A disk reader, wherever it is.
pub(crate) struct Disk {
    home: Home,
    arrivals: Arrivals,
    /// Requests that the reader has not been given.
    backlog: VecDeque<ReadRequest>,
    /// Reads queued and not yet ended.
    in_flight: usize,
    alignment: usize,
    done: Vec<Completion>,
}

enum Home {
    Here(Box<dyn Reader>),
    There(Apart),
    /// Its thread panicked.
    Gone,
}

/// A reader in a thread of its own.
struct Apart {
    /// `None` only wakes the thread.
    sender: Sender<Option<ReadRequest>>,
    thread: JoinHandle<Option<Unfinished>>,
    trouble: Arc<Trouble>,
}

/// A reader, and the requests that it has not taken.
type Unfinished = (Box<dyn Reader>, VecDeque<ReadRequest>);

/// What the thread could not tell by a completion.
#[derive(Default)]
struct Trouble {
    /// The thread waits to be woken, because waiting for the device failed.
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

    /// Takes over what registering a file has changed.
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

    /// Takes a request; [`Disk::pump`] starts it.
    pub(crate) fn queue(&mut self, request: ReadRequest) {
        self.in_flight += 1;
        self.backlog.push_back(request);
    }

    /// One read has ended and was taken from the arrivals.
    pub(crate) fn ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Starts what is queued, in a thread where somebody else has reads in flight too.
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

    /// Waits for the reader in the caller's hands.
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

    /// Lets a thread that gave up waiting try again: somebody wants what is in flight.
    pub(crate) fn wake(&self) {
        if let Home::There(apart) = &self.home
            && self.in_flight > 0
            && apart.trouble.stuck.load(Ordering::Acquire)
        {
            // A thread that has ended is found out by the next request.
            let _ = apart.sender.send(None);
        }
    }

    /// Why the thread gave up waiting, where it did.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        let Home::There(apart) = &self.home else { return None };
        apart.trouble.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn move_out(&mut self) -> Result<()> {
        let (sender, receiver) = channel();
        let (hand_over, handed_over) = channel();
        let trouble = Arc::new(Trouble::default());
        let (arrivals, shared) = (self.arrivals.clone(), Arc::clone(&trouble));
        // The reader follows when there is a thread: where there is none, it must not be lost.
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

    /// The reader, back in the caller's hands.
    ///
    /// Blocks until one of its reads has ended, where any are in flight.
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
    /// The reader waits for its reads when it is dropped; that has to be over when this is.
    fn drop(&mut self) {
        // There is nobody left to tell.
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

/// The thread's side.
struct Outside {
    reader: Box<dyn Reader>,
    backlog: VecDeque<ReadRequest>,
    receiver: Receiver<Option<ReadRequest>>,
    arrivals: Arrivals,
    trouble: Arc<Trouble>,
}

impl Outside {
    /// Serves requests until the sender is dropped; returns the reader with whatever it still does.
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

    /// Takes what was sent, waiting for it where there is nothing else to do; `false` at the end.
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

    /// Every request that the reader does not take ends with its error.
    fn fail_backlog(&mut self, error: &Error) {
        for ReadRequest { tag, lease, .. } in self.backlog.drain(..) {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default();
            let result = Err(Error::new(error.kind(), text));
            self.arrivals.put(Transferred { tag, lease, result });
        }
    }
}
