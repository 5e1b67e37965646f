//! Waits on several file descriptors at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use outercore_core::{Context, Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Wakes a thread that sleeps in [`sleep`].
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(system).context("an event to wake a thread by")?;
        Ok(Self(fd))
    }

    /// Wakes the sleeper, or prevents the next sleep.
    pub(crate) fn ring(&self) {
        // This can only fail if the counter is full, and then the sleeper is awake.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears all earlier rings.
    pub(crate) fn hear(&self) {
        let mut count = [0; 8];
        // An error means that there was no ring.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of `fds` has something to read, or until `limit` has passed.
///
/// # Errors
/// `Io`: the system refuses to wait.
pub(crate) fn sleep(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> Result<()> {
    let mut list: Vec<_> =
        fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    // A duration beyond the range of the clock counts as no limit.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(&mut list, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(system(error)).context("waiting for libfabric"),
    }
}

/// Converts an error of the system.
pub(crate) fn system(error: Errno) -> Error {
    std::io::Error::from(error).into()
}
