//! What belongs to the process that made it: threads, locks and rings do not work after `fork`.

use std::ops::Deref;

/// A value that is never dropped in another process than the one that made it.
///
/// The child of a `fork` has the parent's memory but none of its threads: to drop a value there
/// would wait for threads that do not exist, or for a lock that one of them held. Its memory is the
/// child's copy and goes with the child.
pub struct OfProcess<T> {
    /// `None` only while it is dropped.
    value: Option<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// Whether the value was made by this process.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Takes the value where it is this process's own.
    pub fn take(&mut self) -> Option<T> {
        if self.is_ours() { self.value.take() } else { None }
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is there until the drop")
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}
