//! Routes of the Open Inference Protocol 2.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use outercore_infer::TaskKind;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::predictor::{PREDICTION, PROBABILITY, Queue};
use crate::protocol::{self, InferRequest};
use crate::refusal::Refusal;

/// Longest body without its ids.
const MOST_BODY: usize = 64 << 10;

/// Bytes of an id in a body, with room for lists and blanks.
const ID_BYTES: u64 = 32;

/// How long a body may take to come in.
const BODY_TIME: Duration = Duration::from_secs(10);

/// What all handlers share.
pub struct Shared {
    /// Name of the model, as paths have it.
    pub name: String,
    /// Its version: a digest of what it is made of.
    pub version: String,
    /// Columns of the outputs.
    pub outputs: usize,
    /// What the model predicts; for classes the prediction has one column.
    pub task: TaskKind,
    /// Nodes of the graph.
    pub num_nodes: u64,
    /// Most nodes of a request.
    pub most_nodes: u64,
    /// Longest time for a request.
    pub deadline: Duration,
    /// Where questions go.
    pub queue: Queue,
    /// Bodies that are read at once.
    pub bodies: Semaphore,
    /// Whether the server is going away.
    pub stopping: AtomicBool,
}

impl Shared {
    fn outputs(&self) -> &'static [&'static str] {
        match self.task {
            TaskKind::Classes | TaskKind::Labels => &[PREDICTION, PROBABILITY],
            _ => &[PREDICTION],
        }
    }

    fn most_body(&self) -> usize {
        MOST_BODY + (ID_BYTES * self.most_nodes) as usize
    }

    /// Errors: there is no such model, or version of it.
    fn require(&self, name: &str, version: Option<&str>) -> Result<(), Refusal> {
        if name != self.name {
            return Err(Refusal::unknown(format!("no model `{name}`; there is `{}`", self.name)));
        }
        match version {
            Some(version) if version != self.version => Err(Refusal::unknown(format!(
                "model `{name}` has no version `{version}`; there is `{}`",
                self.version
            ))),
            _ => Ok(()),
        }
    }

    fn described(&self) -> Value {
        let columns = self.outputs;
        let prediction = match self.task {
            TaskKind::Classes => json!({"name": PREDICTION, "datatype": "INT64", "shape": [-1]}),
            TaskKind::Labels => {
                json!({"name": PREDICTION, "datatype": "INT64", "shape": [-1, columns]})
            }
            _ => json!({"name": PREDICTION, "datatype": "FP32", "shape": [-1, columns]}),
        };
        let probability = json!({"name": PROBABILITY, "datatype": "FP32", "shape": [-1, columns]});
        let outputs = match self.task {
            TaskKind::Classes | TaskKind::Labels => vec![prediction, probability],
            _ => vec![prediction],
        };
        json!({
            "name": self.name,
            "versions": [self.version],
            "platform": "outercore",
            "inputs": [{"name": "node_ids", "datatype": "INT64", "shape": [-1]}],
            "outputs": outputs,
        })
    }
}

/// Routes and their handlers.
pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(async || StatusCode::OK))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/versions/{version}", get(model))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .fallback(async || Refusal::unknown("no such path; see `/v2`"))
        .layer(from_fn(require_loopback))
        .with_state(shared)
}

/// A model, and a version of it where the path names one.
#[derive(serde::Deserialize)]
struct Named {
    model: String,
    version: Option<String>,
}

async fn server() -> Json<Value> {
    Json(json!({
        "name": "outercore",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": [],
    }))
}

async fn ready(State(shared): State<Arc<Shared>>) -> StatusCode {
    if shared.stopping.load(Ordering::Relaxed) || shared.queue.is_closed() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    StatusCode::OK
}

async fn model(
    State(shared): State<Arc<Shared>>,
    Path(named): Path<Named>,
) -> Result<Json<Value>, Refusal> {
    shared.require(&named.model, named.version.as_deref())?;
    Ok(Json(shared.described()))
}

async fn model_ready(
    State(shared): State<Arc<Shared>>,
    Path(named): Path<Named>,
) -> Result<StatusCode, Refusal> {
    shared.require(&named.model, named.version.as_deref())?;
    Ok(ready(State(shared)).await)
}

async fn infer(
    State(shared): State<Arc<Shared>>,
    Path(named): Path<Named>,
    body: Body,
) -> Result<Response, Refusal> {
    let began = Instant::now();
    shared.require(&named.model, named.version.as_deref())?;
    let (id, question) = {
        let _permit = shared.bodies.acquire().await.map_err(|_| Refusal::stopping())?;
        let most = shared.most_body();
        let body = tokio::time::timeout(BODY_TIME, to_bytes(body, most))
            .await
            .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"))?
            .map_err(|_| {
                let text = format!("the body is cut off, or longer than {most} bytes");
                Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
            })?;
        let request: InferRequest = serde_json::from_slice(&body).map_err(|error| {
            Refusal::wrong(format!("the body is no inference request: {error}"))
        })?;
        let question = request.question(shared.num_nodes, shared.most_nodes, shared.outputs())?;
        (request.id, question)
    };
    let limit = question.deadline_ms.map_or(shared.deadline, Duration::from_millis);
    let until = began + limit.min(shared.deadline);
    let (seed, wanted) = (question.seed, question.outputs.clone());
    let prediction = shared.queue.ask(question, until).await?;
    let model = (shared.name.as_str(), shared.version.as_str());
    let answer = protocol::answer(model, id.as_deref(), (seed, &wanted), prediction);
    Ok(Json(answer).into_response())
}

/// Refuses requests whose `Host` is another host, as DNS rebinding sends them.
async fn require_loopback(request: Request, next: Next) -> Response {
    let is_local = request.headers().get(HOST).is_none_or(|host| {
        let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        authority.is_some_and(|authority| {
            let name = authority.host().trim_matches(['[', ']']);
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        })
    });
    if is_local {
        return next.run(request).await;
    }
    let text = "host: expected localhost or a loopback address";
    Refusal::new(StatusCode::FORBIDDEN, text).into_response()
}
