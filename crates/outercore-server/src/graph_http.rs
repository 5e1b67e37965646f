//! HTTP routes that describe and change the graph.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use outercore_core::ErrorKind;
use outercore_store::delta::Graphs;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api_types::{
    AnyRefusal, BodyRefusal, TypeRefusal, UpdateRefusal, UpdateRequest, WorkRefusal,
};
use crate::body::{MOST_BODY, Memory};
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::updates::{self, UpdateAnswer};

/// Size and state of the graph.
#[derive(Serialize, ToSchema)]
pub struct GraphAnswer {
    /// Nodes, removed ones included.
    nodes: u64,
    removed_nodes: u64,
    arcs: u64,
    /// Number of graphs in a data set of many, unregistered ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unregistered_graphs: Option<u64>,
    /// LSN of the last durable update.
    lsn: u64,
    /// Whether the graph takes updates.
    updates: bool,
    /// For a graph without updates: milliseconds since the server read it. It does not include
    /// later changes of another process.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
    #[serde(flatten)]
    live: Option<LiveAnswer>,
}

/// State of a graph that takes updates.
#[derive(Serialize, ToSchema)]
pub struct LiveAnswer {
    /// LSN of the last update in the arrays.
    compacted_lsn: u64,
    /// Compactions since the start.
    compactions: u64,
    /// Memory in use for changes.
    memory_bytes: u64,
    /// Bytes of the last segment of the log.
    log_bytes: u64,
    /// Whether the last write failed.
    writes_fail: bool,
    /// Whether the last compaction failed.
    compaction_fails: bool,
}

/// Result of a compaction.
#[derive(Serialize, ToSchema)]
pub struct CompactAnswer {
    /// LSN of the last update in the arrays.
    lsn: u64,
}

/// Describes the graph in its current state.
#[utoipa::path(
    get,
    path = "/graph",
    tag = "graph",
    responses((status = 200, body = GraphAnswer), AnyRefusal)
)]
pub async fn graph(State(shared): State<Arc<Shared>>) -> Json<GraphAnswer> {
    let view = shared.graph.view();
    let status = shared.graph.status();
    Json(GraphAnswer {
        nodes: view.num_nodes(),
        removed_nodes: view.num_removed(),
        arcs: view.num_edges(),
        graphs: view.graphs().map(Graphs::count),
        unregistered_graphs: view.graphs().map(Graphs::num_unregistered),
        lsn: view.lsn(),
        updates: status.is_some(),
        age_ms: shared.graph.age().map(|age| age.as_millis() as u64),
        live: status.map(|status| LiveAnswer {
            compacted_lsn: status.folded,
            compactions: status.folds,
            memory_bytes: status.memory.0,
            log_bytes: status.log.0,
            writes_fail: status.failure.is_some(),
            compaction_fails: status.fold_failure.is_some(),
        }),
    })
}

/// Changes the graph. All updates of a request take effect together, and are durable when it is
/// answered.
#[utoipa::path(
    post,
    path = "/graph/updates",
    tag = "graph",
    request_body(content = UpdateRequest, example = json!({
        "updates": [{"op": "add_edge", "source": 7, "target": 9}]
    })),
    responses(
        (status = 200, body = UpdateAnswer),
        AnyRefusal,
        BodyRefusal,
        TypeRefusal,
        UpdateRefusal,
        WorkRefusal
    )
)]
pub async fn update(
    State(shared): State<Arc<Shared>>,
    body: Body,
) -> Result<Json<UpdateAnswer>, Refusal> {
    let began = Instant::now();
    let live = shared.graph.live()?;
    if *shared.stopping.borrow() {
        return Err(Refusal::stopping());
    }
    let body = shared.bodies.read(body, MOST_BODY).await?;
    let snapshot = live.snapshot();
    let decode = move |body: &[u8], memory: &mut Memory| {
        updates::read(body, snapshot.data_set.manifest(), snapshot.delta.schema(), memory)
    };
    let (write, memory) = shared.bodies.decode(body, decode).await?;
    let (reply, answer) = tokio::sync::oneshot::channel();
    let reply = move |done| {
        // The updates hold the memory until they are durable, even if the client has left.
        drop(memory);
        drop(reply.send(done));
    };
    live.submit(write, Box::new(reply)).map_err(|error| Refusal::of_update(&error))?;
    // Without an answer the writing thread has panicked.
    let done = answer.await.map_err(|_| Refusal::failed())?;
    if let (Some(metrics), Ok(_)) = (shared.metrics.live(), &done) {
        metrics.acknowledged(began.elapsed());
    }
    done.map(|ack| Json(ack.into())).map_err(|error| {
        if !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound) {
            shared.failures.note(&error);
        }
        Refusal::of_update(&error)
    })
}

/// Writes all acknowledged updates into the arrays.
#[utoipa::path(
    post,
    path = "/graph/compact",
    tag = "graph",
    responses(
        (status = 200, body = CompactAnswer),
        AnyRefusal,
        TypeRefusal,
        UpdateRefusal,
        WorkRefusal
    )
)]
pub async fn compact(State(shared): State<Arc<Shared>>) -> Result<Json<CompactAnswer>, Refusal> {
    let live = Arc::clone(shared.graph.live()?);
    // Requests that wait here occupy no thread. The request that holds the lock keeps it if its
    // client leaves.
    let one = Arc::clone(&shared.compacting).lock_owned().await;
    let fold = move || {
        let folded = live.fold();
        drop(one);
        folded
    };
    match tokio::task::spawn_blocking(fold).await {
        Ok(Ok(lsn)) => Ok(Json(CompactAnswer { lsn })),
        Ok(Err(error)) => {
            shared.failures.note(&error);
            Err(Refusal::of_update(&error))
        }
        Err(_) => Err(Refusal::failed()),
    }
}
