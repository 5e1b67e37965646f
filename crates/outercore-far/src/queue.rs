//! Data queues: transfers between leased buffers and regions, many at a time.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, Result};
use outercore_io::Lease;

use crate::region::Region;

/// One transfer: the first `len` bytes of `lease` to or from `region` at `offset`.
#[derive(Debug)]
pub struct Transfer {
    /// Comes back with the lease; the queue does not look at it.
    pub tag: u64,
    /// The region.
    pub region: Region,
    /// Byte of the region.
    pub offset: u64,
    /// Bytes; at least one.
    pub len: usize,
    /// The buffer, the queue's while the transfer is in flight.
    pub lease: Lease,
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct Transferred {
    /// The transfer's tag.
    pub tag: u64,
    /// The buffer, back in its owner's hands, also after an error.
    pub lease: Lease,
    /// `Ok` only if all bytes are there.
    pub result: Result<()>,
}

/// A data connection to far memory. Whatever ends goes to the [`Arrivals`] that the queue was
/// opened with.
///
/// # Contract
/// - Every transfer that was started arrives exactly once, with success or an error: also when the
///   server dies, does not answer for the time-out, or refuses.
/// - Starting does not wait for the server. What cannot be started arrives as an error.
/// - Transfers longer than a chunk are cut into chunks; the lease comes back when the last is done.
/// - Dropping a queue ends its transfers; no lease is written to afterwards.
pub trait Queue: Send + fmt::Debug {
    /// Starts reading from far memory (`far_read_start`, Fargraph+ 8.1).
    fn read_start(&mut self, transfer: Transfer);

    /// Starts writing to far memory (`far_write_start`).
    fn write_start(&mut self, transfer: Transfer);

    /// Transfers that may be in flight at once.
    fn length(&self) -> usize;

    /// Memory that the queue itself holds, in this process and in the kernel; leases are the
    /// caller's.
    fn memory_bytes(&self) -> Bytes {
        Bytes(0)
    }
}

/// Where ended transfers are put by whoever ends them and taken by whoever waits for them.
///
/// Clones share it. Several queues may put into one: then one thread waits for all of them.
#[derive(Clone, Default)]
pub struct Arrivals(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    done: Vec<Transferred>,
    /// Somebody sleeps until so many are there.
    wanted: Option<usize>,
}

impl Arrivals {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, except where memory is out.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an ended transfer.
    pub fn put(&self, transferred: Transferred) {
        let mut state = self.state();
        state.done.push(transferred);
        if state.wanted.is_some_and(|wanted| state.done.len() >= wanted) {
            state.wanted = None;
            drop(state);
            self.0.arrived.notify_all();
        }
    }

    /// Takes everything that has ended, once at least `at_least` are there or the deadline has
    /// passed; returns how many were taken.
    pub fn take(&self, at_least: usize, deadline: Duration, done: &mut Vec<Transferred>) -> usize {
        let end = Instant::now() + deadline;
        let mut state = self.state();
        while state.done.len() < at_least {
            state.wanted = Some(at_least);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.0.arrived.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wanted = None;
        let found = state.done.len();
        done.append(&mut state.done);
        found
    }
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arrivals({} waiting)", self.state().done.len())
    }
}

/// Puts a transfer that could not be started.
pub fn refuse(arrivals: &Arrivals, transfer: Transfer, error: Error) {
    arrivals.put(Transferred { tag: transfer.tag, lease: transfer.lease, result: Err(error) });
}
