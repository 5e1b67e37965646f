//! All routes of the server, and the steps common to all requests.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};

use crate::access::Access;
use crate::http::{infer, live, metrics, model, model_ready, ready, server};
use crate::metrics::{self as measured, Counted};
use crate::openapi::openapi;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::site::require_own_site;
use crate::tls::Protocol;
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
    // Health checks of service monitors send no token.
    Router::new()
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .merge(reads)
        .merge(updates)
        .fallback(async || Refusal::unknown("no such path; see `/openapi.json`"))
        .method_not_allowed_fallback(async || Refusal::no_method())
        .layer(from_fn_with_state((Arc::clone(&shared), Protocol::Http1), require_own_site))
        .layer(from_fn_with_state(Arc::clone(&shared), count))
        .with_state(shared)
}

/// Counts requests by outcome.
async fn count(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
    let mut counted = Counted::new(&shared.metrics, measured::HTTP, path);
    // A client may send many requests at once. Yield, so that other connections get a turn between
    // two of them.
    tokio::task::yield_now().await;
    let answer = next.run(request).await;
    counted.ended(answer.status().as_str());
    answer
}

/// Refuses requests without a token for the route, if the server has tokens.
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
