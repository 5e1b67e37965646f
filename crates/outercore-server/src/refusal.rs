//! Why a request gets no prediction, as the client sees it.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use outercore_core::{Error, ErrorKind};
use serde_json::json;

/// Seconds after which a client may ask again.
const RETRY_AFTER: &str = "1";

/// A status and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    text: String,
}

impl Refusal {
    /// The request is wrong.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, text: text.into() }
    }

    /// There is no such model or version.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, text: text.into() }
    }

    /// The body is longer than accepted, or came too slowly.
    pub fn body(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// As many requests wait as may.
    pub fn overloaded() -> Self {
        let text = "too many requests are waiting; ask again later";
        Self { status: StatusCode::TOO_MANY_REQUESTS, text: text.into() }
    }

    /// The deadline passed.
    pub fn late() -> Self {
        let text = "the deadline passed before the request was answered";
        Self { status: StatusCode::GATEWAY_TIMEOUT, text: text.into() }
    }

    /// The server is going away.
    pub fn stopping() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text: "the server is stopping".into() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Budget => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, text: error.to_string() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Json(json!({ "error": self.text }));
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            return (self.status, [(header::RETRY_AFTER, RETRY_AFTER)], body).into_response();
        }
        (self.status, body).into_response()
    }
}
