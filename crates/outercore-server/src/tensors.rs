//! Values of tensors as bytes, as gRPC and the binary extension of HTTP have them: row-major,
//! little-endian.

use serde_json::{Value, json};

use crate::refusal::Refusal;

/// Calls `$each!` with the type of a datatype's elements; evaluates to `$other` for another one.
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

/// Whether a value of JSON is one of a datatype: whole numbers within its range, any number for
/// floats.
pub fn is_of(datatype: &str, value: &Value) -> bool {
    macro_rules! whole {
        ($type:ty) => {{
            let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
            number.is_some_and(|number| <$type>::try_from(number).is_ok())
        }};
    }
    match datatype {
        "BOOL" => value.is_boolean(),
        "FP16" | "FP32" | "FP64" => value.is_number(),
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

/// The values in the bytes of the tensor `name`.
///
/// # Errors
/// Bytes that are no whole number of elements; a datatype that has none of a fixed size here; a
/// value that is not finite, which JSON does not have.
pub fn decode(name: &str, datatype: &str, bytes: &[u8]) -> Result<Vec<Value>, Refusal> {
    let name: String = name.chars().take(80).collect();
    macro_rules! values {
        ($type:ty) => {{
            let (elements, rest) = bytes.as_chunks::<{ size_of::<$type>() }>();
            if !rest.is_empty() {
                let text = format!("{name}: {} bytes, which are no {datatype}", bytes.len());
                return Err(Refusal::wrong(text));
            }
            elements.iter().map(|element| json!(<$type>::from_le_bytes(*element))).collect()
        }};
    }
    let values: Vec<Value> = by_datatype!(datatype, values, {
        let datatype: String = datatype.chars().take(80).collect();
        let text = format!("{name}: datatype {datatype} cannot be given as bytes");
        return Err(Refusal::wrong(text));
    });
    if values.iter().any(Value::is_null) {
        return Err(Refusal::wrong(format!("{name}: expected finite numbers")));
    }
    Ok(values)
}

/// The bytes of values, of which each fits the datatype.
///
/// # Errors
/// Others.
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
    use super::*;

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
            ("FP32", json!([0.1_f32, f32::MIN_POSITIVE])),
            ("FP64", json!([0.1_f64, -2.5e300])),
        ] {
            let values = values.as_array().unwrap();
            let bytes = encode(datatype, values).unwrap();
            assert_eq!(&decode("x", datatype, &bytes).unwrap(), values, "{datatype}");
        }
    }

    #[test]
    fn bytes_that_are_no_values_are_refused() {
        let text =
            |datatype, bytes: &[u8]| format!("{:?}", decode("x", datatype, bytes).unwrap_err());
        assert!(text("INT64", &[0; 9]).contains("x: 9 bytes, which are no INT64"));
        assert!(text("BYTES", &[0; 8]).contains("datatype BYTES cannot be given as bytes"));
        assert!(text("FP32", &f32::NAN.to_le_bytes()).contains("expected finite numbers"));
    }
}
