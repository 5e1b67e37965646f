//! Prefetch hints for the processor.

/// Starts to load `memory[index]` into the first-level cache, without waiting for it.
///
/// Loops that know their addresses well ahead can do other work during the cache misses. An index
/// out of range, or a processor without this hint, has no effect.
#[inline(always)]
pub fn prefetch<T>(memory: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    hint::<{ std::arch::x86_64::_MM_HINT_T0 }, T>(memory, index);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, index);
}

/// Like [`prefetch`], but into the second-level cache, for memory that is read only after hundreds
/// of other cache lines.
///
/// The first-level cache could not hold the line that long. It also has room for only a dozen
/// pending lines, the second-level cache for several dozen.
#[inline(always)]
pub fn prefetch_early<T>(memory: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    hint::<{ std::arch::x86_64::_MM_HINT_T1 }, T>(memory, index);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, index);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn hint<const CACHE: i32, T>(memory: &[T], index: usize) {
    if let Some(element) = memory.get(index) {
        // SAFETY: a hint about an element that exists; it neither reads nor writes.
        unsafe { std::arch::x86_64::_mm_prefetch::<CACHE>(std::ptr::from_ref(element).cast()) };
    }
}
