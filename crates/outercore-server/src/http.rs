//! Routes of the Open Inference Protocol 2.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::graph_http;
use crate::metrics::{self as measured, Counted};
use crate::protocol::InferRequest;
use crate::refusal::Refusal;
use crate::shared::Shared;

/// Routes and their handlers.
pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/versions/{version}", get(model))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .route("/metrics", get(metrics))
        .route("/graph", get(graph_http::graph))
        .route("/graph/updates", post(graph_http::update))
        .route("/graph/compact", post(graph_http::compact))
        .fallback(async || Refusal::unknown("no such path; see `/v2`"))
        .method_not_allowed_fallback(async || Refusal::no_method())
        .layer(from_fn(require_loopback))
        .layer(from_fn_with_state(Arc::clone(&shared), count))
        .with_state(shared)
}

/// A model, and a version of it where the path names one.
#[derive(serde::Deserialize)]
pub struct Named {
    model: String,
    version: Option<String>,
}

impl Named {
    /// Checks that there is this model.
    ///
    /// # Errors
    /// Another one, or a path that is no text.
    fn require(path: Result<Path<Self>, PathRejection>, shared: &Shared) -> Result<(), Refusal> {
        let Path(named) =
            path.map_err(|_| Refusal::unknown("the model in the path is not UTF-8"))?;
        shared.require(&named.model, named.version.as_deref())
    }
}

/// Name and version of the server.
pub async fn server() -> Json<Value> {
    Json(json!({
        "name": "outercore",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": [],
    }))
}

/// Whether the server runs.
pub async fn live() -> StatusCode {
    StatusCode::OK
}

/// Whether the server takes requests.
pub async fn ready(State(shared): State<Arc<Shared>>) -> StatusCode {
    if shared.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Inputs, outputs and version of a model.
pub async fn model(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<Named>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    Named::require(path, &shared)?;
    Ok(Json(shared.described()))
}

/// Whether a model takes requests.
pub async fn model_ready(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<Named>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    Named::require(path, &shared)?;
    Ok(ready(State(shared)).await)
}

/// Predictions for nodes.
pub async fn infer(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<Named>, PathRejection>,
    body: Body,
) -> Result<Json<Value>, Refusal> {
    let began = Instant::now();
    Named::require(path, &shared)?;
    let request: InferRequest = {
        let _permit = shared.bodies.acquire().await.map_err(|_| Refusal::stopping())?;
        let body = read_body(shared.limits.body, body, shared.most_body()).await?;
        serde_json::from_slice(&body)
            .map_err(|error| Refusal::wrong(format!("the body is no inference request: {error}")))?
    };
    shared.infer(request, began).await.map(Json)
}

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

/// Counts and times for Prometheus.
pub async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let (view, status) = (shared.graph.view(), shared.graph.status());
    let text = shared.metrics.text(shared.queue.waiting(), &view, status.as_ref());
    let text = text.map_err(|_| Refusal::failed())?;
    Ok(([(CONTENT_TYPE, measured::CONTENT_TYPE)], text).into_response())
}

/// Counts a request by its outcome.
async fn count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
    let mut counted = Counted::new(&shared.metrics, measured::HTTP, path);
    let answer = next.run(request).await;
    counted.ended(answer.status().as_str());
    answer
}

/// Refuses requests whose `Host` is another host, as DNS rebinding sends them.
async fn require_loopback(request: Request, next: Next) -> Response {
    let is_loopback = |authority: &Authority| {
        let name = authority.host().trim_matches(['[', ']']);
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let is_local = match request.headers().get(HOST) {
        Some(host) => {
            let authority = host.to_str().ok().and_then(|host| host.parse().ok());
            authority.as_ref().is_some_and(is_loopback)
        }
        // HTTP/2 has it in the address.
        None => request.uri().authority().is_none_or(is_loopback),
    };
    if is_local {
        return next.run(request).await;
    }
    let text = "host: expected localhost or a loopback address";
    Refusal::new(StatusCode::FORBIDDEN, text).into_response()
}
