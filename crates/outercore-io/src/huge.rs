//! Advice to the kernel about memory: huge pages for random access, and memory to take back.

use std::mem::MaybeUninit;

/// For smaller memory, huge pages save nothing.
const LEAST: usize = 4 << 20;

/// Asks the kernel to back memory that has not been accessed by huge pages. Random accesses then
/// rarely miss the address translation in addition to the cache.
///
/// This is only advice: the kernel may ignore it. Memory that is used in part may take up to 2 MiB
/// more at either end.
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

/// Returns freed memory to the kernel.
///
/// The allocator keeps free memory between pieces in use. Call this after freeing many small pieces
/// and before a large allocation; otherwise the memory counts twice against a budget. Does nothing
/// with an allocator other than glibc's.
///
/// **Cost** a walk over the allocator's free lists.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it only unmaps pages that hold no allocation.
    unsafe {
        libc::malloc_trim(0)
    };
}
