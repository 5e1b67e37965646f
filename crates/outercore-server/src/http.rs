//! HTTP handlers of the Open Inference Protocol 2.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};

use crate::api_types::{
    AnyRefusal, BodyRefusal, InferAnswer, InferRefusal, InferRequest, Model, ModelAnswer,
    ModelRefusal, ServerAnswer, TypeRefusal, WorkRefusal, WritesFail,
};
use crate::binary::EXTENSION;
use crate::body::Memory;
use crate::metrics::{self as measured};
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::turns::Client;
use crate::{binary, repository};

/// A model, and its version if the path names one.
#[derive(serde::Deserialize)]
pub struct Named {
    model: String,
    version: Option<String>,
}

impl Named {
    /// Checks the name of the model, and returns the version that the path names.
    ///
    /// # Errors
    /// Another model, or a path that is not UTF-8.
    fn require(
        path: Result<Path<Self>, PathRejection>,
        shared: &Shared,
    ) -> Result<Option<String>, Refusal> {
        let Path(named) =
            path.map_err(|_| Refusal::unknown("the model in the path is not UTF-8"))?;
        shared.require(&named.model, named.version.as_deref())?;
        Ok(named.version)
    }
}

/// Name and version of the server.
#[utoipa::path(
    get,
    path = "/v2",
    tag = "inference",
    responses((status = 200, body = ServerAnswer), AnyRefusal)
)]
pub async fn server() -> Json<Value> {
    Json(json!({
        "name": "outercore",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": [EXTENSION, repository::EXTENSION],
    }))
}

/// Whether the server runs.
#[utoipa::path(
    get,
    path = "/v2/health/live",
    tag = "inference",
    responses((status = 200, description = "It runs"), AnyRefusal)
)]
pub async fn live() -> StatusCode {
    StatusCode::OK
}

/// Whether the server takes requests.
#[utoipa::path(
    get,
    path = "/v2/health/ready",
    tag = "inference",
    responses(
        (
            status = 200,
            description = "It takes requests; while updates fail the body says so",
            body = WritesFail
        ),
        (status = 503, description = "It is stopping"),
        AnyRefusal
    )
)]
pub async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match (shared.is_ready(), shared.writes_fail()) {
        (false, _) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        (true, writes_fail) => Json(WritesFail { writes_fail }).into_response(),
    }
}

/// Inputs, outputs and version of a model.
#[utoipa::path(
    get,
    path = "/v2/models/{model}",
    tag = "inference",
    params(Model),
    responses((status = 200, body = ModelAnswer), AnyRefusal, ModelRefusal)
)]
pub async fn model(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<Named>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    Named::require(path, &shared)?;
    Ok(Json(shared.described()))
}

/// Whether a model takes requests.
#[utoipa::path(
    get,
    path = "/v2/models/{model}/ready",
    tag = "inference",
    params(Model),
    responses(
        (
            status = 200,
            description = "It takes requests; while updates fail the body says so",
            body = WritesFail
        ),
        (status = 503, description = "It is stopping"),
        AnyRefusal,
        ModelRefusal
    )
)]
pub async fn model_ready(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<Named>, PathRejection>,
) -> Result<Response, Refusal> {
    Named::require(path, &shared)?;
    Ok(ready(State(shared)).await)
}

/// Predictions for nodes, edges or graphs.
#[utoipa::path(
    post,
    path = "/v2/models/{model}/infer",
    tag = "inference",
    params(Model),
    request_body(content = InferRequest, example = json!({
        "inputs": [{"name": "node_ids", "datatype": "INT64", "shape": [2], "data": [7, 9]}]
    })),
    responses(
        (status = 200, body = InferAnswer),
        AnyRefusal,
        BodyRefusal,
        TypeRefusal,
        ModelRefusal,
        InferRefusal,
        WorkRefusal
    )
)]
pub async fn infer(
    State(shared): State<Arc<Shared>>,
    Extension(client): Extension<Client>,
    path: Result<Path<Named>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let began = Instant::now();
    let version = Named::require(path, &shared)?;
    let body = shared.bodies.read(body, shared.most_body()).await?;
    let asked = Arc::clone(&shared);
    let decode = move |body: &[u8], memory: &mut Memory| {
        let (request, wanted) = binary::read(&headers, body)?;
        Ok((asked.question(&request, memory)?, wanted))
    };
    let ((question, wanted), memory) = shared.bodies.decode(body, decode).await?;
    let answer = shared.infer(client, (question, memory), version.as_deref(), began).await?;
    binary::respond(answer, &wanted)
}

/// Metrics for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operation",
    responses((status = 200, body = String, content_type = "text/plain"), AnyRefusal)
)]
pub async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let (view, status) = (shared.graph.view(), shared.graph.status());
    let text = shared.metrics.text(shared.queue.waiting(), &view, status.as_ref());
    let text = text.map_err(|_| Refusal::failed())?;
    Ok(([(CONTENT_TYPE, measured::CONTENT_TYPE)], text).into_response())
}
