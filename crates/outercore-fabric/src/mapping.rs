//! The server's view of a region: its memfd, mapped for a provider to read and write.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_far::Access;
use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::wake::system;

/// Shared memory at an address that stays reserved until the mapping is dropped.
///
/// A provider may still move bytes of a region that was withdrawn. So [`Mapping::bury`] releases
/// the region's memory but keeps the address reserved. Late transfers then reach private zeros, and
/// never another region.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// The system has refused to replace the mapping, so the content at its address is unknown.
    dead: bool,
}

// SAFETY: plain memory that our own code never accesses; only providers do.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `memory`.
    ///
    /// # Errors
    /// `Invalid`: the memory can shrink, or is too short. `Io`: it cannot be mapped.
    pub(crate) fn new(memory: BorrowedFd<'_>, len: Bytes, access: Access) -> Result<Self> {
        // Access beyond the end of a file would end the server with SIGBUS.
        let seals = fcntl_get_seals(memory).map_err(system).context("seals of a region")?;
        let size = rustix::fs::fstat(memory).map_err(system).context("size of a region")?.st_size;
        if !seals.contains(SealFlags::SHRINK) || u64::try_from(size).unwrap_or(0) < len.0 {
            return Err(Error::invalid(format!(
                "a region of {len} has {} that may shrink, expected as many that may not",
                Bytes(u64::try_from(size).unwrap_or(0))
            )));
        }
        let length = usize::try_from(len.0).ok().filter(|&length| length > 0);
        let length = length.ok_or_else(|| Error::invalid(format!("a region of {len}")))?;
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a fresh mapping touches no memory of ours.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, memory.as_raw_fd(), 0)
        };
        let start = mapped(start).with_context(|| format!("mapping a region of {len}"))?;
        Ok(Self { start, len: length, dead: false })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Releases the memory and keeps the address reserved.
    ///
    /// # Errors
    /// `Io`: the system refuses. The address may now belong to another mapping, or still to the
    /// region. So it is never accessed again, nor unmapped.
    pub(crate) fn bury(&mut self) -> Result<()> {
        // SAFETY: atomically replaces exactly our own mapping by private memory, which takes no
        // space until it is written to.
        let start = unsafe {
            libc::mmap(
                self.start.as_ptr().cast(),
                self.len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        let buried = mapped(start).context("giving a region back");
        self.dead |= buried.is_err();
        buried.map(drop)
    }
}

fn mapped(start: *mut libc::c_void) -> Result<NonNull<u8>> {
    match NonNull::new(start.cast::<u8>()) {
        Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(start),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Error::new(ErrorKind::Io, error.to_string()))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.dead {
            return;
        }
        // SAFETY: our own mapping; its owner has closed everything that could still access it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn memory(len: u64) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("region", flags).unwrap();
        ftruncate(&fd, len).unwrap();
        fd
    }

    #[test]
    fn memory_that_may_shrink_or_is_short_is_refused() {
        let fd = memory(8192);
        assert!(Mapping::new(fd.as_fd(), Bytes(8192), Access::Read).is_err());
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(Mapping::new(fd.as_fd(), Bytes(8193), Access::Read).is_err());
        assert!(Mapping::new(fd.as_fd(), Bytes(0), Access::Read).is_err());
        assert_eq!(Mapping::new(fd.as_fd(), Bytes(8192), Access::Read).unwrap().len(), 8192);
    }

    #[test]
    fn a_buried_region_can_be_sealed_against_writing() {
        let fd = memory(8192);
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        let mut mapping = Mapping::new(fd.as_fd(), Bytes(8192), Access::ReadWrite).unwrap();
        assert!(fcntl_add_seals(&fd, SealFlags::WRITE).is_err());
        mapping.bury().unwrap();
        fcntl_add_seals(&fd, SealFlags::WRITE).unwrap();
    }
}
