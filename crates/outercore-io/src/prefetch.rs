//! Telling the processor what will be read soon.

/// Starts to bring `memory[index]` into the caches, without waiting for it.
///
/// Loops that know their addresses well ahead hide the misses behind other work. An index out of
/// range, or a processor that cannot be told, changes nothing.
#[inline(always)]
pub fn prefetch<T>(memory: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = memory.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint about an element that exists; it neither reads nor writes.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, index);
}
