//! The `mmap` back end copies out of a read-only mapping. It is the baseline for the other back
//! ends.

use std::collections::VecDeque;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use outercore_core::{Context, Result};

use crate::open::{Caching, Files, Opened};
use crate::progress::{ends_early, refused};
use crate::reader::{Completion, FileId, ReadRequest, Reader};

/// Reads by page faults, one after the other, on the thread that calls `wait`.
///
/// The kernel decides which mapped pages stay in memory. They count as resident memory of this
/// process, outside any budget. If the device cannot read a page, `SIGBUS` ends the process, as for
/// every user of a mapping. A truncated file is detected before its bytes are accessed.
#[derive(Debug)]
pub struct MmapReader {
    files: Files,
    mappings: Vec<Option<Mapping>>,
    waiting: VecDeque<ReadRequest>,
    depth: usize,
}

impl MmapReader {
    /// A reader that takes up to `depth` requests at a time.
    pub fn open(depth: usize) -> Self {
        Self {
            files: Files::default(),
            mappings: Vec::new(),
            waiting: VecDeque::new(),
            depth: depth.max(1),
        }
    }

    fn copy(&self, mut request: ReadRequest) -> Completion {
        let file = self.files.get(request.file);
        let result = match file.file.metadata() {
            Err(error) => Err(refused(&file.path, request.offset, request.len, error)),
            Ok(now) if now.len() < request.offset + request.len as u64 => {
                let found = now.len().saturating_sub(request.offset) as usize;
                Err(ends_early(&file.path, request.offset, request.len, found))
            }
            Ok(_) => {
                if let Some(mapping) = &self.mappings[request.file.0 as usize] {
                    mapping.copy_to(&mut request.lease[..request.len], request.offset);
                }
                Ok(())
            }
        };
        Completion { tag: request.tag, lease: request.lease, result }
    }
}

impl Reader for MmapReader {
    fn register(&mut self, path: &Path) -> Result<FileId> {
        let opened = Opened::open(path, Caching::Keep)?;
        let mapping = match opened.len {
            0 => None,
            _ => Some(
                Mapping::new(&opened)
                    .with_context(|| format!("file `{}`: mapping it", path.display()))?,
            ),
        };
        self.mappings.push(mapping);
        Ok(self.files.add(opened))
    }

    fn file_len(&self, file: FileId) -> u64 {
        self.files.get(file).len
    }

    fn alignment(&self) -> usize {
        1
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn submit(&mut self, requests: &mut VecDeque<ReadRequest>) -> Result<usize> {
        let count = requests.len().min(self.depth - self.waiting.len());
        self.waiting.extend(requests.drain(..count));
        Ok(count)
    }

    /// Copies the bytes; a page fault cannot respect a deadline.
    fn wait(
        &mut self,
        at_least: usize,
        _deadline: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        for _ in 0..at_least {
            let Some(request) = self.waiting.pop_front() else { break };
            done.push(self.copy(request));
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        "mmap"
    }
}

/// A read-only mapping of a whole file.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only memory that any thread may read.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(opened: &Opened) -> Result<Self> {
        use std::os::fd::AsRawFd;
        let len = opened.len as usize;
        // SAFETY: a fresh mapping of an open descriptor touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                opened.file.as_raw_fd(),
                0,
            )
        };
        let mapping = match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Self { start, len },
            _ => return Err(std::io::Error::last_os_error().into()),
        };
        // SAFETY: advice about our own mapping; it changes no bytes.
        unsafe { libc::madvise(mapping.start.as_ptr().cast(), len, libc::MADV_RANDOM) };
        Ok(mapping)
    }

    fn copy_to(&self, destination: &mut [u8], offset: u64) {
        let offset = offset as usize;
        assert!(offset + destination.len() <= self.len, "a read within the mapping");
        let source = self.start.as_ptr().wrapping_add(offset);
        // SAFETY: the range lies in the mapping (asserted) and in the file (the caller compared the
        // current length). The destination is exclusively ours and does not overlap. No reference
        // to the mapped bytes is created, so another process may change them.
        unsafe {
            std::ptr::copy_nonoverlapping(source, destination.as_mut_ptr(), destination.len())
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `Mapping::new` with this length; nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
