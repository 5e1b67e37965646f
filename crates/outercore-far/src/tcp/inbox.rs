//! Transfers on their way from those who start them to the thread of the queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

use outercore_core::{Context, Result};

use crate::protocol::Operation;
use crate::queue::Transfer;
use crate::socket::Wake;

/// Transfers on their way to the thread.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    pub(super) wake: Wake,
    /// The server, for messages.
    pub(super) server: String,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) started: Vec<Started>,
    /// The thread waits and has to be woken; waking costs a system call.
    pub(super) asleep: bool,
    pub(super) closing: bool,
    /// Why nothing more can be started.
    pub(super) dead: Option<String>,
}

#[derive(Debug)]
pub(super) struct Started {
    pub(super) operation: Operation,
    pub(super) transfer: Transfer,
}

impl Inbox {
    /// An empty one, for a queue of `server`.
    pub(super) fn new(server: String) -> Result<Self> {
        Ok(Self { state: Mutex::default(), wake: Wake::new().context("data queue")?, server })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
