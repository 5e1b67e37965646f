//! Fuzz tests of client bodies and messages with arbitrary bytes.

use outercore_server::fuzz;
use outercore_testkit::fuzz::{keep, run};

#[test]
fn any_bytes_as_an_inference_request() {
    run("infer_body", fuzz::infer);
}

#[test]
fn any_bytes_as_an_inference_call() {
    run("infer_call", fuzz::call);
}

#[test]
fn any_bytes_as_updates() {
    run("update_body", fuzz::update_bodies);
}

const INFER: [(&str, &str); 9] = [
    (
        "nodes",
        r#"{"inputs": [{"name": "node_ids", "datatype": "INT64", "shape": [3], "data": [1, 9, 4]}]}"#,
    ),
    (
        "pairs",
        r#"{"inputs": [{"name": "edge_ids", "datatype": "UINT32", "shape": [2, 2], "data": [[0, 1], [2, 3]]}]}"#,
    ),
    (
        "graphs",
        r#"{"id": "a", "inputs": [{"name": "graph_ids", "datatype": "INT32", "shape": [2], "data": [0, 2]}]}"#,
    ),
    (
        "parameters",
        r#"{"parameters": {"seed": 7, "min_lsn": 0, "deadline_ms": null}, "inputs": [{"name": "node_ids", "datatype": "INT64", "shape": [1], "data": [5]}], "outputs": [{"name": "probability", "parameters": {"binary_data": true}}]}"#,
    ),
    (
        "inline",
        r#"{"parameters": {"edge_directions": "both"}, "inputs": [{"name": "node_ids", "datatype": "INT64", "shape": [2], "data": [-1, 3]}, {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [[0.5, -1e3]]}, {"name": "edge_index", "datatype": "INT64", "shape": [2, 2], "data": [[-1, 4], [4, -1]]}]}"#,
    ),
    (
        "inline_graphs",
        r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [3, 2], "data": [0, 1, 2, 3, 4, 5]}, {"name": "edge_index", "datatype": "INT64", "shape": [2, 1], "data": [0, 1]}, {"name": "batch", "datatype": "INT64", "shape": [3], "data": [0, 0, 1]}]}"#,
    ),
    (
        "bytes",
        "{\"inputs\": [{\"name\": \"node_ids\", \"datatype\": \"INT64\", \"shape\": [1], \"parameters\": {\"binary_data_size\": 8}}]}\u{3}\0\0\0\0\0\0\0",
    ),
    ("escapes", r#"{"id": "a\"\u00e9\\", "inputs": []}"#),
    ("empty", "{}"),
];

const UPDATES: [(&str, &str); 6] = [
    (
        "edges",
        r#"{"updates": [{"op": "add_edge", "source": 1, "target": 2}, {"op": "remove_edge", "source": 0, "target": 1}], "key": "a-1"}"#,
    ),
    (
        "weighted",
        r#"{"updates": [{"op": "add_edge", "source": 1, "target": 2, "values": {"weight": 0.5}}]}"#,
    ),
    (
        "nodes",
        r#"{"updates": [{"op": "add_node", "values": {"x": [1, 2.5, -3], "y": 2, "year": 1999}}, {"op": "add_edge", "source": {"new": 0}, "target": 3}]}"#,
    ),
    (
        "changed",
        r#"{"updates": [{"op": "update_node", "node": 1, "values": {"x": [0, 0, 1e-3], "y": -1}}, {"op": "remove_node", "node": 4}]}"#,
    ),
    (
        "graph",
        r#"{"updates": [{"op": "register_graph", "values": {"y": 1}, "nodes": [{"x": [1, 2, 3]}, {"x": [4, 5, 6], "y": 0}], "edges": [{"source": 0, "target": 1, "values": {"weight": 1}}]}]}"#,
    ),
    (
        "gone",
        r#"{"updates": [{"op": "unregister_graph", "graph": 1}, {"op": "add_node", "graph": 0, "values": {"x": [7, 8, 9]}}]}"#,
    ),
];

#[test]
#[ignore = "writes `fuzz/corpus`"]
fn write_the_first_inputs() {
    for (name, body) in INFER {
        keep("infer_body", name, body.as_bytes());
    }
    for (name, body) in UPDATES {
        keep("update_body", name, body.as_bytes());
    }
    for (name, message) in calls() {
        keep("infer_call", name, &message);
    }
}

/// A field of a message that holds fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8][..], bytes].concat()
}

/// Messages with node ids as bytes, node ids as numbers, a parameter, and inline nodes.
fn calls() -> [(&'static str, Vec<u8>); 4] {
    let tensor = |name: &str, datatype: &str, shape: &[u8], contents: &[u8]| {
        let parts = [field(1, name.as_bytes()), field(2, datatype.as_bytes()), field(3, shape)];
        let contents = if contents.is_empty() { Vec::new() } else { field(5, contents) };
        field(5, &[parts.concat(), contents].concat())
    };
    let raw = [tensor("node_ids", "INT64", &[1], &[]), field(7, &7u64.to_le_bytes())].concat();
    let numbers = tensor("edge_ids", "INT64", &[1, 2], &field(3, &[1, 4]));
    // An int64 parameter: a pair of a name and a value.
    let seed = field(4, &[field(1, b"seed"), field(2, &[2 << 3, 9])].concat());
    let output = field(6, &field(1, b"prediction"));
    let floats = [0.5f32, 2.0].map(f32::to_le_bytes).concat();
    let inline = [
        tensor("x", "FP32", &[1, 2], &field(6, &floats)),
        tensor("batch", "UINT32", &[1], &field(4, &[0])),
    ];
    [
        ("raw", raw),
        ("numbers", numbers.clone()),
        ("parameter", [field(1, b"m"), field(3, b"id"), seed, numbers, output].concat()),
        ("inline", inline.concat()),
    ]
}
