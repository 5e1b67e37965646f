//! What the kernel is told about memory: huge pages for what is read at random, and what is free.

use std::mem::MaybeUninit;

/// Below this a huge page spares nothing.
const LEAST: usize = 4 << 20;

/// Asks the kernel to back memory, not yet touched, by huge pages: a random access then rarely
/// misses the address translation as well as the cache.
///
/// A wish: where the kernel does not grant it, nothing changes. Memory that is touched only in part
/// may take up to 2 MiB more at either end.
pub fn prefer_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    const PAGE: usize = 4096;
    let range = memory.as_mut_ptr_range();
    let start = range.start.addr().next_multiple_of(PAGE);
    let end = range.end.addr() / PAGE * PAGE;
    if end < start + LEAST {
        return;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the advice changes how pages are backed, not what they hold, and they are ours.
    unsafe {
        libc::madvise(
            std::ptr::with_exposed_provenance_mut(start),
            end - start,
            libc::MADV_HUGEPAGE,
        )
    };
}

/// Gives memory that was freed back to the kernel.
///
/// The allocator keeps what lies between pieces still in use. After something large was freed in
/// small pieces, and before something else large is allocated, that would count twice against a
/// budget. Does nothing where the allocator is another one.
///
/// **Cost** a walk over the allocator's free lists.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it only unmaps pages that hold no allocation.
    unsafe {
        libc::malloc_trim(0)
    };
}
