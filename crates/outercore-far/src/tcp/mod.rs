//! The data queue over a socket: requests are pipelined, and answers arrive in order.
//!
//! One thread owns the socket and all transfers in flight. It sends requests and receives directly
//! into the leases. It blocks on neither, but waits for both at once. So a single time-out detects
//! a server that stops answering or stops reading.

mod inbox;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};

use self::inbox::{Inbox, Started};
use self::worker::{Limits, Worker, worker_bytes};
use crate::client::greet::Door;
use crate::protocol::{Operation, Role};
use crate::queue::{Arrivals, Queue, Transfer, refuse};
use crate::socket::Socket;

/// How long a transfer may take after all earlier ones have ended, even with steady progress. The
/// waiting caller has a deadline, and the disk needs the rest of it: an engine gives every read 30
/// seconds.
const LONGEST_TRANSFER: Duration = Duration::from_secs(20);

/// A data queue over TCP or a Unix socket.
#[derive(Debug)]
pub(crate) struct SocketQueue {
    inbox: Arc<Inbox>,
    arrivals: Arrivals,
    length: usize,
    /// Size of the kernel's buffers for the socket.
    buffered: u64,
    thread: Option<JoinHandle<()>>,
}

impl SocketQueue {
    pub(crate) fn open(
        door: &Door,
        session: u64,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Self> {
        let socket = door.enter(Role::Data, session)?.socket;
        let server = format!("memory server {}", door.address);
        let limits = Limits { silence: door.timeout, transfer: LONGEST_TRANSFER };
        Self::over(socket, server, limits, length, chunk, arrivals)
    }

    /// A queue over an authenticated connection.
    fn over(
        socket: Socket,
        server: String,
        limits: Limits,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Self> {
        socket.set_nonblocking(true)?;
        let buffered = socket.buffered_bytes()?;
        let inbox = Arc::new(Inbox::new(server)?);
        let worker =
            Worker::new(socket, Arc::clone(&inbox), arrivals.clone(), chunk.0 as usize, limits);
        let thread = thread::Builder::new()
            .name("outercore-far-queue".to_owned())
            .stack_size(128 << 10)
            .spawn(move || worker.run())
            .context("thread of a data queue")?;
        Ok(Self { inbox, arrivals: arrivals.clone(), length, buffered, thread: Some(thread) })
    }

    fn start(&self, operation: Operation, transfer: Transfer) {
        if let Err(error) = check(&transfer) {
            return refuse(&self.arrivals, transfer, error);
        }
        let mut state = self.inbox.state();
        if let Some(dead) = &state.dead {
            let error = Error::new(ErrorKind::Io, dead.clone());
            drop(state);
            return refuse(&self.arrivals, transfer, error);
        }
        state.started.push(Started { operation, transfer });
        if std::mem::take(&mut state.asleep) {
            drop(state);
            self.inbox.wake.wake();
        }
    }
}

/// Checks a transfer as far as possible without the server.
pub(crate) fn check(transfer: &Transfer) -> Result<()> {
    let Transfer { region, offset, len, lease, .. } = transfer;
    if *len == 0 || *len > lease.len() {
        return Err(Error::invalid(format!(
            "a transfer of {len} bytes with a buffer of {}, expected at least 1 and no more",
            lease.len()
        )));
    }
    region.check_range(*offset, *len)
}

impl Queue for SocketQueue {
    fn read_start(&mut self, transfer: Transfer) {
        self.start(Operation::Read, transfer);
    }

    fn write_start(&mut self, transfer: Transfer) {
        self.start(Operation::Write, transfer);
    }

    fn length(&self) -> usize {
        self.length
    }

    fn memory_bytes(&self) -> Bytes {
        Bytes(self.buffered + worker_bytes(self.length))
    }
}

impl Drop for SocketQueue {
    fn drop(&mut self) {
        self.inbox.state().closing = true;
        self.inbox.wake.wake();
        if let Some(thread) = self.thread.take() {
            // The thread only blocks in its wait. It has already printed its panic.
            let _ = thread.join();
        }
    }
}
