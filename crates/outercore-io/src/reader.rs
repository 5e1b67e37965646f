//! The trait for reading: [`Reader`].

use std::path::Path;
use std::time::Duration;

use outercore_core::Result;

use crate::arena::Lease;

/// A file registered with a [`Reader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// One read: `len` bytes of `file` at `offset` into the start of `lease`.
#[derive(Debug)]
pub struct ReadRequest {
    /// Returned in the completion; the reader does not interpret it.
    pub tag: u64,
    /// The registered file.
    pub file: FileId,
    /// Offset in bytes; a multiple of [`Reader::alignment`].
    pub offset: u64,
    /// Bytes to read; `offset + len` must not pass the end of the file. Only this may be unaligned.
    pub len: usize,
    /// Destination, at least `len` bytes rounded up to the alignment. The reader owns it while the
    /// read is in flight, so no other code can see half-read bytes.
    pub lease: Lease,
}

/// A finished read, in no particular order.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The destination, returned to the caller, also after an error.
    pub lease: Lease,
    /// `Ok` only if all `len` bytes are there. The reader has continued short reads. A file that
    /// ends early is an error that names path, offset, expected and found bytes.
    pub result: Result<()>,
}

/// Reads batches of ranges into caller-owned buffers and completes them in any order, without a
/// barrier between batches.
///
/// # Contract
/// - Every submitted request completes exactly once, with success or an error.
/// - `submit` never blocks: it takes requests from the front of the list while it has room.
/// - `wait` returns after `at_least` completions (or all in flight, if fewer). If `deadline` passes
///   without a completion, it returns an error of kind `Io`, so no wait is endless.
/// - Dropping a reader waits until the kernel no longer writes into any lease.
pub trait Reader: Send {
    /// Opens `path` for reading and registers it.
    ///
    /// # Errors
    /// The file is missing or unreadable.
    fn register(&mut self, path: &Path) -> Result<FileId>;

    /// Length in bytes when the file was registered.
    fn file_len(&self, file: FileId) -> u64;

    /// Offsets must be multiples of this (1 for buffered back ends); a power of two.
    fn alignment(&self) -> usize;

    /// Requests that may be in flight at once.
    fn depth(&self) -> usize;

    /// Requests submitted and not yet returned.
    fn in_flight(&self) -> usize;

    /// Starts reading; removes the accepted requests from `requests` and returns how many.
    fn submit(&mut self, requests: &mut std::collections::VecDeque<ReadRequest>) -> Result<usize>;

    /// Appends finished reads to `done`.
    fn wait(
        &mut self,
        at_least: usize,
        deadline: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<()>;

    /// A name for records and messages: `uring`, `threads`, `mmap`, `sim`.
    fn name(&self) -> &'static str;
}
