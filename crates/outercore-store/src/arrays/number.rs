//! Reads elements of any type as numbers, and converts them to the types of stored features.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use outercore_format::DType;

/// One element, widened without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

/// The element in `bytes`, whose length is the size of the type.
pub(crate) fn number(dtype: DType, bytes: &[u8]) -> Number {
    let int = |value: i64| Number::Int(i128::from(value));
    match dtype {
        DType::F32 => Number::Float(f64::from(f32::from_le_bytes(exactly(bytes)))),
        DType::F16 => Number::Float(f16::from_le_bytes(exactly(bytes)).to_f64()),
        DType::BF16 => Number::Float(bf16::from_le_bytes(exactly(bytes)).to_f64()),
        DType::F64 => Number::Float(f64::from_le_bytes(exactly(bytes))),
        DType::I8 => int(i64::from(i8::from_le_bytes(exactly(bytes)))),
        DType::I16 => int(i64::from(i16::from_le_bytes(exactly(bytes)))),
        DType::I32 => int(i64::from(i32::from_le_bytes(exactly(bytes)))),
        DType::I64 => int(i64::from_le_bytes(exactly(bytes))),
        DType::U8 => int(i64::from(bytes[0])),
        DType::U16 => int(i64::from(u16::from_le_bytes(exactly(bytes)))),
        DType::U32 => int(i64::from(u32::from_le_bytes(exactly(bytes)))),
        DType::U64 => Number::Int(i128::from(u64::from_le_bytes(exactly(bytes)))),
        DType::Bool => int(i64::from(bytes[0] != 0)),
    }
}

