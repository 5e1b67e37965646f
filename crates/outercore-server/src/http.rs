//! Routes of the Open Inference Protocol 2.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use outercore_infer::TaskKind;
use serde_json::{Value, json};

use crate::predictor::{PREDICTION, PROBABILITY, Queue};
use crate::protocol::{self, InferRequest};
use crate::refusal::Refusal;

/// Longest body; a request of 256 ids has a few kilobytes.
const MOST_BODY: usize = 1 << 20;

/// How long a body may take to come in.
const BODY_TIME: Duration = Duration::from_secs(10);

/// What all handlers share.
pub struct Shared {
    /// Name of the model, as paths have it.
    pub name: String,
    /// Its version: a digest of what it is made of.
    pub version: String,
    /// Columns of the outputs, and whether there are probabilities.
    pub outputs: usize,
    /// Of classes the prediction has one column.
    pub task: TaskKind,
    /// Nodes of the graph.
    pub num_nodes: u64,
    /// Most nodes of a request.
    pub most_nodes: u64,
    /// Longest time for a request.
    pub deadline: Duration,
    /// Where questions go.
    pub queue: Queue,
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

/// Who answers what.
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
    if shared.stopping.load(Ordering::Relaxed) {
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
    let body = tokio::time::timeout(BODY_TIME, to_bytes(body, MOST_BODY))
        .await
        .map_err(|_| Refusal::body(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"))?
        .map_err(|_| {
            Refusal::body(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is cut off, or longer than {MOST_BODY} bytes"),
            )
        })?;
    let request: InferRequest = serde_json::from_slice(&body)
        .map_err(|error| Refusal::wrong(format!("the body is no inference request: {error}")))?;
    let question = request.question(shared.num_nodes, shared.most_nodes, shared.outputs())?;
    let limit = question.deadline_ms.map_or(shared.deadline, Duration::from_millis);
    let until = began + limit.min(shared.deadline);
    let prediction = shared.queue.ask(question.clone(), until).await?;
    let answer = protocol::answer(&shared.name, &shared.version, &request, &question, prediction);
    Ok(Json(answer).into_response())
}
