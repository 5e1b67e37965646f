use std::fmt;
use std::str::FromStr;

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// The type of an array's elements; always little endian.
///
/// # Example
/// ```
/// use outercore_format::DType;
/// assert_eq!(DType::BF16.size(), 2);
/// assert_eq!(DType::BF16.name(), "bfloat16");
/// assert_eq!(DType::BF16.descr(), "<u2");
/// assert_eq!("float32".parse::<DType>().unwrap(), DType::F32);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DType {
    /// IEEE 754 single precision.
    #[serde(rename = "float32")]
    F32,
    /// IEEE 754 half precision.
    #[serde(rename = "float16")]
    F16,
    /// The upper half of a `float32`. NumPy has no such type: the `.npy` header says `<u2`, the
    /// manifest says `bfloat16`.
    #[serde(rename = "bfloat16")]
    BF16,
    /// IEEE 754 double precision.
    #[serde(rename = "float64")]
    F64,
    /// Signed, 8 bits.
    #[serde(rename = "int8")]
    I8,
    /// Signed, 16 bits.
    #[serde(rename = "int16")]
    I16,
    /// Signed, 32 bits.
    #[serde(rename = "int32")]
    I32,
    /// Signed, 64 bits.
    #[serde(rename = "int64")]
    I64,
    /// Unsigned, 8 bits.
    #[serde(rename = "uint8")]
    U8,
    /// Unsigned, 16 bits.
    #[serde(rename = "uint16")]
    U16,
    /// Unsigned, 32 bits.
    #[serde(rename = "uint32")]
    U32,
    /// Unsigned, 64 bits.
    #[serde(rename = "uint64")]
    U64,
    /// One byte, 0 or 1.
    #[serde(rename = "bool")]
    Bool,
}

impl DType {
    /// Every type, for tests and for messages that list them.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The name in the manifest, in messages and in NumPy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F64 => "float64",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::Bool => "bool",
        }
    }

    /// The type string in a `.npy` header.
    pub const fn descr(self) -> &'static str {
        match self {
            Self::F32 => "<f4",
            Self::F16 => "<f2",
            Self::BF16 | Self::U16 => "<u2",
            Self::F64 => "<f8",
            Self::I8 => "|i1",
            Self::I16 => "<i2",
            Self::I32 => "<i4",
            Self::I64 => "<i8",
            Self::U8 => "|u1",
            Self::U32 => "<u4",
            Self::U64 => "<u8",
            Self::Bool => "|b1",
        }
    }

    /// The type in the `.npy` header of this array: the same type, except `uint16` for `bfloat16`.
    pub const fn stored(self) -> Self {
        match self {
            Self::BF16 => Self::U16,
            other => other,
        }
    }

    /// Whether elements may be NaN.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// The type of a `.npy` type string.
    ///
    /// # Errors
    /// `Invalid`: big-endian numbers, structured types, strings, objects, complex numbers.
    pub fn from_descr(descr: &str) -> Result<Self> {
        let unordered = descr.trim_start_matches(['<', '>', '=', '|']);
        let known = Self::ALL
            .into_iter()
            .filter(|dtype| *dtype != Self::BF16)
            .find(|dtype| dtype.descr()[1..] == *unordered && descr.len() <= dtype.descr().len());
        let Some(dtype) = known else {
            return Err(Error::invalid(format!(
                "type `{}`, expected a number type",
                descr.escape_debug()
            ))
            .hint(
                "convert it in NumPy, such as np.save(path, np.load(path).astype('float32')); \
                   bfloat16 is stored as uint16",
            ));
        };
        if descr.starts_with('>') && dtype.size() > 1 {
            return Err(Error::invalid(format!("type `{descr}` is big endian"))
                .hint("convert it in NumPy: a.astype(a.dtype.newbyteorder('<'))"));
        }
        Ok(dtype)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| {
            Error::invalid(format!("type `{text}` is not known"))
                .hint(format!("one of {}", Self::ALL.map(Self::name).join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_type_strings_and_the_manifest_agree() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
            assert_eq!(DType::from_descr(dtype.descr()).unwrap(), dtype.stored());
            assert_eq!(serde_json::to_value(dtype).unwrap(), dtype.name());
            let digits = dtype.descr()[2..].parse::<usize>().unwrap();
            assert_eq!(digits, dtype.size());
        }
    }

    #[test]
    fn big_endian_and_unknown_types_are_refused() {
        for descr in [
            "", "<", ">f4", ">i8", "<f16", "<c8", "|O", "|S5", "<U3", "|V2", "<V2", "<<f4", "f44",
            "<M8[ns]",
        ] {
            let error = DType::from_descr(descr).unwrap_err();
            assert!(error.to_string().contains("hint:"), "{descr}: {error}");
        }
        assert_eq!(DType::from_descr(">i1").unwrap(), DType::I8, "one byte has no order");
        assert_eq!(DType::from_descr("=f4").unwrap(), DType::F32);
        assert_eq!(DType::from_descr("f4").unwrap(), DType::F32);
    }
}
