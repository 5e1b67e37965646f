//! Tensor values as bytes, in the format of gRPC and of the binary extension of HTTP: row-major,
//! little-endian.

use serde_json::Value;

use crate::element::Element;
use crate::messages::InferTensorContents;
use crate::refusal::{Refusal, cut};

/// Calls `$each!` with the element type of a datatype; evaluates to `$other` for an unknown
/// datatype.
macro_rules! by_datatype {
    ($datatype:expr, $each:ident, $other:expr) => {
        match $datatype {
            "INT8" => $each!(i8),
            "INT16" => $each!(i16),
            "INT32" => $each!(i32),
            "INT64" => $each!(i64),
            "UINT8" => $each!(u8),
            "UINT16" => $each!(u16),
            "UINT32" => $each!(u32),
            "UINT64" => $each!(u64),
            "FP32" => $each!(f32),
            "FP64" => $each!(f64),
            _ => $other,
        }
    };
}

/// Whether a value fits a datatype: integers within its range, any number for floats.
pub fn is_of(datatype: &str, value: Element<'_>) -> bool {
    macro_rules! whole {
        ($type:ty) => {{
            let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
            number.is_some_and(|number| <$type>::try_from(number).is_ok())
        }};
    }
    match datatype {
        "BOOL" => matches!(value, Element::Bool(_)),
        "FP16" | "FP32" | "FP64" => value.as_f64().is_some(),
        "INT8" => whole!(i8),
        "INT16" => whole!(i16),
        "INT32" => whole!(i32),
        "INT64" => whole!(i64),
        "UINT8" => whole!(u8),
        "UINT16" => whole!(u16),
        "UINT32" => whole!(u32),
        "UINT64" => whole!(u64),
        _ => false,
    }
}

/// Calls `take` with each value in the bytes of the tensor `name`.
///
/// # Errors
/// Errors of `take`. Bytes that are not a multiple of the element size; a datatype without a fixed
/// size; a value that is not finite, because JSON has no such value.
pub fn each(
    name: &str,
    datatype: &str,
    bytes: &[u8],
    mut take: impl FnMut(Element<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    macro_rules! values {
        ($type:ty) => {{
            let (elements, rest) = bytes.as_chunks::<{ size_of::<$type>() }>();
            if !rest.is_empty() {
                let (name, length) = (cut(name), bytes.len());
                let text = format!("{name}: {length} bytes, which are no {datatype}");
                return Err(Refusal::wrong(text));
            }
            elements.iter().try_for_each(|&element| {
                take(finite(<$type>::from_le_bytes(element).into(), name)?)
            })
        }};
    }
    if datatype == "BOOL" {
        return bytes.iter().try_for_each(|&byte| match byte {
            0 | 1 => take(Element::Bool(byte == 1)),
            _ => Err(Refusal::wrong(format!("{}: the byte {byte} is no BOOL", cut(name)))),
        });
    }
    by_datatype!(datatype, values, {
        let (name, datatype) = (cut(name), cut(datatype));
        let text = format!("{name}: datatype {datatype} cannot be given as bytes");
        Err(Refusal::wrong(text))
    })
}

/// Calls `take` with each value of a message, read from the field of the datatype.
///
/// # Errors
/// Errors of `take`; values in another field, because values in two fields have no order; values
/// that are not finite.
pub fn each_of_message(
    name: &str,
    datatype: &str,
    all: &InferTensorContents,
    mut take: impl FnMut(Element<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let own = match datatype {
        "BOOL" => "bool_contents",
        "INT8" | "INT16" | "INT32" => "int_contents",
        "INT64" => "int64_contents",
        "UINT8" | "UINT16" | "UINT32" => "uint_contents",
        "UINT64" => "uint64_contents",
        "FP32" => "fp32_contents",
        "FP64" => "fp64_contents",
        _ => {
            let (name, datatype) = (cut(name), cut(datatype));
            let text = format!("{name}: datatype {datatype} cannot be given as contents");
            return Err(Refusal::wrong(text));
        }
    };
    let require_own = |field: &str, is_empty: bool| match field == own || is_empty {
        true => Ok(()),
        false => Err(Refusal::wrong(format!(
            "{}: values in {field}, expected {own} for {datatype}",
            cut(name)
        ))),
    };
    require_own("bytes_contents", all.bytes_contents.is_empty())?;
    macro_rules! values {
        ($($field:ident),+) => {
            $(
                require_own(stringify!($field), all.$field.is_empty())?;
                all.$field.iter().try_for_each(|&value| take(finite(value.into(), name)?))?;
            )+
        };
    }
    values!(bool_contents, int_contents, int64_contents, uint_contents, uint64_contents);
    values!(fp32_contents, fp64_contents);
    Ok(())
}

fn finite<'a>(element: Element<'a>, name: &str) -> Result<Element<'a>, Refusal> {
    match element {
        Element::Real(value) if !value.is_finite() => {
            Err(Refusal::wrong(format!("{}: expected finite numbers", cut(name))))
        }
        element => Ok(element),
    }
}

/// Encodes values as bytes. Each value must fit the datatype.
///
/// # Errors
/// A value does not fit.
pub fn encode(datatype: &str, values: &[Value]) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    for value in values {
        macro_rules! append {
            ($type:ty) => {{
                let number: Option<$type> = serde_json::from_value(value.clone()).ok();
                bytes.extend(number.ok_or_else(Refusal::failed)?.to_le_bytes());
            }};
        }
        by_datatype!(datatype, append, return Err(Refusal::failed()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Decodes bytes to JSON values.
    fn decode(datatype: &str, bytes: &[u8]) -> Result<Vec<String>, Refusal> {
        let mut found = Vec::new();
        each("x", datatype, bytes, |element| {
            found.push(element.to_string());
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn values_come_back_from_their_bytes() {
        for (datatype, values) in [
            ("INT8", json!([-128, 127])),
            ("INT16", json!([-300, 300])),
            ("INT32", json!([-70_000, 70_000])),
            ("INT64", json!([i64::MIN, i64::MAX])),
            ("UINT8", json!([0, 255])),
            ("UINT16", json!([65_535])),
            ("UINT32", json!([4_294_967_295_u32])),
            ("UINT64", json!([u64::MAX])),
            ("FP32", json!([0.1_f32, -1.5_f32])),
            ("FP64", json!([0.1_f64, -2.5e300])),
        ] {
            let values = values.as_array().unwrap();
            let bytes = encode(datatype, values).unwrap();
            let expected: Vec<String> = values.iter().map(Value::to_string).collect();
            assert_eq!(decode(datatype, &bytes).unwrap(), expected, "{datatype}");
        }
    }

    #[test]
    fn truth_values_are_bytes_of_0_and_1() {
        assert_eq!(decode("BOOL", &[0, 1, 1]).unwrap(), ["false", "true", "true"]);
    }

    #[test]
    fn bytes_that_are_no_values_are_refused() {
        let text = |datatype, bytes: &[u8]| format!("{:?}", decode(datatype, bytes).unwrap_err());
        assert!(text("INT64", &[0; 9]).contains("x: 9 bytes, which are no INT64"));
        assert!(text("BOOL", &[1, 2]).contains("x: the byte 2 is no BOOL"));
        assert!(text("BYTES", &[0; 8]).contains("datatype BYTES cannot be given as bytes"));
        assert!(text("FP32", &f32::NAN.to_le_bytes()).contains("expected finite numbers"));
    }
}
