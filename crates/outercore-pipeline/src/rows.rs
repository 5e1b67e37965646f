//! Row slots in memory: the fetch stage writes them, and threads that assemble batches read them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use outercore_core::{Bytes, Result};
use outercore_format::{DType, widen};

/// A fixed number of row slots in memory that several threads share.
///
/// Slots consist of relaxed atomic words. The fetch stage can therefore fill some slots while
/// batches are assembled from others, without a lock and without `unsafe`. The cache guarantees
/// that no slot is read while it is filled (a slot is pinned from admission to release). The
/// channel between the stages orders the writes before the reads.
#[derive(Debug)]
pub struct RowArena {
    words: Vec<AtomicU64>,
    words_per_slot: usize,
}

impl RowArena {
    /// Memory of one slot for a row of `row_bytes` bytes.
    pub fn slot_bytes(row_bytes: usize) -> Bytes {
        Bytes((row_bytes.div_ceil(8) * 8) as u64)
    }

    /// Reserves `slots` rows of at most `slot_bytes`. The system provides the pages on first use.
    pub fn new(slots: usize, slot_bytes: Bytes) -> Self {
        let words_per_slot = slot_bytes.as_usize() / 8;
        Self { words: bytemuck::allocation::zeroed_vec(slots * words_per_slot), words_per_slot }
    }

    /// Stores a row's bytes in `slot`.
    ///
    /// # Panics
    /// If `row` is longer than a slot.
    pub fn store(&self, slot: u32, row: &[u8]) {
        let words = self.slot(slot);
        assert!(row.len() <= words.len() * 8, "a row longer than its slot");
        let (whole, rest) = row.as_chunks::<8>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[whole.len()].store(u64::from_le_bytes(last), Relaxed);
        }
    }

    /// Writes the row in `slot`, of elements of `dtype`, to `out` as `float32`. Values of `float64`
    /// are rounded to the nearest; all other types must be represented exactly.
    ///
    /// # Errors
    /// `Invalid`, naming the column: a whole number that `float32` cannot represent, or a number
    /// that would become infinite or 0.
    ///
    /// # Panics
    /// If `out` is longer than the row of a slot.
    pub fn load(&self, slot: u32, dtype: DType, out: &mut [f32]) -> Result<()> {
        let words = (out.len() * dtype.size()).div_ceil(8);
        widen(dtype, &self.slot(slot)[..words], out)
    }

    fn slot(&self, slot: u32) -> &[AtomicU64] {
        let start = slot as usize * self.words_per_slot;
        &self.words[start..start + self.words_per_slot]
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use outercore_format::words_of;

    use super::*;

    /// The row with these `bytes`, in the form of a batch.
    fn loaded(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>> {
        let width = bytes.len() / dtype.size();
        let arena = RowArena::new(3, RowArena::slot_bytes(bytes.len()));
        arena.store(1, bytes);
        let mut out = vec![f32::NAN; width];
        arena.load(2, dtype, &mut out)?;
        assert_eq!(out, vec![0.0; width], "a slot that nothing was stored in");
        arena.load(1, dtype, &mut out)?;
        let (mut words, mut again) = (Vec::new(), vec![f32::NAN; width]);
        words_of(bytes, &mut words);
        widen(dtype, &words, &mut again)?;
        assert!(out.iter().map(|v| v.to_bits()).eq(again.iter().map(|v| v.to_bits())));
        Ok(out)
    }

    fn little_endian<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
        bytemuck::cast_slice(values)
    }

    #[test]
    fn rows_of_every_width_and_type_come_back() {
        for width in [1usize, 2, 3, 4, 5, 7, 8, 9, 129] {
            let values: Vec<f32> = (0..width).map(|i| i as f32 - 1.5).collect();
            let whole: Vec<i64> = (0..width as i64).map(|i| i % 100 - 1).collect();
            let positive: Vec<u64> = (0..width as u64).map(|i| i % 100).collect();
            macro_rules! check {
                ($dtype:ident, $from:expr, $convert:expr) => {{
                    let stored: Vec<_> = $from.iter().map(|&v| $convert(v)).collect();
                    let expected: Vec<f32> = $from.iter().map(|&v| v as f32).collect();
                    let out = loaded(DType::$dtype, little_endian(&stored)).unwrap();
                    assert_eq!(out, expected, "{} width {width}", DType::$dtype);
                }};
            }
            check!(F32, values, |v: f32| v);
            check!(F16, values, f16::from_f32);
            check!(BF16, values, bf16::from_f32);
            check!(F64, values, f64::from);
            check!(I8, whole, |v| v as i8);
            check!(I16, whole, |v| v as i16);
            check!(I32, whole, |v| v as i32);
            check!(I64, whole, |v: i64| v);
            check!(U8, positive, |v| v as u8);
            check!(U16, positive, |v| v as u16);
            check!(U32, positive, |v| v as u32);
            check!(U64, positive, |v: u64| v);
            let flags: Vec<u64> = positive.iter().map(|v| v % 2).collect();
            check!(Bool, flags, |v| v as u8);
        }
    }

    #[test]
    fn a_number_that_float32_does_not_hold_is_refused_with_its_column() {
        let refused = |dtype, bytes: &[u8]| loaded(dtype, bytes).unwrap_err().to_string();
        let beyond = (1i64 << 24) + 1;
        assert_eq!(
            refused(DType::I64, little_endian(&[0, 1 << 24, beyond])).lines().next(),
            Some("column 2: 16777217 of type int64 does not fit float32")
        );
        for message in [
            refused(DType::I64, little_endian(&[0, i64::MAX])),
            refused(DType::U64, little_endian(&[0, u64::MAX])),
            refused(DType::I32, little_endian(&[0, -(beyond as i32)])),
            refused(DType::U32, little_endian(&[0, u32::MAX])),
            refused(DType::F64, little_endian(&[0.1, 1e300])),
            refused(DType::F64, little_endian(&[0.1, 1e-60])),
            refused(DType::F64, little_endian(&[0.1, beyond as f64])),
        ] {
            assert!(message.starts_with("column 1: "), "{message}");
        }
        let kept = loaded(DType::F64, little_endian(&[0.1, f64::INFINITY, -0.0])).unwrap();
        assert_eq!(kept, [0.1, f32::INFINITY, -0.0]);
        assert!(loaded(DType::F64, little_endian(&[f64::NAN])).unwrap()[0].is_nan());
    }
}
