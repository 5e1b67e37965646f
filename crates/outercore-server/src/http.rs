//! Routes of the Open Inference Protocol 2.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use outercore_core::ErrorKind;
use outercore_infer::TaskKind;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::graph::Graph;
use crate::predictor::{Failures, PREDICTION, PROBABILITY, Queue, SCORE};
use crate::protocol::{self, InferRequest, Scope, Subject};
use crate::refusal::Refusal;
use crate::updates::{UpdateAnswer, UpdateRequest};

/// Longest body without its ids.
const MOST_BODY: usize = 64 << 10;

/// Longest body of updates.
const MOST_UPDATE_BODY: usize = 16 << 20;

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
    /// What it predicts that of.
    pub subject: Subject,
    /// Where each graph's nodes begin, and where the last one's end; for models of graphs.
    pub graphs: Vec<u64>,
    /// The graph.
    pub graph: Arc<Graph>,
    /// Most nodes of a request.
    pub most_nodes: u64,
    /// Longest time for a request.
    pub deadline: Duration,
    /// Where questions go.
    pub queue: Queue,
    /// What the operator is told.
    pub failures: Failures,
    /// Bodies that are read at once.
    pub bodies: Semaphore,
    /// Whether the server is going away.
    pub stopping: AtomicBool,
}

impl Shared {
    fn outputs(&self) -> &'static [&'static str] {
        match self.task {
            TaskKind::Classes | TaskKind::Labels => &[PREDICTION, PROBABILITY],
            TaskKind::Links => &[SCORE, PROBABILITY],
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
        let of_edges = |name: &str| json!({"name": name, "datatype": "FP32", "shape": [-1]});
        let outputs = match self.task {
            TaskKind::Classes | TaskKind::Labels => vec![prediction, probability],
            TaskKind::Links => vec![of_edges(SCORE), of_edges(PROBABILITY)],
            _ => vec![prediction],
        };
        json!({
            "name": self.name,
            "versions": [self.version],
            "platform": "outercore",
            "inputs": [{
                "name": self.subject.input(),
                "datatype": "INT64",
                "shape": self.subject.shape(),
            }],
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
        .route("/graph", get(graph))
        .route("/graph/updates", post(update))
        .route("/graph/compact", post(compact))
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
    let writes_fail = shared.graph.status().is_some_and(|status| status.failure.is_some());
    if shared.stopping.load(Ordering::Relaxed) || shared.queue.is_closed() || writes_fail {
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
        let body = read_body(body, shared.most_body()).await?;
        let request: InferRequest = serde_json::from_slice(&body).map_err(|error| {
            Refusal::wrong(format!("the body is no inference request: {error}"))
        })?;
        let view = shared.graph.view();
        let question = request.question(&Scope {
            subject: shared.subject,
            num_nodes: view.num_nodes(),
            graphs: &shared.graphs,
            most_nodes: shared.most_nodes,
            outputs: shared.outputs(),
        })?;
        view.require(&question.nodes)?;
        if question.min_lsn > view.lsn() {
            return Err(Refusal::too_early(question.min_lsn, view.lsn()));
        }
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

/// The bytes of a body.
///
/// # Errors
/// It is too long or comes too slowly.
async fn read_body(body: Body, most: usize) -> Result<Bytes, Refusal> {
    tokio::time::timeout(BODY_TIME, to_bytes(body, most))
        .await
        .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"))?
        .map_err(|_| {
            let text = format!("the body is cut off, or longer than {most} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        })
}

async fn graph(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let view = shared.graph.view();
    let mut described = json!({
        "nodes": view.num_nodes(),
        "removed_nodes": view.num_removed(),
        "arcs": view.num_edges(),
        "lsn": view.lsn(),
        "updates": false,
    });
    if let Some(status) = shared.graph.status() {
        described["updates"] = json!(true);
        described["compacted_lsn"] = json!(status.folded);
        described["compactions"] = json!(status.folds);
        described["memory_bytes"] = json!(status.memory.0);
        described["log_bytes"] = json!(status.log.0);
        described["writes_fail"] = json!(status.failure.is_some());
        described["compaction_fails"] = json!(status.fold_failure.is_some());
    }
    Json(described)
}

async fn update(
    State(shared): State<Arc<Shared>>,
    body: Body,
) -> Result<Json<UpdateAnswer>, Refusal> {
    let live = shared.graph.live()?;
    if shared.stopping.load(Ordering::Relaxed) {
        return Err(Refusal::stopping());
    }
    let updates = {
        let _permit = shared.bodies.acquire().await.map_err(|_| Refusal::stopping())?;
        let body = read_body(body, MOST_UPDATE_BODY).await?;
        let request: UpdateRequest = serde_json::from_slice(&body)
            .map_err(|error| Refusal::wrong(format!("the body is no list of updates: {error}")))?;
        let snapshot = live.snapshot();
        request.updates(snapshot.data_set.manifest(), snapshot.delta.schema())?
    };
    let (reply, answer) = tokio::sync::oneshot::channel();
    live.submit(updates, Box::new(move |done| drop(reply.send(done))))
        .map_err(|error| Refusal::of_update(&error))?;
    // The thread that writes ended without an answer: it panicked.
    let done = answer.await.map_err(|_| Refusal::failed())?;
    done.map(|ack| Json(ack.into())).map_err(|error| {
        if !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound) {
            shared.failures.note(&error);
        }
        Refusal::of_update(&error)
    })
}

async fn compact(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    shared.graph.live()?;
    let graph = Arc::clone(&shared);
    let folded = tokio::task::spawn_blocking(move || match &*graph.graph {
        Graph::Live(live) => live.fold(),
        Graph::Fixed { .. } => Ok(0),
    });
    match folded.await {
        Ok(Ok(lsn)) => Ok(Json(json!({ "lsn": lsn }))),
        Ok(Err(error)) => {
            shared.failures.note(&error);
            Err(Refusal::of_update(&error))
        }
        Err(_) => Err(Refusal::failed()),
    }
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
