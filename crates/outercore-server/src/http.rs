//! Routes of the Open Inference Protocol 2.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

use crate::access::Access;
use crate::binary::EXTENSION;
use crate::metrics::{self as measured, Counted};
use crate::openapi::{
    AnyRefusal, BodyRefusal, InferAnswer, InferRefusal, Model, ModelAnswer, ModelRefusal,
    ServerAnswer, WorkRefusal, description,
};
use crate::protocol::InferRequest;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::{analyses_http, binary, graph_http, repository};

/// Routes and their handlers.
pub fn router(shared: Arc<Shared>) -> Router {
    let needs = |access| from_fn_with_state((Arc::clone(&shared), access), require_access);
    let reads = Router::new()
        .route("/v2", get(server))
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/versions/{version}", get(model))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .route("/v2/repository/index", post(repository::index))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi))
        .route("/graph", get(graph_http::graph))
        .route("/graph/analyses", get(analyses_http::all))
        .route("/graph/analyses/{id}", get(analyses_http::one))
        .route("/graph/analyses/{id}/values", get(analyses_http::values))
        .route_layer(needs(Access::Read));
    let updates = Router::new()
        .route("/graph/updates", post(graph_http::update))
        .route("/graph/compact", post(graph_http::compact))
        .route("/v2/repository/models/{model}/load", post(repository::load))
        .route("/graph/analyses", post(analyses_http::start))
        .route("/graph/analyses/{id}", delete(analyses_http::remove))
        .route_layer(needs(Access::Update));
    // Whoever watches over a service asks these two without a token.
    Router::new()
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .merge(reads)
        .merge(updates)
        .fallback(async || Refusal::unknown("no such path; see `/openapi.json`"))
        .method_not_allowed_fallback(async || Refusal::no_method())
        .layer(from_fn_with_state(Arc::clone(&shared), require_loopback))
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
    /// Checks that there is this model, and returns the version that the path names.
    ///
    /// # Errors
    /// Another one, or a path that is no text.
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
        (status = 200, description = "It takes requests"),
        (status = 503, description = "It is stopping, or updates fail"),
        AnyRefusal
    )
)]
pub async fn ready(State(shared): State<Arc<Shared>>) -> StatusCode {
    if shared.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
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
        (status = 200, description = "It takes requests"),
        (status = 503, description = "It is stopping, or updates fail"),
        AnyRefusal,
        ModelRefusal
    )
)]
pub async fn model_ready(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<Named>, PathRejection>,
) -> Result<StatusCode, Refusal> {
    Named::require(path, &shared)?;
    Ok(ready(State(shared)).await)
}

/// Predictions for nodes.
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
        ModelRefusal,
        InferRefusal,
        WorkRefusal
    )
)]
pub async fn infer(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<Named>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let began = Instant::now();
    let version = Named::require(path, &shared)?;
    let (request, wanted) = {
        let _place = shared.place_for_body().await?;
        let body = read_body(shared.limits.body, body, shared.most_body()).await?;
        binary::read(&headers, &body)?
    };
    let answer = shared.infer(request, version.as_deref(), began).await?;
    binary::respond(answer, &wanted)
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

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "operation",
    responses((status = 200, body = Object, description = "OpenAPI 3.1"), AnyRefusal)
)]
pub async fn openapi(State(shared): State<Arc<Shared>>) -> Json<OpenApi> {
    Json(description(shared.tokens.is_some()))
}

/// Counts a request by its outcome.
async fn count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
    let mut counted = Counted::new(&shared.metrics, measured::HTTP, path);
    let answer = next.run(request).await;
    counted.ended(answer.status().as_str());
    answer
}

/// Refuses requests without a token for this, where there are tokens.
async fn require_access(
    State((shared, access)): State<(Arc<Shared>, Access)>,
    request: Request,
    next: Next,
) -> Response {
    match shared.require_access(request.headers(), access) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Refuses requests whose `Host` is another host, as DNS rebinding sends them. It cannot send a
/// token, so that where there are tokens any host will do.
pub async fn require_loopback(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    if shared.tokens.is_some() {
        return next.run(request).await;
    }
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
