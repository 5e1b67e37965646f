//! Why a request gets no prediction, as the client sees it.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use outercore_core::{Error, ErrorKind};
use serde_json::json;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// How clients say who they are.
const SCHEME: &str = "Bearer";

/// Seconds after which a client may ask again.
const RETRY_AFTER: &str = "1";

/// The same for gRPC, whose clients do not ask again without it.
const PUSHBACK: &str = "grpc-retry-pushback-ms";
const PUSHBACK_MS: &str = "1000";

/// Characters of what a client wrote that an answer repeats.
const MOST_ECHOED: usize = 80;

/// A status and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    text: String,
    /// Whether what was asked for may have been done all the same.
    is_unknown: bool,
}

/// The beginning of what a client wrote.
pub fn cut(text: &str) -> String {
    text.chars().take(MOST_ECHOED).collect()
}

impl Refusal {
    /// Another status than those below.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), is_unknown: false }
    }

    /// The same about a part of the request.
    pub fn about(self, part: &str) -> Self {
        Self { text: format!("{part}: {}", self.text), ..self }
    }

    /// The request is wrong.
    pub fn wrong(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// There is no such model or version.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// The path takes other methods; the answer's header names them.
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

    /// The server is going away.
    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
    }

    /// The graph does not change.
    pub fn read_only() -> Self {
        let text = "this server takes no updates; start it with --updates";
        Self::new(StatusCode::FORBIDDEN, text)
    }

    /// The graph is not yet as new as the request wants it.
    pub fn too_early(wanted: u64, lsn: u64) -> Self {
        let text = format!("min_lsn: {wanted}, the graph is at update {lsn}");
        Self::new(StatusCode::PRECONDITION_FAILED, text)
    }

    /// The server failed; what failed is for its operator alone.
    pub fn failed() -> Self {
        let text = "the server failed to answer; it has told its operator why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// What a client is told of an error of the server.
    pub fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Budget => Self::wrong(
                "the neighbours of these nodes do not fit the server's memory; ask for fewer nodes",
            ),
            // What the model cannot be asked: a node without an embedding, an unknown category.
            ErrorKind::Invalid => Self::wrong(error.one_line()),
            _ => Self::failed(),
        }
    }

    /// What a client is told of a node or graph that is not there: it never was, or was removed.
    pub fn of_lookup(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::unknown(error.one_line()),
            _ => Self::wrong(error.one_line()),
        }
    }

    /// The refusal of a load, whose model did not take the place of the one that is served.
    pub fn of_load(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Unsupported => Self::new(StatusCode::CONFLICT, error.one_line()),
            _ => Self::wrong(
                "the model's directory has no whole model; the server has told its operator why, \
                 and answers with the older one",
            ),
        }
    }

    /// What a client is told of updates that were not taken.
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
