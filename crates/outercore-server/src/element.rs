//! Numbers in the form that clients write, and in the form that arrays store.

use std::fmt;

use outercore_core::{Error, Result};
use outercore_format::DType;
use serde_json::Number;

use crate::refusal::cut;

/// A JSON value where a number is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Whole(i64),
    /// An integer beyond `i64`.
    Large(u64),
    /// A number with a point or an exponent.
    Real(f64),
    /// A string.
    Text(&'a str),
}

impl Element<'_> {
    /// The value as an integer.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Whole(value) => Some(value),
            _ => None,
        }
    }

    /// The value as an integer from 0.
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Self::Whole(value) => value.try_into().ok(),
            Self::Large(value) => Some(value),
            _ => None,
        }
    }

    /// The value as a float.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Whole(value) => Some(value as f64),
            Self::Large(value) => Some(value as f64),
            Self::Real(value) => Some(value),
            _ => None,
        }
    }
}

macro_rules! whole {
    ($($type:ty)+) => {
        $(impl From<$type> for Element<'_> {
            fn from(value: $type) -> Self {
                Self::Whole(value.into())
            }
        })+
    };
}

whole!(i8 i16 i32 i64 u8 u16 u32);

impl From<u64> for Element<'_> {
    fn from(value: u64) -> Self {
        value.try_into().map_or(Self::Large(value), Self::Whole)
    }
}

impl From<f32> for Element<'_> {
    fn from(value: f32) -> Self {
        Self::Real(value.into())
    }
}

impl From<f64> for Element<'_> {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<bool> for Element<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Writes the value as JSON.
impl fmt::Display for Element<'_> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => text.write_str("null"),
            Self::Bool(value) => value.fmt(text),
            Self::Whole(value) => value.fmt(text),
            Self::Large(value) => value.fmt(text),
            Self::Real(value) => match Number::from_f64(*value) {
                Some(number) => number.fmt(text),
                None => value.fmt(text),
            },
            Self::Text(value) => write!(text, "\"{value}\""),
        }
    }
}

/// Appends the bytes of a number in the format of `dtype`.
///
/// # Errors
/// `Invalid` if `dtype` cannot hold the value.
pub fn encode(value: Element<'_>, dtype: DType, row: &mut Vec<u8>) -> Result<()> {
    let does_not_fit =
        || Error::invalid(format!("{} is no value of type {dtype}", cut(&value.to_string())));
    macro_rules! whole {
        ($type:ty) => {{
            let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
            let number = number.and_then(|number| <$type>::try_from(number).ok());
            row.extend(number.ok_or_else(does_not_fit)?.to_le_bytes());
        }};
    }
    let real = || value.as_f64().ok_or_else(does_not_fit);
    // A decimal number is rounded to the nearest value of the type. It must not become infinite.
    let finite = |narrow: f64, bits: Vec<u8>| match narrow.is_finite() {
        true => Ok(bits),
        false => Err(does_not_fit()),
    };
    match dtype {
        DType::F64 => row.extend(real()?.to_le_bytes()),
        DType::F32 => {
            let narrow = real()? as f32;
            row.extend(finite(narrow.into(), narrow.to_le_bytes().to_vec())?);
        }
        DType::F16 => {
            let narrow = half::f16::from_f64(real()?);
            row.extend(finite(narrow.into(), narrow.to_le_bytes().to_vec())?);
        }
        DType::BF16 => {
            let narrow = half::bf16::from_f64(real()?);
            row.extend(finite(narrow.into(), narrow.to_le_bytes().to_vec())?);
        }
        DType::I8 => whole!(i8),
        DType::I16 => whole!(i16),
        DType::I32 => whole!(i32),
        DType::I64 => whole!(i64),
        DType::U8 => whole!(u8),
        DType::U16 => whole!(u16),
        DType::U32 => whole!(u32),
        DType::U64 => whole!(u64),
        DType::Bool => match value {
            Element::Bool(value) => row.push(u8::from(value)),
            _ => return Err(does_not_fit()),
        },
    }
    Ok(())
}
