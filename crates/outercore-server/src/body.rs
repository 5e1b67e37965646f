//! Bodies of requests.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;

use crate::refusal::Refusal;

/// The bytes of a body.
///
/// # Errors
/// It is too long or comes too slowly.
pub async fn read_body(limit: Duration, body: Body, most: usize) -> Result<Bytes, Refusal> {
    tokio::time::timeout(limit, to_bytes(body, most))
        .await
        .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"))?
        .map_err(|_| {
            let text = format!("the body is cut off, or longer than {most} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        })
}
