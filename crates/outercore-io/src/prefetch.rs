//! Telling the processor what will be read soon.

/// Starts to bring `memory[index]` into the nearest cache, without waiting for it.
///
/// Loops that know their addresses well ahead hide the misses behind other work. An index out of
/// range, or a processor that cannot be told, changes nothing.
#[inline(always)]
pub fn prefetch<T>(memory: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    hint::<{ std::arch::x86_64::_MM_HINT_T0 }, T>(memory, index);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, index);
}

/// As [`prefetch`], into the second cache: for what is read only after hundreds of other lines.
///
/// The nearest cache could not hold it so long, and has room for a dozen lines under way where the
/// second one has several dozen.
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
