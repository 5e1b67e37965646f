//! All routes of the server, and what is done for each request.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};

use crate::access::Access;
use crate::http::{infer, live, metrics, model, model_ready, ready, server};
use crate::metrics::{self as measured, Counted};
use crate::openapi::openapi;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::{analyses_http, graph_http, repository};

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
