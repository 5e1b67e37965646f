//! HTTP routes of analyses.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use outercore_analytics::Algorithm;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, IntoResponses, ToSchema};

use crate::analyses::{Analyses, Analysis};
use crate::api_types::{AnyRefusal, BodyRefusal, Failure, TypeRefusal, WorkRefusal};
use crate::body::Memory;
use crate::json::check_sizes;
use crate::refusal::Refusal;
use crate::shared::Shared;

/// Longest body of a request, and bytes of memory for each byte of it during decoding.
const MOST_BODY: usize = 256 << 10;
const A_BYTE: usize = 40;

/// Bytes of a result that are read at once.
const CHUNK: usize = 64 << 10;

/// An algorithm and its options, with the names that `outercore.analytics` uses.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct AnalysisRequest {
    /// Its name, such as `pagerank`.
    algorithm: String,
}

/// An analysis in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "a description")]
pub struct Id {
    /// Its id.
    id: u64,
}

/// All analyses of the server.
#[derive(serde::Serialize, ToSchema)]
pub struct AnalysesAnswer {
    /// Oldest first.
    analyses: Vec<Analysis>,
}

/// Refusals of analyses.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum AnalysisRefusal {
    /// The server takes no analyses, or not with this token
    #[response(status = 403)]
    None(#[to_schema] Failure),
    /// No such analysis
    #[response(status = 404)]
    Unknown(#[to_schema] Failure),
}

/// Refusals of requests for a result.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum ValuesRefusal {
    /// The analysis has no result, or not yet
    #[response(status = 409)]
    None(#[to_schema] Failure),
}

type Wanted = Result<Path<u64>, PathRejection>;

fn id_of(path: Wanted) -> Result<u64, Refusal> {
    let Path(id) = path.map_err(|_| Refusal::unknown("no analysis of this id"))?;
    Ok(id)
}

fn analyses(shared: &Shared) -> Result<&Analyses, Refusal> {
    shared.analyses.as_ref().ok_or_else(|| {
        let text = "this server takes no analyses; start it with `analyses`";
        Refusal::new(StatusCode::FORBIDDEN, text)
    })
}

/// Starts an analysis of the graph in its current state.
#[utoipa::path(
    post,
    path = "/graph/analyses",
    tag = "graph",
    request_body(content = AnalysisRequest, example = json!({
        "algorithm": "pagerank", "damping": 0.85
    })),
    responses(
        (status = 202, body = Analysis, description = "It waits"),
        AnyRefusal,
        BodyRefusal,
        TypeRefusal,
        AnalysisRefusal,
        WorkRefusal
    )
)]
pub async fn start(
    State(shared): State<Arc<Shared>>,
    body: Body,
) -> Result<(StatusCode, Json<Analysis>), Refusal> {
    let analyses = analyses(&shared)?;
    let body = shared.bodies.read(body, MOST_BODY).await?;
    let decode = |body: &[u8], memory: &mut Memory| {
        check_sizes(body)?;
        memory.take(A_BYTE * body.len())?;
        serde_json::from_slice::<Algorithm>(body)
            .map_err(|error| Refusal::wrong(format!("the body is no analysis: {error}")))
    };
    let (algorithm, _memory) = shared.bodies.decode(body, decode).await?;
    let nodes = shared.graph.view().num_nodes();
    algorithm.validate(nodes).map_err(|error| Refusal::wrong(error.one_line()))?;
    Ok((StatusCode::ACCEPTED, Json(analyses.submit(algorithm)?)))
}

/// Lists the analyses of the server.
#[utoipa::path(
    get,
    path = "/graph/analyses",
    tag = "graph",
    responses((status = 200, body = AnalysesAnswer), AnyRefusal, AnalysisRefusal)
)]
pub async fn all(State(shared): State<Arc<Shared>>) -> Result<Json<AnalysesAnswer>, Refusal> {
    Ok(Json(AnalysesAnswer { analyses: analyses(&shared)?.all() }))
}

/// Progress of an analysis and facts about its result.
#[utoipa::path(
    get,
    path = "/graph/analyses/{id}",
    tag = "graph",
    params(Id),
    responses((status = 200, body = Analysis), AnyRefusal, AnalysisRefusal)
)]
pub async fn one(
    State(shared): State<Arc<Shared>>,
    path: Wanted,
) -> Result<Json<Analysis>, Refusal> {
    Ok(Json(analyses(&shared)?.one(id_of(path)?)?))
}

/// Cancels and removes an analysis.
#[utoipa::path(
    delete,
    path = "/graph/analyses/{id}",
    tag = "graph",
    params(Id),
    responses((status = 204, description = "It is gone"), AnyRefusal, AnalysisRefusal)
)]
pub async fn remove(
    State(shared): State<Arc<Shared>>,
    path: Wanted,
) -> Result<StatusCode, Refusal> {
    analyses(&shared)?.remove(id_of(path)?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The result of an analysis as NumPy's `.npy`: one value per node, by node id.
#[utoipa::path(
    get,
    path = "/graph/analyses/{id}/values",
    tag = "graph",
    params(Id),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        AnyRefusal,
        AnalysisRefusal,
        ValuesRefusal
    )
)]
pub async fn values(State(shared): State<Arc<Shared>>, path: Wanted) -> Result<Response, Refusal> {
    let values = analyses(&shared)?.values(id_of(path)?)?;
    // Each client has a separate file handle, so it reads from the beginning.
    let opened = File::open(values.path()).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|error| {
        shared.failures.note(&error.into());
        Refusal::failed()
    })?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(read_all(file, sender));
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, length.to_string()),
    ];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Sends the bytes of a file as fast as the client takes them. Stops when the client disconnects.
/// It occupies a thread only while it reads, not while it waits for the client.
async fn read_all(mut file: File, sender: mpsc::Sender<std::io::Result<Bytes>>) {
    while let Ok(place) = sender.reserve().await {
        let read = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; CHUNK];
            let read = file.read(&mut chunk);
            let part = read.map(|count| {
                chunk.truncate(count);
                Bytes::from(chunk)
            });
            (part, file)
        });
        let Ok((part, rest)) = read.await else { return };
        file = rest;
        match part {
            Ok(part) if part.is_empty() => return,
            Ok(part) => place.send(Ok(part)),
            Err(error) => {
                place.send(Err(error));
                return;
            }
        }
    }
}
