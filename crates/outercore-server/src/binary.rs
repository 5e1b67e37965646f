//! The binary tensor data extension of the protocol over HTTP: JSON, followed by the bytes of the
//! tensors.

use axum::Json;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::asked::Data;
use crate::json::check_sizes;
use crate::protocol::InferRequest;
use crate::refusal::{Refusal, cut};
use crate::tensors;

/// Name of the extension.
pub const EXTENSION: &str = "binary_tensor_data";

/// Header with the number of bytes of the body that are JSON.
const HEADER_LENGTH: &str = "inference-header-content-length";

/// The outputs that the client wants as bytes.
#[derive(Debug, Default)]
pub struct Wanted {
    all: bool,
    names: Vec<String>,
    /// Outputs that are wanted as JSON although `all` is set.
    not: Vec<String>,
}

/// Parses a request body. The bytes of its tensors are borrowed from the body.
///
/// # Errors
/// The body is not JSON, with or without bytes after it, or some bytes belong to no tensor.
pub fn read<'a>(
    headers: &HeaderMap,
    body: &'a [u8],
) -> Result<(InferRequest<'a>, Wanted), Refusal> {
    let (text, mut rest) = match headers.get(HEADER_LENGTH) {
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse().ok());
            length.and_then(|length| body.split_at_checked(length)).ok_or_else(|| {
                Refusal::wrong(format!("{HEADER_LENGTH}: expected a length within the body"))
            })?
        }
        None => (body, &[][..]),
    };
    check_sizes(text)?;
    let mut request: InferRequest<'a> = serde_json::from_slice(text)
        .map_err(|error| Refusal::wrong(format!("the body is no inference request: {error}")))?;
    for input in &mut request.inputs {
        if let Some(size) = input.parameters.get("binary_data_size") {
            if !matches!(input.data, Data::Absent) {
                let name = cut(&input.name);
                return Err(Refusal::wrong(format!(
                    "{name}: expected either data or binary_data_size, found both"
                )));
            }
            let size = serde_json::from_str(size).ok();
            let (bytes, after) =
                size.and_then(|size| rest.split_at_checked(size)).ok_or_else(|| {
                    Refusal::wrong("binary_data_size: expected bytes that the body has")
                })?;
            (input.data, rest) = (Data::Bytes(bytes), after);
        }
    }
    if !rest.is_empty() {
        let text = format!("the body has {} bytes that belong to no input", rest.len());
        return Err(Refusal::wrong(text));
    }
    let wanted = wanted(&mut request);
    Ok((request, wanted))
}

/// Takes the parameters about binary outputs out of a request.
fn wanted(request: &mut InferRequest<'_>) -> Wanted {
    let all = request.parameters.take("binary_data_output").is_some_and(|value| value == "true");
    let mut wanted = Wanted { all, ..Wanted::default() };
    for output in &request.outputs {
        match output.parameters.get("binary_data") {
            Some("true") => wanted.names.push(output.name.clone()),
            Some("false") => wanted.not.push(output.name.clone()),
            _ => {}
        }
    }
    wanted
}

/// Builds the response to a request.
///
/// # Errors
/// Only for an answer that cannot be encoded, which does not occur.
pub fn respond(mut answer: Value, wanted: &Wanted) -> Result<Response, Refusal> {
    let mut bytes = Vec::new();
    let mut is_json = true;
    for output in answer["outputs"].as_array_mut().into_iter().flatten() {
        let name = output["name"].as_str().unwrap_or_default().to_owned();
        let is_wanted = wanted.names.contains(&name);
        if is_wanted || (wanted.all && !wanted.not.contains(&name)) {
            is_json = false;
            let datatype = output["datatype"].as_str().unwrap_or_default();
            let values = output["data"].as_array().ok_or_else(Refusal::failed)?;
            let encoded = tensors::encode(datatype, values)?;
            let output = output.as_object_mut().ok_or_else(Refusal::failed)?;
            output.remove("data");
            let size = Map::from_iter([("binary_data_size".to_owned(), json!(encoded.len()))]);
            output.insert("parameters".into(), Value::Object(size));
            bytes.extend(encoded);
        }
    }
    if is_json {
        return Ok(Json(answer).into_response());
    }
    let mut body = serde_json::to_vec(&answer).map_err(|_| Refusal::failed())?;
    let length = body.len().to_string();
    body.extend(bytes);
    let headers = [(CONTENT_TYPE.as_str(), "application/octet-stream"), (HEADER_LENGTH, &length)];
    Ok((headers, body).into_response())
}
