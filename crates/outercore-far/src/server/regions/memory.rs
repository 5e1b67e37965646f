//! Kernel memory for a region.

use std::fs::File;
use std::io;

use outercore_core::{Bytes, Error, ErrorKind, Result, hint};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};

use crate::protocol::ALLOCATION_STEP;

/// Allocates kernel memory of fixed length, with all pages present.
pub(super) fn new_memory(len: u64, alive: &mut dyn FnMut() -> Result<()>) -> Result<File> {
    let named = |error: rustix::io::Errno| {
        let error = io::Error::from(error);
        let memory = format!("{} of memory for a region", Bytes(len));
        match error.kind() {
            io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => {
                Error::new(ErrorKind::NoSpace, format!("{memory}: {error}")).hint(hint!(
                    "the machine has less memory than the server may lend: lower its " {size}
                ))
            }
            _ => Error::from(error).context(memory),
        }
    };
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let memory = memfd_create("outercore-far", flags).map_err(|error| match error {
        rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => {
            Error::new(ErrorKind::NoSpace, "the memory server has no file descriptor left")
                .hint("raise its limit with `ulimit -n`, or take fewer and larger regions")
        }
        other => named(other),
    })?;
    ftruncate(&memory, len).map_err(named)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).map_err(named)?;
    let mut at = 0;
    while at < len {
        let step = ALLOCATION_STEP.min(len - at);
        match fallocate(&memory, FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(named(error)),
        }
        if at < len {
            alive()?;
        }
    }
    Ok(memory.into())
}
