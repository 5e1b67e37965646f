//! Data queues: many concurrent transfers between leased buffers and regions.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, Result};
use outercore_io::Lease;

use crate::region::Region;

/// One transfer: the first `len` bytes of `lease`, to or from `region` at `offset`.
#[derive(Debug)]
pub struct Transfer {
    /// Returned with the lease; the queue does not interpret it.
    pub tag: u64,
    /// The region.
    pub region: Region,
    /// Offset in the region.
    pub offset: u64,
    /// Number of bytes; at least one.
    pub len: usize,
    /// The buffer, owned by the queue while the transfer is in flight.
    pub lease: Lease,
}

/// A finished transfer.
#[derive(Debug)]
pub struct Transferred {
    /// The transfer's tag.
    pub tag: u64,
    /// The buffer, returned also after an error.
    pub lease: Lease,
    /// `Ok` only if all bytes were transferred.
    pub result: Result<()>,
}

/// A data connection to far memory. Finished transfers go to the [`Arrivals`] that the queue was
/// opened with.
///
/// # Contract
/// - Every started transfer arrives exactly once, with success or an error. This includes a server
///   that dies, does not answer within the time-out, or refuses.
/// - Starting a transfer does not wait for the server. A transfer that cannot be started arrives as
///   an error.
/// - Transfers longer than a chunk are split into chunks; the lease is returned when the last one
///   is done.
/// - Dropping a queue ends its transfers; no lease is written to afterwards.
pub trait Queue: Send + fmt::Debug {
    /// Starts reading from far memory (`far_read_start`, Fargraph+ 8.1).
    fn read_start(&mut self, transfer: Transfer);

    /// Starts writing to far memory (`far_write_start`).
    fn write_start(&mut self, transfer: Transfer);

    /// Most transfers in flight.
    fn length(&self) -> usize;

    /// Memory of the queue itself, in this process and in the kernel. Leases belong to the caller.
    fn memory_bytes(&self) -> Bytes {
        Bytes(0)
    }
}

/// Collects finished transfers: queues put them in, and a waiting thread takes them out.
///
/// Clones share the content. Several queues may use one collection; then one thread can wait for
/// all of them.
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
    /// Number of transfers that a sleeping thread waits for.
    wanted: Option<usize>,
}

impl Arrivals {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, unless memory is exhausted.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a finished transfer.
    pub fn put(&self, transferred: Transferred) {
        let mut state = self.state();
        state.done.push(transferred);
        if state.wanted.is_some_and(|wanted| state.done.len() >= wanted) {
            state.wanted = None;
            drop(state);
            self.0.arrived.notify_all();
        }
    }

    /// Takes all finished transfers, after waiting for `at_least` of them or for the deadline;
    /// returns their number.
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

/// Adds a transfer that could not be started.
pub fn refuse(arrivals: &Arrivals, transfer: Transfer, error: Error) {
    arrivals.put(Transferred { tag: transfer.tag, lease: transfer.lease, result: Err(error) });
}
