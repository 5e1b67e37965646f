//! Bodies of fuzz targets: they take any bytes and panic if a property does not hold.

use std::path::Path;
use std::sync::OnceLock;

use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse as _;
use outercore_core::ErrorKind;
use outercore_format::{DType, Manifest, Rows, Update};
use outercore_live::NEW_NODE;
use outercore_store::dataset::DataSet;
use outercore_store::delta::{ArrayShape, Schema};
use prost::Message;
use serde::de::IgnoredAny;
use tonic::Status;

use crate::asked::{Asked, Scope, Subject};
use crate::binary;
use crate::body::Memory;
use crate::grpc::request_of;
use crate::message_size::size_of_infer;
use crate::messages::{InferTensorContents, ModelInferRequest};
use crate::protocol::InferRequest;
use crate::refusal::Refusal;
use crate::updates;

const NODES: u64 = 10;
const GRAPHS: u64 = 3;
const MOST_NODES: u64 = 8;

/// The body of an inference request, as plain JSON and as JSON followed by bytes. An accepted body
/// is valid JSON, and its nodes exist.
pub fn infer(bytes: &[u8]) {
    check_infer(&HeaderMap::new(), bytes, bytes);
    // The JSON part ends at the last object of the body, or in the middle of the body.
    for end in [bytes.iter().rposition(|&byte| byte == b'}'), Some(bytes.len() / 2)] {
        let length = end.map_or(0, |end| (end + 1).min(bytes.len()));
        let name = "inference-header-content-length";
        let headers = [(name.parse().expect("a name"), HeaderValue::from(length))];
        check_infer(&headers.into_iter().collect(), &bytes[..length], bytes);
    }
}

fn check_infer(headers: &HeaderMap, json: &[u8], body: &[u8]) {
    match binary::read(headers, body) {
        Ok((request, _)) => {
            serde_json::from_slice::<IgnoredAny>(json).expect("what is taken is JSON");
            check_questions(&request);
        }
        Err(refusal) => is_told(&refusal),
    }
}

/// A message of an inference call. Its size in memory is known before it is decoded.
pub fn call(bytes: &[u8]) {
    let size = size_of_infer(bytes);
    if let Err(refusal) = &size {
        is_told(refusal);
    }
    let Ok(message) = ModelInferRequest::decode(bytes) else { return };
    let size = size.expect("what is decoded was measured before");
    assert!(size >= memory_of(&message), "{size} bytes expected, found {}", memory_of(&message));
    match request_of(&message, None) {
        Ok(request) => check_questions(&request),
        Err(refusal) => is_told(&refusal),
    }
}

/// A body with updates. An accepted body is JSON, fits the arrays, and survives the log unchanged.
pub fn update_bodies(bytes: &[u8]) {
    static DATA_SETS: OnceLock<Vec<(Manifest, Schema)>> = OnceLock::new();
    let data_sets = DATA_SETS.get_or_init(|| {
        // A data set of one graph, and one of many.
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
        let open = |name| {
            let data_set = DataSet::open(kept.join(name)).expect("it is in the repository");
            let schema = Schema::of(&data_set).expect("it takes updates");
            (data_set.manifest().clone(), schema)
        };
        ["format-1", "format-3"].map(open).into()
    });
    for (manifest, schema) in data_sets {
        let write = match updates::read(bytes, manifest, schema, &mut Memory::unlimited()) {
            Ok(write) => write,
            Err(refusal) => {
                is_told(&refusal);
                continue;
            }
        };
        serde_json::from_slice::<IgnoredAny>(bytes).expect("what is taken is JSON");
        assert!((1..=1 << 16).contains(&write.updates.len()));
        for update in &write.updates {
            rows_of(update).into_iter().for_each(|rows| check_rows(rows, schema));
            let mut written = Vec::new();
            update.encode(&mut written).expect("what is taken can be written");
            let mut rest = &written[..];
            assert_eq!(Update::decode(&mut rest).expect("what was written"), *update);
            assert!(rest.is_empty());
            if let Err(error) = schema.check_values(update) {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            }
        }
    }
}

