//! Values that belong to the process that created them: threads, locks and rings do not work after
//! `fork`.

use std::ops::Deref;

/// A value that is dropped only in the process that created it.
///
/// The child of a `fork` has the parent's memory but none of its threads. Dropping a value there
/// would wait for threads that do not exist, or for a lock that one of them held. So the value is
/// leaked in the child, where its memory is a private copy.
pub struct OfProcess<T> {
    /// `None` only while it is dropped.
    value: Option<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// Whether this process created the value.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Takes the value, if this process created it.
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
