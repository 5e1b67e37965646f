//! The binary tensor data extension of the protocol over HTTP: JSON, then the bytes of tensors.

use axum::Json;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::asked::cut;
use crate::protocol::InferRequest;
use crate::refusal::Refusal;
use crate::tensors;

/// Name of the extension.
pub const EXTENSION: &str = "binary_tensor_data";

/// Says how many bytes of a body are JSON.
const HEADER_LENGTH: &str = "inference-header-content-length";

/// Which outputs are wanted as bytes.
#[derive(Debug, Default)]
pub struct Wanted {
    all: bool,
    names: Vec<String>,
    /// Those that are wanted as JSON although all are wanted as bytes.
    not: Vec<String>,
}

/// The request in a body, with the bytes of its tensors put into their places.
///
/// # Errors
/// Neither JSON nor JSON with bytes behind it; bytes that are no values.
pub fn read(headers: &HeaderMap, body: &Bytes) -> Result<(InferRequest, Wanted), Refusal> {
    let no_request = |error| Refusal::wrong(format!("the body is no inference request: {error}"));
    let (text, mut rest) = match headers.get(HEADER_LENGTH) {
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse().ok());
            length.and_then(|length| body.split_at_checked(length)).ok_or_else(|| {
                Refusal::wrong(format!("{HEADER_LENGTH}: expected a length within the body"))
            })?
        }
        None => (&body[..], &[][..]),
    };
    let mut request: Value = serde_json::from_slice(text).map_err(no_request)?;
    let inputs = request.get_mut("inputs").and_then(Value::as_array_mut);
    for input in inputs.into_iter().flatten() {
        put_bytes(input, &mut rest)?;
    }
    if !rest.is_empty() {
        let text = format!("the body has {} bytes that belong to no input", rest.len());
        return Err(Refusal::wrong(text));
    }
    let wanted = wanted(&mut request);
    Ok((serde_json::from_value(request).map_err(no_request)?, wanted))
}

/// Replaces `binary_data_size` of an input by as many of the bytes.
fn put_bytes(input: &mut Value, rest: &mut &[u8]) -> Result<(), Refusal> {
    let Some(input) = input.as_object_mut() else { return Ok(()) };
    let of = |key| input.get(key).and_then(Value::as_str).unwrap_or_default();
    let (name, datatype) = (of("name"), of("datatype"));
    let parameters = input.get("parameters");
    let Some(size) = parameters.and_then(|all| all.get("binary_data_size")) else {
        return Ok(());
    };
    if input.contains_key("data") {
        let name = cut(name);
        return Err(Refusal::wrong(format!(
            "{name}: expected either data or binary_data_size, found both"
        )));
    }
    let size = size.as_u64().and_then(|size| usize::try_from(size).ok());
    let (bytes, after) = size
        .and_then(|size| rest.split_at_checked(size))
        .ok_or_else(|| Refusal::wrong("binary_data_size: expected bytes that the body has"))?;
    *rest = after;
    let values = tensors::decode(name, datatype, bytes)?;
    input.insert("data".into(), Value::Array(values));
    Ok(())
}

/// Takes out of a request which outputs are wanted as bytes.
fn wanted(request: &mut Value) -> Wanted {
    let mut wanted = Wanted::default();
    if let Some(parameters) = request.get_mut("parameters").and_then(Value::as_object_mut) {
        wanted.all = parameters.remove("binary_data_output") == Some(json!(true));
    }
    for output in request["outputs"].as_array().into_iter().flatten() {
        let Some(name) = output["name"].as_str() else { continue };
        match output["parameters"]["binary_data"].as_bool() {
            Some(true) => wanted.names.push(name.to_owned()),
            Some(false) => wanted.not.push(name.to_owned()),
            None => {}
        }
    }
    wanted
}

/// The response to a request.
///
/// # Errors
/// None that an answer can have.
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
