//! Every kind of layer with numbers that can be checked by hand.

mod common;

use common::{Sampled, Shape};
use outercore_infer::Answer;
use serde_json::json;

/// One hop around seeds, whose neighbours are given by local number.
fn one_hop(nodes: usize, neighbours: &[&[u32]], degrees: &[f32]) -> Sampled {
    let seeds = neighbours.len();
    let sources = neighbours.concat();
    Sampled {
        nodes: (0..nodes as u64).collect(),
        nodes_per_hop: vec![seeds as u64, (nodes - seeds) as u64],
        edges_per_hop: vec![sources.len() as u64],
        picked: neighbours.iter().map(|one| one.len() as u32).collect(),
        sources,
        degrees: degrees.to_vec(),
    }
}

fn seeds_alone(count: usize) -> Sampled {
    Sampled {
        nodes: (0..count as u64).collect(),
        nodes_per_hop: vec![count as u64],
        degrees: vec![0.0; count],
        ..Sampled::default()
    }
}

#[track_caller]
fn close(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for (one, other) in actual.iter().zip(expected) {
        assert!((one - other).abs() < 1e-4, "{actual:?}, expected {expected:?}");
    }
}

#[test]
fn sage_adds_the_mean_of_the_neighbours_and_the_node() {
    let model = Shape::default()
        .with(&[
            ("layers.0.neighbours.weight", &[1, 1], &[2.0]),
            ("layers.0.neighbours.bias", &[1], &[0.5]),
            ("layers.0.own.weight", &[1, 1], &[3.0]),
        ])
        .model();
    let batch = one_hop(4, &[&[2, 3], &[]], &[0.0; 4]);
    let logits = model.forward(&batch.view(), &[1.0, 2.0, 4.0, 6.0]).unwrap();
    // 2 * 5 + 0.5 + 3 * 1, and a node without neighbours: 0.5 + 3 * 2.
    close(&logits, &[13.5, 6.5]);
    assert!(model.counts_loops() && !model.needs_degrees());
}

#[test]
fn gcn_weighs_by_degrees_in_the_whole_graph_and_scales_the_sample_up() {
    let model = Shape { kind: "gcn", ..Shape::default() }
        .with(&[
            ("layers.0.linear.weight", &[1, 1], &[2.0]),
            ("layers.0.linear.bias", &[1], &[1.0]),
        ])
        .model();
    // Two of three neighbours; the self-loop does not count as a neighbour.
    let batch = one_hop(3, &[&[1, 0, 2]], &[3.0, 0.0, 3.0]);
    let logits = model.forward(&batch.view(), &[10.0, 1.0, 8.0]).unwrap();
    // Roots of degree + 1 are 1/2, 1, 1/2: 3/2 * 1/2 * (1 + 8/2) + 10/4 = 6.25, times 2, plus 1.
    close(&logits, &[13.5]);
    assert!(!model.counts_loops() && model.needs_degrees());
}

