//! Types of requests and answers for the OpenAPI description.

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

/// The body of every error answer.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct Failure {
    /// What was expected and what was found.
    error: String,
    /// `unknown`: the request may take effect although it failed.
    outcome: Option<String>,
}

/// State of a server that answers requests but could not write its last update.
#[derive(Serialize, ToSchema)]
pub struct WritesFail {
    /// Always `true`.
    pub writes_fail: bool,
}

/// Refusals of any request.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum AnyRefusal {
    /// No token, or an unknown one
    #[response(status = 401, headers(("WWW-Authenticate" = String, description = "Bearer")))]
    NoToken(#[to_schema] Failure),
    /// The header `Host` names another host, or a web page of another site sent the request
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

/// Refusals of requests that are sent with `POST`.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum TypeRefusal {
    /// The header `Content-Type` names a type that the route does not take
    #[response(status = 415)]
    Other(#[to_schema] Failure),
}

/// Refusals of requests that wait in a queue.
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

/// Refusals to load a model.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "a description")]
pub enum LoadRefusal {
    /// The new model cannot replace the model that is served
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

/// Inputs, outputs and version of a model.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct ModelAnswer {
    name: String,
    versions: Vec<String>,
    platform: String,
    /// `precision`: `float32` or `int8`. `loss`: the loss of int8 on a sample as `measure`,
    /// `points` and `sample`, else null. `inline`: tensors of inline requests. `lsn`, and without
    /// updates `age_ms`, as in answers.
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
    /// -1 stands for any size.
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
    /// Its name.
    name: String,
    datatype: String,
    /// Size of each dimension.
    shape: Vec<i64>,
    /// Its values: flat, or as nested lists that match the shape.
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
    /// Idempotency key of at most 64 bytes. A second request with the same key gets the first
    /// answer again and changes nothing.
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
        /// The graph that the node joins, in a data set of many graphs.
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
        /// The values of each node.
        nodes: Vec<Map<String, Value>>,
        #[serde(default)]
        edges: Option<Vec<EdgeWithin>>,
    },
    UnregisterGraph {
        graph: u64,
    },
}

/// An edge of a graph to register.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a description")]
struct EdgeWithin {
    /// Place of the source among the nodes of the graph, from 0.
    source: u64,
    /// Place of the target among the nodes of the graph, from 0.
    target: u64,
    #[serde(default)]
    values: Option<Map<String, Value>>,
}

/// Options of an inference request.
#[derive(serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "a description")]
pub struct Parameters {
    /// Seed of the sampler, 0 by default.
    seed: Option<u64>,
    /// LSN of the oldest update that the answer must include.
    min_lsn: Option<u64>,
    /// Longest time for the answer, in milliseconds.
    deadline_ms: Option<u64>,
    /// How the request lists inline edges of an undirected graph: `one` lists each edge once,
    /// `both` lists it in both directions.
    edge_directions: Option<String>,
}

/// Predictions.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct InferAnswer {
    model_name: String,
    model_version: String,
    /// The id of the request.
    id: Option<String>,
    /// `seed`, and `lsn`: the LSN of the last update that the answer includes. Without updates also
    /// `age_ms`: how long ago the server read the graph.
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
