//! Memory of a gRPC message after decoding. An empty tensor takes 2 bytes on the wire but several
//! hundred in memory, and the decoder only limits the length of the message.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::refusal::Refusal;

/// Bytes of a tensor or an output, of a parameter and of a string, in addition to their contents.
const A_TENSOR: usize = 768;
const A_PARAMETER: usize = 256;
const A_STRING: usize = 64;

/// Most bytes of a number.
const A_NUMBER: usize = 8;

/// Upper bound of the memory of a `ModelInferRequest`.
///
/// # Errors
/// The bytes are not a message.
pub fn size_of_infer(message: &[u8]) -> Result<usize, Refusal> {
    sum(message, |field| match field.tag {
        4 => Ok(A_PARAMETER + field.length()),
        5 => Ok(A_TENSOR + sum(field.bytes(), size_in_tensor)?),
        6 => Ok(A_TENSOR + sum(field.bytes(), |field| Ok(A_PARAMETER + field.length()))?),
        _ => Ok(A_STRING + field.length()),
    })
}

/// Memory of one field of a tensor.
fn size_in_tensor(field: &Field<'_>) -> Result<usize, Refusal> {
    match field.tag {
        3 => Ok(A_NUMBER * field.length().max(1)),
        4 => Ok(A_PARAMETER + field.length()),
        5 => sum(field.bytes(), size_in_contents),
        _ => Ok(A_STRING + field.length()),
    }
}

/// Memory of one field of a tensor's contents. An integer takes at least one byte on the wire.
fn size_in_contents(field: &Field<'_>) -> Result<usize, Refusal> {
    Ok(match (field.tag, field.bytes) {
        (2..=5, Some(packed)) => A_NUMBER * packed.len(),
        (1 | 6 | 7, Some(packed)) => packed.len(),
        (_, Some(bytes)) => A_STRING + bytes.len(),
        (_, None) => A_NUMBER,
    })
}

/// A field of a message.
struct Field<'a> {
    tag: u32,
    /// A string, a message or packed numbers; `None` for a single number.
    bytes: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        self.bytes.unwrap_or_default()
    }

    fn length(&self) -> usize {
        self.bytes().len()
    }
}

/// Sums the memory of all fields of a message.
fn sum(
    mut message: &[u8],
    size: impl Fn(&Field<'_>) -> Result<usize, Refusal>,
) -> Result<usize, Refusal> {
    let wrong = |_| Refusal::wrong("the message is no inference request");
    let mut total = 0;
    while !message.is_empty() {
        let (tag, wire) = decode_key(&mut message).map_err(wrong)?;
        let bytes = if wire == WireType::LengthDelimited {
            let length = decode_varint(&mut message).map_err(wrong)?;
            let split = usize::try_from(length).ok().and_then(|end| message.split_at_checked(end));
            let cut_off = || Refusal::wrong("the message is cut off");
            let (bytes, rest) = split.ok_or_else(cut_off)?;
            message = rest;
            Some(bytes)
        } else {
            skip_field(wire, tag, &mut message, DecodeContext::default()).map_err(wrong)?;
            None
        };
        total += size(&Field { tag, bytes })?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
    use crate::messages::{InferTensorContents, ModelInferRequest};

    fn size(message: &ModelInferRequest) -> usize {
        size_of_infer(&message.encode_to_vec()).unwrap()
    }

    #[test]
    fn what_a_message_takes_is_known_before_it_is_decoded() {
        let tensors = vec![InferInputTensor::default(); 1000];
        let outputs = vec![InferRequestedOutputTensor::default(); 1000];
        let of_tensor = size_of::<InferInputTensor>() + size_of::<InferRequestedOutputTensor>();
        let message = ModelInferRequest { inputs: tensors, outputs, ..Default::default() };
        assert!(size(&message) >= 1000 * of_tensor, "{}", size(&message));

        let int64_contents = vec![1; 1000];
        let contents = InferTensorContents { int64_contents, ..Default::default() };
        let input = InferInputTensor {
            contents: Some(contents),
            shape: vec![0; 500],
            ..Default::default()
        };
        let message = ModelInferRequest { inputs: vec![input], ..Default::default() };
        assert!((12_000..14_000).contains(&size(&message)), "{}", size(&message));

        let raw_input_contents = vec![vec![0; 100]; 2];
        let message = ModelInferRequest { raw_input_contents, ..Default::default() };
        assert!((200..400).contains(&size(&message)), "{}", size(&message));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[0xff; 20][..], &[0x2a, 200, 1], &[0x2a, 1, 0xff], &[0x07]] {
            assert!(size_of_infer(bytes).is_err(), "{bytes:?}");
        }
    }
}