/// The element in `bytes` as a float; integers beyond 2^53 are rounded.
pub(crate) fn float(dtype: DType, bytes: &[u8]) -> f64 {
    match number(dtype, bytes) {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// Appends the elements of `bytes`, each as the `float32` nearest to it.
///
/// # Example
/// ```
/// use outercore_format::DType;
/// use outercore_store::arrays::append_f32;
/// let mut numbers = Vec::new();
/// append_f32(DType::I16, bytemuck::cast_slice(&[3i16, -1]), &mut numbers);
/// assert_eq!(numbers, [3.0, -1.0]);
/// ```
///
/// # Panics
/// If `bytes` is not a whole number of elements, or not aligned for the type.
pub fn append_f32(dtype: DType, bytes: &[u8], out: &mut Vec<f32>) {
    macro_rules! convert {
        ($type:ty, $to:expr) => {
            out.extend(bytemuck::cast_slice::<u8, $type>(bytes).iter().map($to))
        };
    }
    match dtype {
        DType::F32 => convert!(f32, |x| *x),
        DType::F64 => convert!(f64, |x| *x as f32),
        DType::F16 => convert!(f16, |x| x.to_f32()),
        DType::BF16 => convert!(bf16, |x| x.to_f32()),
        DType::I8 => convert!(i8, |x| f32::from(*x)),
        DType::I16 => convert!(i16, |x| f32::from(*x)),
        DType::I32 => convert!(i32, |x| *x as f32),
        DType::I64 => convert!(i64, |x| *x as f32),
        DType::U8 | DType::Bool => convert!(u8, |x| f32::from(*x)),
        DType::U16 => convert!(u16, |x| f32::from(*x)),
        DType::U32 => convert!(u32, |x| *x as f32),
        DType::U64 => convert!(u64, |x| *x as f32),
    }
}

/// Appends the elements of `bytes` as `float64`. Stops at the first integer beyond 2^53 that
/// `float64` cannot represent, and returns it.
///
/// # Example
/// ```
/// use outercore_format::DType;
/// use outercore_store::arrays::append_f64;
/// let mut numbers = Vec::new();
/// let beyond = append_f64(DType::I64, bytemuck::cast_slice(&[3i64, (1 << 53) + 1]), &mut numbers);
/// assert_eq!((numbers, beyond), (vec![3.0], Some((1 << 53) + 1)));
/// ```
///
/// # Panics
/// If `bytes` is not a whole number of elements, or not aligned for the type.
pub fn append_f64(dtype: DType, bytes: &[u8], out: &mut Vec<f64>) -> Option<i128> {
    macro_rules! convert {
        ($type:ty, $to:expr) => {
            out.extend(bytemuck::cast_slice::<u8, $type>(bytes).iter().map($to))
        };
    }
    macro_rules! convert_wide {
        ($type:ty) => {
            for &value in bytemuck::cast_slice::<u8, $type>(bytes) {
                if value as f64 as i128 != i128::from(value) {
                    return Some(i128::from(value));
                }
                out.push(value as f64);
            }
        };
    }
    match dtype {
        DType::F64 => convert!(f64, |x| *x),
        DType::F32 => convert!(f32, |x| f64::from(*x)),
        DType::F16 => convert!(f16, |x| x.to_f64()),
        DType::BF16 => convert!(bf16, |x| x.to_f64()),
        DType::I8 => convert!(i8, |x| f64::from(*x)),
        DType::I16 => convert!(i16, |x| f64::from(*x)),
        DType::I32 => convert!(i32, |x| f64::from(*x)),
        DType::U8 | DType::Bool => convert!(u8, |x| f64::from(*x)),
        DType::U16 => convert!(u16, |x| f64::from(*x)),
        DType::U32 => convert!(u32, |x| f64::from(*x)),
        DType::I64 => convert_wide!(i64),
        DType::U64 => convert_wide!(u64),
    }
    None
}

/// Whether any element is NaN or infinite.
pub(crate) fn has_non_finite(dtype: DType, bytes: &[u8]) -> bool {
    // Without an early exit the loops vectorise. An exit would hardly ever be taken.
    match dtype {
        DType::F32 => any_masked(bytes, |b| u32::from_le_bytes(b) & 0x7F80_0000 == 0x7F80_0000),
        DType::F16 => any_masked(bytes, |b| u16::from_le_bytes(b) & 0x7C00 == 0x7C00),
        DType::BF16 => any_masked(bytes, |b| u16::from_le_bytes(b) & 0x7F80 == 0x7F80),
        DType::F64 => any_masked(bytes, |b| !f64::from_le_bytes(b).is_finite()),
        _ => false,
    }
}

/// Appends the elements of `bytes`, converted to the float type `to`, rounding to nearest even.
pub(crate) fn convert(from: DType, to: DType, bytes: &[u8], out: &mut Vec<u8>) {
    let elements = bytes.len() / from.size();
    out.reserve(elements * to.size());
    match (from, to) {
        (DType::F32, DType::F16) => {
            let floats = singles(bytes);
            let mut halves = vec![f16::ZERO; floats.len()];
            halves.convert_from_f32_slice(&floats);
            out.extend_from_slice(bytemuck::cast_slice(&halves));
        }
        (DType::F32, DType::BF16) => {
            let floats = singles(bytes);
            let mut halves = vec![bf16::ZERO; floats.len()];
            halves.convert_from_f32_slice(&floats);
            out.extend_from_slice(bytemuck::cast_slice(&halves));
        }
        (_, DType::F16) => {
            each(from, bytes, |value| out.extend(f16::from_f64(value).to_le_bytes()))
        }
        (_, DType::BF16) => {
            each(from, bytes, |value| out.extend(bf16::from_f64(value).to_le_bytes()));
        }
        (_, DType::F32) => each(from, bytes, |value| out.extend((value as f32).to_le_bytes())),
        (_, DType::F64) => each(from, bytes, |value| out.extend(value.to_le_bytes())),
        (_, other) => unreachable!("no conversion to {other} is planned"),
    }
}

fn singles(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(exactly(b))).collect()
}

/// Calls `take` with every element. The type is matched once, not for every element.
fn each(dtype: DType, bytes: &[u8], mut take: impl FnMut(f64)) {
    macro_rules! all {
        ($decode:expr) => {
            bytes.chunks_exact(dtype.size()).for_each(|element| take($decode(exactly(element))))
        };
    }
    match dtype {
        DType::F32 => all!(|b| f64::from(f32::from_le_bytes(b))),
        DType::F16 => all!(|b| f16::from_le_bytes(b).to_f64()),
        DType::BF16 => all!(|b| bf16::from_le_bytes(b).to_f64()),
        DType::F64 => all!(f64::from_le_bytes),
        DType::I64 => all!(|b| i64::from_le_bytes(b) as f64),
        DType::U64 => all!(|b| u64::from_le_bytes(b) as f64),
        _ => bytes.chunks_exact(dtype.size()).for_each(|element| take(float(dtype, element))),
    }
}

fn any_masked<const N: usize>(bytes: &[u8], test: impl Fn([u8; N]) -> bool) -> bool {
    bytes.chunks_exact(N).fold(false, |found, element| found | test(exactly(element)))
}

fn exactly<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("an element of its type's size")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_decodes_its_extremes() {
        let int = |dtype, bytes: &[u8]| match number(dtype, bytes) {
            Number::Int(value) => value,
            Number::Float(value) => panic!("{value}"),
        };
        assert_eq!(int(DType::I8, &[0x80]), -128);
        assert_eq!(int(DType::U64, &[0xFF; 8]), i128::from(u64::MAX));
        assert_eq!(int(DType::I64, &i64::MIN.to_le_bytes()), i128::from(i64::MIN));
        assert_eq!(int(DType::U16, &[1, 2]), 513);
        assert_eq!(int(DType::Bool, &[1]), 1);
        assert_eq!(float(DType::BF16, &bf16::from_f32(-2.5).to_le_bytes()), -2.5);
        assert_eq!(float(DType::F16, &f16::from_f32(0.5).to_le_bytes()), 0.5);
        assert_eq!(float(DType::I16, &(-3i16).to_le_bytes()), -3.0);
    }

    #[test]
    fn conversions_agree_with_the_cast_of_each_element() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) * 1.237e-3).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let mut out = Vec::new();
        convert(DType::F32, DType::F16, bytes, &mut out);
        let expected: Vec<u8> =
            values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
        assert_eq!(out, expected);
        out.clear();
        convert(DType::F32, DType::BF16, bytes, &mut out);
        let expected: Vec<u8> =
            values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
        assert_eq!(out, expected);
        out.clear();
        convert(DType::I16, DType::F32, &[0xFF, 0xFF, 2, 0], &mut out);
        assert_eq!(out, [(-1f32).to_le_bytes(), 2f32.to_le_bytes()].concat());
    }

    #[test]
    fn a_single_value_that_is_not_finite_is_found_in_every_float_type() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let values: Vec<u8> = (0..100).flat_map(|i| f64::from(i).to_le_bytes()).collect();
                let mut bytes = Vec::new();
                convert(DType::F64, dtype, &values, &mut bytes);
                assert!(!has_non_finite(dtype, &bytes));
                convert(DType::F64, dtype, &bad.to_le_bytes(), &mut bytes);
                assert!(has_non_finite(dtype, &bytes), "{dtype} {bad}");
            }
        }
        assert!(has_non_finite(DType::F64, &f64::NAN.to_le_bytes()));
        assert!(!has_non_finite(DType::I32, &[0xFF; 4]));
    }
}
