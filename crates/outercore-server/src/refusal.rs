//! Refusals: why a request gets no answer, as the client sees it.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use outercore_core::{Error, ErrorKind};
use serde_json::json;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// Authentication scheme of the tokens.
const SCHEME: &str = "Bearer";

/// Seconds after which a client may send the request again.
const RETRY_AFTER: &str = "1";

/// The same for gRPC: its clients do not retry without this header.
const PUSHBACK: &str = "grpc-retry-pushback-ms";
const PUSHBACK_MS: &str = "1000";

/// Most characters of a client's text that an answer repeats.
const MOST_ECHOED: usize = 80;

/// A status and a sentence for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    text: String,
    /// Whether the request may have taken effect although it failed.
    is_unknown: bool,
}

/// The beginning of a client's text.
pub fn cut(text: &str) -> String {
    text.chars().take(MOST_ECHOED).collect()
}

impl Refusal {
    /// A refusal with any status.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), is_unknown: false }
    }

    /// The same refusal, naming the part of the request.
    pub fn about(self, part: &str) -> Self {
        Self { text: format!("{part}: {}", self.text), ..self }
    }

    /// The request is wrong.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// No such model or version.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// The path does not take this method; a header of the answer names the methods.
    pub fn no_method() -> Self {
        let text = "this path does not take this method; see `/openapi.json`";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, text)
    }

    /// The queue is full.
    pub fn overloaded() -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too many requests are waiting; ask again later")
    }

    /// The deadline passed.
    pub fn late() -> Self {
        let text = "the deadline passed before the request was answered";
        Self::new(StatusCode::GATEWAY_TIMEOUT, text)
    }

    /// The server is stopping.
    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
    }

    /// The graph takes no updates.
    pub fn read_only() -> Self {
        let text = "this server takes no updates; start it with `updates`";
        Self::new(StatusCode::FORBIDDEN, text)
    }

    /// The graph has not yet reached the LSN that the request wants.
    pub fn too_early(wanted: u64, lsn: u64) -> Self {
        let text = format!("min_lsn: {wanted}, the graph is at update {lsn}");
        Self::new(StatusCode::PRECONDITION_FAILED, text)
    }

    /// The server failed. Only its operator learns the reason.
    pub fn failed() -> Self {
        let text = "the server failed to answer; it has told its operator why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// Converts an error of the server to a refusal.
    pub fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Budget => Self::wrong(
                "the neighbours of these nodes do not fit the server's memory; ask for fewer nodes",
            ),
            // The model cannot answer for these nodes: one without an embedding, an unknown
            // category.
            ErrorKind::Invalid => Self::wrong(error.one_line()),
            _ => Self::failed(),
        }
    }

    /// Converts the error for a node or graph that never existed or was removed.
    pub fn of_lookup(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::unknown(error.one_line()),
            _ => Self::wrong(error.one_line()),
        }
    }

    /// Converts the error of a load that did not replace the served model.
    pub fn of_load(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::new(StatusCode::CONFLICT, error.one_line()),
            _ => Self::wrong(
                "the model's directory has no whole model; the server has told its operator why, \
                 and answers with the older one",
            ),
        }
    }

    /// Converts the error of updates that were not applied.
    pub fn of_update(error: &Error) -> Self {
        let text = error.one_line();
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Self::wrong(text),
            ErrorKind::NotFound => Self::unknown(text),
            ErrorKind::Budget => Self::new(StatusCode::TOO_MANY_REQUESTS, text),
            ErrorKind::NoSpace => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "the disk is full: nothing was written; the graph can still be read",
            ),
            ErrorKind::Io => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the disk takes no updates: nothing was written; the graph can still be read",
            ),
            ErrorKind::Unknown => Self {
                is_unknown: true,
                ..Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the disk failed: it is unknown whether the updates will take effect; send them \
                     again with the same key to learn it; the graph can still be read",
                )
            },
            _ => Self::failed(),
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.status {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => Code::InvalidArgument,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::FORBIDDEN => Code::PermissionDenied,
            StatusCode::NOT_FOUND => Code::NotFound,
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => Code::FailedPrecondition,
            StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
            _ => Code::Internal,
        };
        let mut status = Self::new(code, refusal.text);
        if code == Code::ResourceExhausted {
            status.metadata_mut().insert(PUSHBACK, MetadataValue::from_static(PUSHBACK_MS));
        }
        status
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Json(match self.is_unknown {
            true => json!({ "error": self.text, "outcome": "unknown" }),
            false => json!({ "error": self.text }),
        });
        let more = match self.status {
            StatusCode::TOO_MANY_REQUESTS => (header::RETRY_AFTER, RETRY_AFTER),
            StatusCode::UNAUTHORIZED => (header::WWW_AUTHENTICATE, SCHEME),
            status => return (status, body).into_response(),
        };
        (self.status, [more], body).into_response()
    }
}
