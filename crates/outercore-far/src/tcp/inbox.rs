//! Passes transfers from the starting threads to the thread of the queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

use outercore_core::{Context, Result};

use crate::protocol::Operation;
use crate::queue::Transfer;
use crate::socket::Wake;

/// Transfers on the way to the thread.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    pub(super) wake: Wake,
    /// Name of the server, for messages.
    pub(super) server: String,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) started: Vec<Started>,
    /// Whether the thread sleeps and must be woken. Waking costs a system call.
    pub(super) asleep: bool,
    pub(super) closing: bool,
    /// Why no more transfers can be started, or `None`.
    pub(super) dead: Option<String>,
}

#[derive(Debug)]
pub(super) struct Started {
    pub(super) operation: Operation,
    pub(super) transfer: Transfer,
}

impl Inbox {
    /// An empty inbox of a queue to `server`.
    pub(super) fn new(server: String) -> Result<Self> {
        Ok(Self { state: Mutex::default(), wake: Wake::new().context("data queue")?, server })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