/// Turns a request into a question for each kind of model.
fn check_questions(request: &InferRequest<'_>) {
    let shape = ArrayShape { dtype: DType::F32, columns: 2 };
    for subject in [Subject::Nodes, Subject::Edges, Subject::Graphs] {
        for features in [None, Some(shape)] {
            let scope = Scope {
                subject,
                num_nodes: NODES,
                is_undirected: features.is_some(),
                num_graphs: GRAPHS,
                most_nodes: MOST_NODES,
                features,
                outputs: &["prediction", "probability"],
            };
            let question = match request.question(&scope, &mut Memory::unlimited()) {
                Ok(question) => question,
                Err(refusal) => {
                    is_told(&refusal);
                    continue;
                }
            };
            let inline = question.inline.as_ref();
            let new = inline.map_or(0, |inline| inline.num_nodes());
            assert!(new <= MOST_NODES);
            let is_node = |&node: &u64| node < NODES || (NEW_NODE..NEW_NODE + new).contains(&node);
            assert!(question.nodes.iter().all(is_node), "{:?}", question.nodes);
            match &question.asked {
                Asked::Nodes => assert!((1..=MOST_NODES).contains(&(question.nodes.len() as u64))),
                Asked::Edges(pairs) => {
                    let is_place = |&place: &u32| (place as usize) < question.nodes.len();
                    assert!(pairs.iter().all(|(a, b)| is_place(a) && is_place(b)));
                }
                Asked::Graphs { graphs, .. } => assert!(graphs.iter().all(|&one| one < GRAPHS)),
            }
            assert!(question.outputs.len() <= scope.outputs.len());
        }
    }
}

/// All rows of an update.
fn rows_of(update: &Update) -> Vec<&Rows> {
    match update {
        Update::AddEdge { rows, .. }
        | Update::AddNode { rows, .. }
        | Update::UpdateNode { rows, .. } => vec![rows],
        Update::RegisterGraph { rows, nodes, edges } => {
            let edges = edges.iter().map(|edge| &edge.rows);
            std::iter::once(rows).chain(nodes).chain(edges).collect()
        }
        Update::RemoveEdge { .. } | Update::RemoveNode { .. } | Update::UnregisterGraph { .. } => {
            Vec::new()
        }
    }
}

fn check_rows(rows: &Rows, schema: &Schema) {
    for (key, row) in rows {
        let Schema { node_arrays, edge_arrays, graph_arrays, .. } = schema;
        let shape = [node_arrays, edge_arrays, graph_arrays].into_iter().find_map(|of| of.get(key));
        assert_eq!(row.len() as u64, shape.expect("an array that there is").row_bytes());
    }
}

/// Bytes of all values of a message.
fn memory_of(message: &ModelInferRequest) -> usize {
    let strings = |all: &[Vec<u8>]| all.iter().map(|one| size_of::<Vec<u8>>() + one.len()).sum();
    let contents = |of: &InferTensorContents| -> usize {
        let InferTensorContents { bool_contents: bools, int_contents: ints, .. } = of;
        let wide = of.int64_contents.len() + of.uint64_contents.len() + of.fp64_contents.len();
        let narrow = ints.len() + of.uint_contents.len() + of.fp32_contents.len();
        let bytes: usize = strings(&of.bytes_contents);
        bools.len() + 8 * wide + 4 * narrow + bytes
    };
    let inputs = message.inputs.iter().map(|input| {
        let content = input.contents.as_ref().map_or(0, contents);
        size_of_val(input) + 8 * input.shape.len() + input.name.len() + content
    });
    let outputs = message.outputs.iter().map(|output| size_of_val(output) + output.name.len());
    let raw: usize = strings(&message.raw_input_contents);
    inputs.sum::<usize>() + outputs.sum::<usize>() + raw
}

/// Checks that a refusal blames the client's input and gives a reason.
fn is_told(refusal: &Refusal) {
    assert!(refusal.clone().into_response().status().is_client_error(), "{refusal:?}");
    assert!(!Status::from(refusal.clone()).message().trim().is_empty(), "{refusal:?}");
}
