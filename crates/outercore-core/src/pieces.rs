//! Divides triples into batches, and batches into chunks, of about a requested size.

/// The number of pieces of about `size` into which `count` items are divided: `count / size`,
/// rounded to the nearest whole number, and at least 1.
///
/// # Example
/// ```
/// use outercore_core::count_pieces;
/// assert_eq!([1, 149, 150, 249, 250].map(|count| count_pieces(count, 100)), [1, 1, 2, 2, 3]);
/// ```
pub fn count_pieces(count: usize, size: usize) -> usize {
    let size = size.max(1);
    (count.saturating_mul(2).saturating_add(size) / size.saturating_mul(2)).max(1)
}

/// The most items that a piece of about `size` can have.
pub fn largest_piece(size: u64) -> u64 {
    (size.saturating_mul(3).saturating_sub(1)) / 2
}
