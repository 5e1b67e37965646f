//! What requests and answers look like in the OpenAPI description.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::{IntoParams, IntoResponses, ToSchema};

use crate::updates::Place;

/// A model in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "a description")]
pub struct Model {
    /// Name of the model.
    model: String,
}

/// Every answer that is not the one asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct Failure {
    /// What was expected, and what was found.
    error: String,
    /// `unknown`: what was asked for may take effect all the same.
    outcome: Option<String>,
}

/// A server that answers requests, and whose last update could not be written.
#[derive(Serialize, ToSchema)]
pub struct WritesFail {
    /// Always `true`.
    pub writes_fail: bool,
}

/// Refusals of any request.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum AnyRefusal {
    /// No token, or one that is not known
    #[response(status = 401, headers(("WWW-Authenticate" = String, description = "Bearer")))]
    NoToken(#[to_schema] Failure),
    /// The header `Host` names another host, or a web page of another site has sent the request
    #[response(status = 403)]
    OtherHost(#[to_schema] Failure),
}

/// Refusals of requests about a model.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum ModelRefusal {
    /// No such model, version or node
    #[response(status = 404)]
    Unknown(#[to_schema] Failure),
}

/// Refusals of requests with a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum BodyRefusal {
    /// The request is wrong
    #[response(status = 400)]
    Wrong(#[to_schema] Failure),
    /// The body comes too slowly
    #[response(status = 408)]
    Slow(#[to_schema] Failure),
    /// The body is too long
    #[response(status = 413)]
    Long(#[to_schema] Failure),
}

/// Refusals of requests that are sent by `POST`.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum TypeRefusal {
    /// The header `Content-Type` names another type than the route takes
    #[response(status = 415)]
    Other(#[to_schema] Failure),
}

/// Refusals of requests that wait for work.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum WorkRefusal {
    /// Too many requests wait
    #[response(status = 429, headers(("Retry-After" = u64, description = "Seconds")))]
    Overloaded(#[to_schema] Failure),
    /// The server failed
    #[response(status = 500)]
    Failed(#[to_schema] Failure),
    /// The server is stopping, or the disk takes no updates
    #[response(status = 503)]
    Stopping(#[to_schema] Failure),
}

/// Refusals of loads.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum LoadRefusal {
    /// The model does not fit in the place of the one that is served
    #[response(status = 409)]
    Other(#[to_schema] Failure),
}

/// Refusals of inference requests.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum InferRefusal {
    /// The graph has not yet seen update `min_lsn`
    #[response(status = 412)]
    TooEarly(#[to_schema] Failure),
    /// The deadline passed
    #[response(status = 504)]
    Late(#[to_schema] Failure),
}

/// Refusals of updates and compactions.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum UpdateRefusal {
    /// The server takes no updates, or not with this token
    #[response(status = 403)]
    ReadOnly(#[to_schema] Failure),
    /// No such node
    #[response(status = 404)]
    Unknown(#[to_schema] Failure),
    /// The disk is full
    #[response(status = 507)]
    Full(#[to_schema] Failure),
}

/// Name and version of the server.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct ServerAnswer {
    name: String,
    version: String,
    extensions: Vec<String>,
}

/// What a model takes and gives.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct ModelAnswer {
    name: String,
    versions: Vec<String>,
    platform: String,
    /// `precision`: `float32` or `int8`; `loss`: what int8 loses on a sample, `measure`, `points`
    /// and `sample`, else null; `inline`: tensors of inline requests; `lsn`, and without updates
    /// `age_ms`, as in answers.
    parameters: Map<String, Value>,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
}

/// Type and shape of a tensor.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct TensorType {
    name: String,
    datatype: String,
    /// -1: any extent.
    shape: Vec<i64>,
}

/// An inference request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct InferRequest {
    /// Repeated in the answer.
    id: Option<String>,
    parameters: Option<Parameters>,
    inputs: Vec<Input>,
    outputs: Option<Vec<WantedOutput>>,
}

/// A tensor of a request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct Input {
    /// What it is.
    name: String,
    datatype: String,
    /// Its extents.
    shape: Vec<i64>,
    /// Its values, flat or as lists in lists, nested as the shape says.
    data: Vec<Value>,
}

/// An output that a request wants.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct WantedOutput {
    name: String,
}

/// Updates that take effect together.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a description")]
pub struct UpdateRequest {
    updates: Vec<Change>,
    /// A name of the request, of 64 bytes at most: with the same one again the first answer comes
    /// again, and nothing changes.
    #[serde(default)]
    key: Option<String>,
}

/// An update as a client writes it.
#[derive(serde::Deserialize, ToSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
#[expect(dead_code, reason = "a description")]
enum Change {
    AddEdge {
        source: Place,
        target: Place,
        #[serde(default)]
        values: Option<Map<String, Value>>,
    },
    RemoveEdge {
        source: Place,
        target: Place,
    },
    AddNode {
        /// The graph that it joins, in a data set of many.
        graph: Option<u64>,
        #[serde(default)]
        values: Option<Map<String, Value>>,
    },
    RemoveNode {
        node: Place,
    },
    UpdateNode {
        node: Place,
        values: Map<String, Value>,
    },
    RegisterGraph {
        #[serde(default)]
        values: Option<Map<String, Value>>,
        /// Of each node, its values.
        nodes: Vec<Map<String, Value>>,
        #[serde(default)]
        edges: Option<Vec<EdgeWithin>>,
    },
    UnregisterGraph {
        graph: u64,
    },
}

/// An edge of a graph that is registered.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a description")]
struct EdgeWithin {
    /// Place among the nodes of the graph, from 0.
    source: u64,
    /// Likewise.
    target: u64,
    #[serde(default)]
    values: Option<Map<String, Value>>,
}

/// What a request says besides its tensors.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a description")]
pub struct Parameters {
    /// Seed of the sampler, 0 by default.
    seed: Option<u64>,
    /// The oldest update that the answer must have seen.
    min_lsn: Option<u64>,
    /// How long the answer may take.
    deadline_ms: Option<u64>,
    /// How inline edges of an undirected graph are listed: `one`, each once, or `both`, each in both
    /// directions.
    edge_directions: Option<String>,
}

/// Predictions.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct InferAnswer {
    model_name: String,
    model_version: String,
    /// That of the request.
    id: Option<String>,
    /// `seed`, and `lsn`: the last update that the answer has seen. Without updates also `age_ms`:
    /// how long ago the server has read the graph.
    parameters: Map<String, Value>,
    outputs: Vec<Tensor>,
}

/// A tensor with its values, flat in row-major order.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct Tensor {
    name: String,
    datatype: String,
    shape: Vec<u64>,
    data: Vec<f64>,
}