#[test]
fn gin_scales_the_sum_of_the_sample_up_and_counts_loops() {
    let model = Shape { kind: "gin", outputs: 2, ..Shape::default() }
        .with(&[
            ("layers.0.eps", &[1], &[0.5]),
            ("layers.0.first.weight", &[2, 1], &[1.0, -1.0]),
            ("layers.0.first.bias", &[2], &[0.0, 1.0]),
            ("layers.0.second.weight", &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
            ("layers.0.second.bias", &[2], &[0.5, 0.0]),
        ])
        .model();
    let batch = one_hop(2, &[&[0, 1]], &[6.0, 0.0]);
    let logits = model.forward(&batch.view(), &[2.0, 2.0]).unwrap();
    // 6/2 * (2 + 2) + 1.5 * 2 = 15; then [15, -14], [15, 0], [15.5, 45].
    close(&logits, &[15.5, 45.0]);
    assert!(model.counts_loops() && model.needs_degrees());
}

#[test]
fn gat_weighs_neighbours_and_the_node_by_a_softmax_over_leaky_scores() {
    let two = 2.0_f32.ln();
    let model = Shape { kind: "gat", heads: 2, hidden: 2, ..Shape::default() }
        .with(&[
            ("layers.0.linear.weight", &[2, 1], &[1.0, 2.0]),
            ("layers.0.source_attention", &[2, 1], &[two, 0.0]),
            ("layers.0.target_attention", &[2, 1], &[0.0, 0.0]),
            ("layers.0.bias", &[1], &[1.0]),
        ])
        .model();
    // The second seed has a self-loop in addition to the one that the layer adds.
    let batch = one_hop(4, &[&[2], &[3, 1]], &[0.0; 4]);
    let logits = model.forward(&batch.view(), &[0.0, 0.0, 1.0, -5.0]).unwrap();
    // Head 0 weights 2 : 1, head 1 weights equally: ((2/3) * 1 + (1/2) * 2) / 2 + 1. The second
    // seed's score is -5 ln 2, of which LeakyReLU keeps a fifth: ((-5/2) / (3/2) + -5) / 2 + 1.
    close(&logits, &[11.0 / 6.0, -7.0 / 3.0]);
    assert!(!model.counts_loops() && !model.needs_degrees());
}

#[test]
fn gat_has_heads_side_by_side_between_layers() {
    let model = Shape { kind: "gat", heads: 2, hidden: 2, jumping: "cat", ..Shape::default() }
        .with(&[
            ("layers.0.linear.weight", &[2, 1], &[1.0, 2.0]),
            ("layers.0.source_attention", &[2, 1], &[0.0, 0.0]),
            ("layers.0.target_attention", &[2, 1], &[0.0, 0.0]),
            ("layers.0.bias", &[2], &[1.0, 2.0]),
            ("head.weight", &[1, 2], &[10.0, 1.0]),
            ("head.bias", &[1], &[0.0]),
        ])
        .model();
    let logits = model.forward(&one_hop(2, &[&[1]], &[0.0; 2]).view(), &[1.0, 3.0]).unwrap();
    // The mean is 2: 10 * (2 + 1) + (4 + 2).
    close(&logits, &[36.0]);
}

fn perceptron(norm: &'static str, parts: &[(&str, &[usize], &[f32])]) -> Vec<f32> {
    let mut tensors = vec![
        ("layers.0.linear.weight", &[2, 1][..], &[1.0, 3.0][..]),
        ("layers.0.linear.bias", &[2], &[0.0, 0.0]),
        ("layers.1.linear.weight", &[1, 2], &[5.0, 7.0]),
        ("layers.1.linear.bias", &[1], &[0.5]),
    ];
    tensors.extend(parts);
    let shape = Shape { kind: "mlp", layers: 2, hidden: 2, norm, ..Shape::default() };
    let model = shape.with(&tensors).model();
    assert_eq!(model.hops(), 0);
    model.forward(&seeds_alone(2).view(), &[1.0, -1.0]).unwrap()
}

#[test]
fn mlp_looks_at_the_node_alone_and_rectifies_between_layers() {
    close(&perceptron("none", &[]), &[26.5, 0.5]);
}

#[test]
fn layer_norm_takes_the_mean_and_deviation_of_each_node() {
    // [1, 3] becomes [-1, 1], of which 1 remains; [-1, -3] becomes [1, -1].
    let ones: &[f32] = &[1.0, 1.0];
    let found = perceptron(
        "layer",
        &[("layers.0.norm.weight", &[2], ones), ("layers.0.norm.bias", &[2], &[0.0, 0.0])],
    );
    close(&found, &[7.5, 5.5]);
}

#[test]
fn batch_norm_takes_the_statistics_of_the_training() {
    let found = perceptron(
        "batch",
        &[
            ("layers.0.norm.weight", &[2], &[2.0, 1.0]),
            ("layers.0.norm.bias", &[2], &[0.0, 1.0]),
            ("layers.0.norm.mean", &[2], &[0.0, 1.0]),
            ("layers.0.norm.variance", &[2], &[4.0, 1.0]),
        ],
    );
    // [1, 3] stays [1, 3], and [-1, -3] stays [-1, -3].
    close(&found, &[26.5, 0.5]);
}

fn jumping(jumping: &'static str, head: &[f32]) -> Vec<f32> {
    Shape { layers: 2, jumping, ..Shape::default() }
        .with(&[
            ("layers.0.neighbours.weight", &[1, 1], &[0.0]),
            ("layers.0.neighbours.bias", &[1], &[0.0]),
            ("layers.0.own.weight", &[1, 1], &[2.0]),
            ("layers.1.neighbours.weight", &[1, 1], &[0.0]),
            ("layers.1.neighbours.bias", &[1], &[8.0]),
            ("layers.1.own.weight", &[1, 1], &[-1.0]),
            ("head.weight", &[1, head.len()], head),
            ("head.bias", &[1], &[0.5]),
        ])
        .model()
        .forward(
            &Sampled {
                nodes: vec![0, 1],
                nodes_per_hop: vec![2, 0, 0],
                edges_per_hop: vec![0, 0],
                picked: vec![0, 0],
                degrees: vec![0.0; 2],
                ..Sampled::default()
            }
            .view(),
            &[3.0, 5.0],
        )
        .unwrap()
}

#[test]
fn jumping_joins_the_states_of_all_layers() {
    // The states are 6 and 2; those of the other seed are 10 and 0.
    close(&jumping("cat", &[1.0, 10.0]), &[26.5, 10.5]);
    close(&jumping("max", &[1.0]), &[6.5, 10.5]);
}

#[test]
fn residual_adds_a_linear_map_of_the_input() {
    let model = Shape { residual: true, ..Shape::default() }
        .with(&[
            ("layers.0.neighbours.weight", &[1, 1], &[2.0]),
            ("layers.0.neighbours.bias", &[1], &[0.0]),
            ("layers.0.own.weight", &[1, 1], &[0.0]),
            ("layers.0.skip.weight", &[1, 1], &[100.0]),
            ("layers.0.skip.bias", &[1], &[7.0]),
        ])
        .model();
    let logits = model.forward(&one_hop(2, &[&[1]], &[0.0; 2]).view(), &[1.0, 3.0]).unwrap();
    close(&logits, &[113.0]);
}

fn answer(task: serde_json::Value, logits: &[f32]) -> Answer {
    let mut draft = Shape { kind: "mlp", outputs: 2, ..Shape::default() }.with(&[
        ("layers.0.linear.weight", &[2, 1], &[0.0, 0.0]),
        ("layers.0.linear.bias", &[2], &[0.0, 0.0]),
    ]);
    draft.manifest["task"] = task;
    draft.model().read_out(logits)
}

#[test]
fn classes_are_the_most_probable_ones() {
    let task = json!({"kind": "classes", "names": ["a", "b"], "means": [], "deviations": []});
    let two = 2.0_f32.ln();
    let found = answer(task, &[1.0, 1.0 + two, 500.0, 500.0, -200.0, f32::NAN]);
    let Answer::Classes { classes, probabilities } = found else { panic!("{found:?}") };
    assert_eq!(classes, [1, 0, 1]);
    close(&probabilities[..4], &[1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5]);
    assert!(probabilities[4..].iter().all(|one| one.is_nan()));
}

#[test]
fn labels_are_those_above_one_half() {
    let task = json!({"kind": "labels", "names": [], "means": [], "deviations": []});
    let found = answer(task, &[3.0_f32.ln(), 0.0, -1000.0, 1000.0]);
    let Answer::Labels { labels, probabilities } = found else { panic!("{found:?}") };
    assert_eq!(labels, [1, 0, 0, 1]);
    close(&probabilities, &[0.75, 0.5, 0.0, 1.0]);
}

#[test]
fn values_are_in_the_unit_of_the_labels() {
    let task =
        json!({"kind": "values", "names": [], "means": [10.0, -1.0], "deviations": [2.0, 0.5]});
    let found = answer(task, &[1.0, 2.0, 0.0, 0.0]);
    assert_eq!(found, Answer::Values { values: vec![12.0, 0.0, 10.0, -1.0] });
    let task = json!({"kind": "values", "names": [], "means": [], "deviations": []});
    assert_eq!(answer(task, &[1.0, 2.0]), Answer::Values { values: vec![1.0, 2.0] });
}
