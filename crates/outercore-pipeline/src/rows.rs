//! Row slots in memory: written by the fetch stage, read by whoever assembles a batch.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use half::{bf16, f16};
use outercore_core::{Bytes, Error, Result};
use outercore_format::DType;

/// A fixed number of row slots in memory that several threads share.
///
/// Slots are words of relaxed atomics, so that the fetch stage can fill some slots while batches
/// are assembled from others without a lock and without `unsafe`; that nobody reads a slot while
/// it is being filled is the cache's contract (a slot is pinned from admission to release), and the
/// channel between the stages orders the writes before the reads.
#[derive(Debug)]
pub struct RowArena {
    words: Vec<AtomicU64>,
    words_per_row: usize,
    row_bytes: usize,
    width: usize,
    dtype: DType,
}

impl RowArena {
    /// Memory of one slot of a row of `width` elements.
    pub fn slot_bytes(dtype: DType, width: usize) -> Bytes {
        Bytes(((dtype.size() * width).div_ceil(8) * 8) as u64)
    }

    /// Room for `slots` rows of `width` elements; the pages are taken from the system on first use.
    ///
    /// # Errors
    /// `Unsupported` for a type that is not delivered as `float32`.
    pub fn new(slots: usize, dtype: DType, width: usize) -> Result<Self> {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Error::new(
                outercore_core::ErrorKind::Unsupported,
                format!("features of type {dtype}, expected float32, float16 or bfloat16"),
            )
            .hint("import them with --feature-dtype float32"));
        }
        let words_per_row = Self::slot_bytes(dtype, width).as_usize() / 8;
        Ok(Self {
            words: bytemuck::allocation::zeroed_vec(slots * words_per_row),
            words_per_row,
            row_bytes: dtype.size() * width,
            width,
            dtype,
        })
    }

    /// Elements per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Stores a row's bytes in `slot`.
    ///
    /// # Panics
    /// If `row` is not one row long.
    pub fn store(&self, slot: u32, row: &[u8]) {
        assert_eq!(row.len(), self.row_bytes, "a row of another size");
        let words = self.slot(slot);
        let (whole, rest) = row.as_chunks::<8>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            words[self.words_per_row - 1].store(u64::from_le_bytes(last), Relaxed);
        }
    }

    /// Writes the row in `slot` to `out` as `float32`.
    ///
    /// # Panics
    /// If `out` is not one row long.
    pub fn load(&self, slot: u32, out: &mut [f32]) {
        assert_eq!(out.len(), self.width, "a row of another width");
        let words = self.slot(slot);
        match self.dtype {
            DType::F32 => Self::unpack::<2>(words, out, |word| {
                [f32::from_bits(word as u32), f32::from_bits((word >> 32) as u32)]
            }),
            DType::F16 => Self::unpack::<4>(words, out, |word| {
                bits16(word).map(|bits| f16::from_bits(bits).to_f32())
            }),
            _ => Self::unpack::<4>(words, out, |word| {
                bits16(word).map(|bits| bf16::from_bits(bits).to_f32())
            }),
        }
    }

    fn slot(&self, slot: u32) -> &[AtomicU64] {
        let start = slot as usize * self.words_per_row;
        &self.words[start..start + self.words_per_row]
    }

    #[inline]
    fn unpack<const PER_WORD: usize>(
        words: &[AtomicU64],
        out: &mut [f32],
        convert: impl Fn(u64) -> [f32; PER_WORD],
    ) {
        let (whole, rest) = out.as_chunks_mut::<PER_WORD>();
        for (values, word) in whole.iter_mut().zip(words) {
            *values = convert(word.load(Relaxed));
        }
        if let Some(last) = words.last()
            && !rest.is_empty()
        {
            rest.copy_from_slice(&convert(last.load(Relaxed))[..rest.len()]);
        }
    }
}

fn bits16(word: u64) -> [u16; 4] {
    [word as u16, (word >> 16) as u16, (word >> 32) as u16, (word >> 48) as u16]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_width_and_type_come_back() {
        for width in [1usize, 2, 3, 4, 5, 7, 8, 129] {
            let values: Vec<f32> = (0..width).map(|i| i as f32 - 1.5).collect();
            let bytes = |dtype| -> Vec<u8> {
                match dtype {
                    DType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
                    DType::F16 => {
                        values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect()
                    }
                    _ => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
                }
            };
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let arena = RowArena::new(3, dtype, width).unwrap();
                arena.store(1, &bytes(dtype));
                let mut out = vec![f32::NAN; width];
                arena.load(1, &mut out);
                assert_eq!(out, values, "{dtype} width {width}");
                arena.load(2, &mut out);
                assert_eq!(out, vec![0.0; width]);
            }
        }
    }

    #[test]
    fn integer_features_are_refused_with_a_hint() {
        let error = RowArena::new(1, DType::I64, 4).unwrap_err();
        assert!(error.to_string().contains("--feature-dtype"), "{error}");
    }
}
