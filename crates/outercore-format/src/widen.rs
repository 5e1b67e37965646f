//! Converts stored elements to the `float32` of batches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use half::{bf16, f16};
use outercore_core::{Error, Result};

use crate::DType;

/// Eight bytes of a row in memory, in little endian order.
pub trait Word {
    /// The bytes as a number.
    fn get(&self) -> u64;
}

impl Word for u64 {
    #[inline]
    fn get(&self) -> u64 {
        *self
    }
}

impl Word for AtomicU64 {
    #[inline]
    fn get(&self) -> u64 {
        self.load(Relaxed)
    }
}

/// The words of a row, the last one padded with zeros.
///
/// **Cost** overwrites `words`; allocates nothing if `words` has enough capacity.
pub fn words_of(row: &[u8], words: &mut Vec<u64>) {
    words.clear();
    words.extend(row.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }));
}

/// Writes the elements of a row as `float32`. Values of `float64` are rounded to the nearest; all
/// other types must be represented exactly.
///
/// # Errors
/// `Invalid`, naming the column: a whole number that `float32` cannot represent, or a number that
/// would become infinite or 0.
///
/// # Example
/// ```
/// use outercore_format::{DType, widen, words_of};
/// let mut words = Vec::new();
/// words_of(&[1, 255], &mut words);
/// let mut row = [0.0; 2];
/// widen(DType::I8, &words, &mut row)?;
/// assert_eq!(row, [1.0, -1.0]);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[inline]
pub fn widen<W: Word>(dtype: DType, words: &[W], out: &mut [f32]) -> Result<()> {
    match dtype {
        DType::F32 => unpack::<_, 2>(words, out, |word| {
            [f32::from_bits(word as u32), f32::from_bits((word >> 32) as u32)]
        }),
        DType::F16 => unpack::<_, 4>(words, out, |word| {
            parts16(word).map(|bits| f16::from_bits(bits).to_f32())
        }),
        DType::BF16 => unpack::<_, 4>(words, out, |word| {
            parts16(word).map(|bits| bf16::from_bits(bits).to_f32())
        }),
        DType::I16 => {
            unpack::<_, 4>(words, out, |word| parts16(word).map(|b| f32::from(b as i16)));
        }
        DType::U16 => unpack::<_, 4>(words, out, |word| parts16(word).map(f32::from)),
        DType::I8 => {
            unpack::<_, 8>(words, out, |word| word.to_le_bytes().map(|b| f32::from(b as i8)))
        }
        DType::U8 => unpack::<_, 8>(words, out, |word| word.to_le_bytes().map(f32::from)),
        DType::Bool => unpack::<_, 8>(words, out, |word| {
            word.to_le_bytes().map(|b| f32::from(u8::from(b != 0)))
        }),
        DType::I32 => {
            return narrow::<_, 2, i32>(dtype, words, out, |w| [w as i32, (w >> 32) as i32]);
        }
        DType::U32 => {
            return narrow::<_, 2, u32>(dtype, words, out, |w| [w as u32, (w >> 32) as u32]);
        }
        DType::I64 => return narrow::<_, 1, i64>(dtype, words, out, |w| [w as i64]),
        DType::U64 => return narrow::<_, 1, u64>(dtype, words, out, |w| [w]),
        DType::F64 => return narrow::<_, 1, f64>(dtype, words, out, |w| [f64::from_bits(w)]),
    }
    Ok(())
}

/// `unpack` for types that `float32` cannot always represent.
fn narrow<W: Word, const PER_WORD: usize, T: Narrow>(
    dtype: DType,
    words: &[W],
    out: &mut [f32],
    split: impl Fn(u64) -> [T; PER_WORD],
) -> Result<()> {
    let mut fits = true;
    let places = out.chunks_mut(PER_WORD).zip(words).enumerate();
    let mut first = None;
    for (place, (values, word)) in places {
        for (column, (value, number)) in values.iter_mut().zip(split(word.get())).enumerate() {
            *value = number.nearest();
            if fits && !number.fits() {
                fits = false;
                first = Some((place * PER_WORD + column, number));
            }
        }
    }
    let Some((column, number)) = first else { return Ok(()) };
    Err(Error::invalid(format!(
        "column {column}: {number:?} of type {} does not fit float32",
        dtype
    ))
    .hint("scale the features and import them again"))
}

#[inline]
fn unpack<W: Word, const PER_WORD: usize>(
    words: &[W],
    out: &mut [f32],
    convert: impl Fn(u64) -> [f32; PER_WORD],
) {
    let (whole, rest) = out.as_chunks_mut::<PER_WORD>();
    for (values, word) in whole.iter_mut().zip(words) {
        *values = convert(word.get());
    }
    if let Some(last) = words.last()
        && !rest.is_empty()
    {
        rest.copy_from_slice(&convert(last.get())[..rest.len()]);
    }
}

/// A number that `float32` may not represent exactly.
trait Narrow: Copy + std::fmt::Debug {
    /// The nearest `float32`.
    fn nearest(self) -> f32;

    /// Whether the result is the same whole number, or a rounded fraction that is neither infinite
    /// nor 0.
    fn fits(self) -> bool;
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Narrow for $type {
            fn nearest(self) -> f32 {
                self as f32
            }

            fn fits(self) -> bool {
                self as f32 as i128 == i128::from(self)
            }
        }
    )*};
}

whole_numbers!(i32, u32, i64, u64);

impl Narrow for f64 {
    fn nearest(self) -> f32 {
        self as f32
    }

    fn fits(self) -> bool {
        let rounded = self as f32;
        // Beyond 2^53 every float is a whole number, so being whole says nothing about the value.
        let may_round = self.fract() != 0.0 || self.abs() >= (1u64 << 53) as f64;
        rounded.is_finite() == self.is_finite()
            && (rounded == 0.0) == (self == 0.0)
            && (may_round || !self.is_finite() || f64::from(rounded) == self)
    }
}

fn parts16(word: u64) -> [u16; 4] {
    [word as u16, (word >> 16) as u16, (word >> 32) as u16, (word >> 48) as u16]
}
