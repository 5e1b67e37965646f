//! Heads for pairs and graphs, and learnt inputs, checked by hand.

mod common;

use common::{Draft, Shape};
use outercore_core::ErrorKind;
use outercore_infer::{Answer, Model, Subgraph};
use serde_json::{Value, json};

/// A network that passes two values on unchanged, with other members of the manifest.
fn identity(changes: &[(&str, Value)], tensors: &[(&str, &[usize], &[f32])]) -> Draft {
    let shape = Shape { kind: "mlp", features: 2, outputs: 2, ..Shape::default() };
    let mut all: Vec<(&str, &[usize], &[f32])> = vec![
        ("layers.0.linear.weight", &[2, 2], &[1.0, 0.0, 0.0, 1.0]),
        ("layers.0.linear.bias", &[2], &[0.0, 0.0]),
    ];
    all.extend(tensors);
    let mut draft = shape.with(&all);
    draft.manifest["version"] = json!(2);
    for (place, value) in changes {
        let (parent, name) = place.rsplit_once('/').unwrap();
        draft.manifest.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    draft
}

fn states(model: &Model, nodes: &[u64], x: &[f32]) -> outercore_core::Result<Vec<f32>> {
    let subgraph = Subgraph {
        nodes,
        nodes_per_hop: &[nodes.len() as u64],
        edges_per_hop: &[],
        sources: &[],
        picked: &[],
        degrees: None,
    };
    model.forward(&subgraph, x)
}

#[test]
fn pairs_are_scored_by_each_head() {
    let links: (&str, Value) = ("/task/kind", json!("links"));
    let head = |score: &str| ("/head", json!({"kind": "pairs", "score": score}));
    let x = [1.0, 2.0, 3.0, -1.0];
    // Products: for nodes 0 and 1 they are 3 and -2, for node 1 with itself 9 and 1.
    let pairs = [(0, 1), (1, 0), (1, 1)];
    let mlp: [(&str, &[usize], &[f32]); 4] = [
        ("pairs.first.weight", &[2, 2], &[1.0, 0.0, 0.0, 1.0]),
        ("pairs.first.bias", &[2], &[0.5, 0.0]),
        ("pairs.second.weight", &[1, 2], &[1.0, 10.0]),
        ("pairs.second.bias", &[1], &[-1.0]),
    ];
    let diagonal: [(&str, &[usize], &[f32]); 1] = [("pairs.diagonal", &[2], &[1.0, 0.5])];
    for (score, tensors, expected) in [
        ("dot", &[][..], [1.0, 1.0, 10.0]),
        ("diagonal", &diagonal[..], [2.0, 2.0, 9.5]),
        ("mlp", &mlp[..], [2.5, 2.5, 18.5]),
    ] {
        let model = identity(&[links.clone(), head(score)], tensors).model();
        assert_eq!((model.width(), model.outputs(), model.features()), (2, 1, 2));
        let states = states(&model, &[7, 8], &x).unwrap();
        let found = model.score(&states, &pairs).unwrap();
        assert_eq!(found, expected, "{score}");
        let Answer::Links { scores, probabilities } = model.read_out(&found) else { panic!() };
        assert_eq!(scores, expected);
        assert!((probabilities[0] - 1.0 / (1.0 + (-expected[0]).exp())).abs() < 1e-6);
        let error = model.score(&states, &[(0, 2)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(model.of_graphs(&states, &[2]).is_err());
    }
}

#[test]
fn graphs_are_read_out_by_sum_mean_and_largest() {
    let tensors: [(&str, &[usize], &[f32]); 4] = [
        ("graphs.first.weight", &[2, 2], &[1.0, 0.0, 0.0, 1.0]),
        ("graphs.first.bias", &[2], &[0.0, 0.0]),
        ("graphs.second.weight", &[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
        ("graphs.second.bias", &[3], &[0.0, 0.0, 0.5]),
    ];
    let x = [1.0, -4.0, 3.0, 2.0, 5.0, 6.0];
    for (readout, expected) in [
        ("sum", [4.0, 0.0, 4.5, 5.0, 6.0, 11.5]),
        ("mean", [2.0, 0.0, 2.5, 5.0, 6.0, 11.5]),
        ("max", [3.0, 2.0, 5.5, 5.0, 6.0, 11.5]),
    ] {
        let head = json!({"kind": "graphs", "readout": readout, "outputs": 3});
        let model = identity(&[("/head", head)], &tensors).model();
        let states = states(&model, &[0, 1, 2], &x).unwrap();
        assert_eq!(model.of_graphs(&states, &[2, 1]).unwrap(), expected, "{readout}");
        assert_eq!(model.outputs(), 3);
        for wrong in [&[3usize, 1][..], &[2], &[3, 0]] {
            assert!(model.of_graphs(&states, wrong).is_err());
        }
    }
}

#[test]
fn categories_and_tables_are_looked_up_and_unknown_ones_refused() {
    let tensors: [(&str, &[usize], &[f32]); 2] = [
        ("categories.0", &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
        ("categories.1", &[3, 2], &[0.0, 0.0, 10.0, 0.0, 0.0, 20.0]),
    ];
    let model = identity(&[("/input/categories", json!([2, 3]))], &tensors).model();
    assert_eq!(model.features(), 2);
    let found = states(&model, &[4, 5], &[1.0, 2.0, 0.0, 1.0]).unwrap();
    assert_eq!(found, [3.0, 24.0, 11.0, 2.0]);
    for wrong in [[2.0, 0.0], [0.5, 0.0], [-1.0, 0.0], [f32::NAN, 0.0]] {
        let error = states(&model, &[4], &wrong).unwrap_err();
        assert!(error.to_string().starts_with("node 4, column 0: category"), "{error}");
    }

    let table: [(&str, &[usize], &[f32]); 1] = [("table", &[2, 2], &[1.0, 2.0, 3.0, 4.0])];
    let model = identity(&[("/input/table", json!(2))], &table).model();
    assert_eq!(model.features(), 0);
    assert_eq!(states(&model, &[1, 0], &[]).unwrap(), [3.0, 4.0, 1.0, 2.0]);
    let error = states(&model, &[1, 2], &[]).unwrap_err();
    assert!(error.to_string().contains("node 2: the model has no embedding"), "{error}");
}

#[test]
fn an_in_degree_is_a_category_and_the_last_one_stands_for_more() {
    let shape = Shape { kind: "sage", features: 1, outputs: 1, ..Shape::default() };
    let mut draft = shape.with(&[
        ("layers.0.neighbours.weight", &[1, 1], &[0.0]),
        ("layers.0.neighbours.bias", &[1], &[0.0]),
        ("layers.0.own.weight", &[1, 1], &[1.0]),
        ("categories.0", &[3, 1], &[5.0, 6.0, 7.0]),
    ]);
    draft.manifest["version"] = json!(2);
    draft.manifest["input"]["categories"] = json!([3]);
    draft.manifest["input"]["degree"] = json!(true);
    let model = draft.model();
    assert_eq!(model.features(), 0);
    // Node 0 has no in-edges, node 1 has one, node 2 has three.
    let subgraph = Subgraph {
        nodes: &[0, 1, 2],
        nodes_per_hop: &[3, 0],
        edges_per_hop: &[4],
        sources: &[0, 0, 1, 2],
        picked: &[0, 1, 3],
        degrees: None,
    };
    assert_eq!(model.forward(&subgraph, &[]).unwrap(), [5.0, 6.0, 7.0]);
}

#[test]
fn members_that_do_not_go_together_are_refused() {
    let pairs = json!({"kind": "pairs", "score": "dot"});
    for (changes, text) in [
        (vec![("/head", pairs.clone())], "`links` and a head of pairs come together"),
        (vec![("/task/kind", json!("links"))], "`links` and a head of pairs come together"),
        (vec![("/head", json!({"kind": "pairs", "score": "cosine"}))], "unknown variant `cosine`"),
        (vec![("/input/degree", json!(true))], "expected one column of categories"),
        (
            vec![("/input/table", json!(2)), ("/input/categories", json!([2]))],
            "expected no categories beside it",
        ),
        (vec![("/version", json!(3))], "expected outercore-inference version 1 to 2"),
    ] {
        let (_directory, opened) = identity(&changes, &[]).open();
        let error = opened.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
