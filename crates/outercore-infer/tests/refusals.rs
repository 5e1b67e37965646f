//! Rejected models, with messages that name the place of the problem.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{Draft, Random, Sampled, Shape, write};
use outercore_core::ErrorKind;
use outercore_infer::{Model, Precision};
use safetensors::Dtype;
use serde_json::{Value, json};

fn draft() -> Draft {
    let shape = Shape {
        kind: "gat",
        layers: 2,
        features: 3,
        hidden: 4,
        outputs: 2,
        heads: 2,
        norm: "batch",
        ..Shape::default()
    };
    shape.random(&mut Random(1))
}

#[track_caller]
fn refused(draft: &Draft, kind: ErrorKind, parts: &[&str]) {
    let (dir, opened) = draft.open();
    let error = opened.expect_err(parts[0]);
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts.iter().chain(&[dir.path().to_str().unwrap(), "hint: "]) {
        assert!(text.contains(part), "{text}\nhas no `{part}`");
    }
}

#[test]
fn a_whole_model_is_accepted_and_known_by_its_digest() {
    let (_one, first) = draft().open();
    let (_other, second) = draft().open();
    let first = first.unwrap();
    assert!(first.version().starts_with("sha256:"));
    assert_eq!(first.version(), second.unwrap().version());
    assert_eq!((first.features(), first.outputs(), first.hops()), (3, 2, 2));
    let mut changed = draft();
    changed.tensors.get_mut("layers.0.bias").unwrap().1[0] += 1.0;
    assert_ne!(first.version(), changed.model().version());
}

#[test]
fn manifests_that_make_no_sense_are_refused() {
    let cases: &[(&str, Value, &str)] = &[
        ("/network/kind", json!("transformer"), "unknown variant `transformer`"),
        ("/network/kind", json!(7), "expected"),
        ("/network/kind", json!("sage"), "network.heads: expected 1 to 1, found 2"),
        ("/network/norm", json!("instance"), "unknown variant `instance`"),
        ("/network/jumping", json!("lstm"), "unknown variant `lstm`"),
        ("/network/layers", json!(0), "network.layers: expected 1 to 64, found 0"),
        ("/network/layers", json!(65), "network.layers"),
        ("/network/layers", json!(1), "input.fanout: expected 1 hops, found 2"),
        ("/network/layers", json!(-1), "invalid value"),
        ("/network/features", json!(0), "network.features"),
        ("/network/hidden", json!(5), "a multiple of the 2 attention heads"),
        ("/network/hidden", json!(u64::MAX), "network.hidden"),
        ("/network/outputs", json!(1_u64 << 40), "network.outputs"),
        ("/network/heads", json!(0), "network.heads"),
        ("/network/residual", json!("yes"), "expected a boolean"),
        ("/network/dropout", json!(0.5), "unknown field `dropout`"),
        ("/task/kind", json!("ranking"), "unknown variant `ranking`"),
        ("/task/names", json!(["one"]), "task.names: expected none or 2"),
        ("/task/means", json!([0.0, 0.0]), "task.means: expected none for Classes"),
        ("/input/fanout", json!([5, 0]), "input.fanout: expected positive numbers or -1"),
        ("/input/fanout", json!([-2, 5]), "found -2"),
        ("/input/fanout", json!([5, 1_u64 << 32]), "input.fanout"),
        ("/input", json!({"features": "x"}), "missing field"),
        ("/more", json!(1), "unknown field `more`"),
    ];
    for (place, value, message) in cases {
        let mut draft = draft();
        let (parent, name) = place.rsplit_once('/').unwrap();
        draft.manifest.pointer_mut(parent).unwrap()[name] = value.clone();
        refused(&draft, ErrorKind::Corrupt, &[message, "`model.json`: "]);
    }
}

#[test]
fn numbers_without_a_scale_are_refused() {
    let numbers = |means: Value, deviations: Value| {
        let mut draft = draft();
        draft.manifest["task"] =
            json!({"kind": "values", "names": [], "means": means, "deviations": deviations});
        draft
    };
    numbers(json!([1.0, 2.0]), json!([1.0, 2.0])).model();
    for (means, deviations, message) in [
        (json!([1.0]), json!([1.0]), "task.means: expected none or 2, one an output, found 1"),
        (json!([1.0, 2.0]), json!([]), "expected as many deviations as means, found 0 and 2"),
        (json!([1.0, 2.0]), json!([1.0, 0.0]), "task.deviations: expected positive numbers"),
        (json!([1.0, 2.0]), json!([1.0, null]), "invalid type"),
    ] {
        refused(&numbers(means, deviations), ErrorKind::Corrupt, &[message, "`model.json`: "]);
    }
}

#[test]
fn other_formats_and_versions_are_refused_by_name_whatever_else_they_hold() {
    for (name, version, kind, message) in [
        ("outercore-model", 2, ErrorKind::Invalid, "a model of `outercore train`"),
        ("outercore-inference", 3, ErrorKind::Version, "found outercore-inference version 3"),
        ("other", 1, ErrorKind::Version, "found other version 1"),
    ] {
        let mut draft = draft();
        draft.manifest = json!({"format": name, "version": version, "new": [1, 2]});
        refused(&draft, kind, &[message, "`model.json`: ", "export"]);
    }
}

#[test]
fn tensors_that_do_not_fit_the_manifest_are_refused_by_name() {
    let edit = |change: &dyn Fn(&mut BTreeMap<String, common::Tensor>)| {
        let mut draft = draft();
        change(&mut draft.tensors);
        draft
    };
    let cases: [(Draft, &str, &str); 7] = [
        (
            edit(&|all| drop(all.remove("layers.1.bias"))),
            "`layers.1.bias`",
            "expected F32 [2], found none",
        ),
        (
            edit(&|all| drop(all.insert("layers.2.bias".into(), (vec![1], vec![0.0])))),
            "`layers.2.bias`",
            "there is no such tensor",
        ),
        (
            edit(&|all| all.get_mut("layers.0.linear.weight").unwrap().0 = vec![3, 4]),
            "`layers.0.linear.weight`",
            "expected F32 [4, 3], found F32 [3, 4]",
        ),
        (
            edit(&|all| all.get_mut("layers.0.bias").unwrap().0 = vec![1, 4]),
            "`layers.0.bias`",
            "expected F32 [4], found F32 [1, 4]",
        ),
        (
            edit(&|all| all.get_mut("layers.0.linear.weight").unwrap().1[7] = f32::NAN),
            "`layers.0.linear.weight`",
            "expected finite numbers, found NaN at place 7",
        ),
        (
            edit(&|all| all.get_mut("layers.1.bias").unwrap().1[1] = f32::NEG_INFINITY),
            "`layers.1.bias`",
            "found -inf at place 1",
        ),
        (
            edit(&|all| all.get_mut("layers.0.norm.variance").unwrap().1[2] = -1.0),
            "`layers.0.norm.variance`",
            "expected finite numbers from 0 on, found -1 at place 2",
        ),
    ];
    for (draft, tensor, message) in cases {
        refused(&draft, ErrorKind::Corrupt, &[tensor, message, "`model.safetensors`: "]);
    }
}

#[test]
fn other_types_of_numbers_are_refused() {
    let draft = draft();
    let dir = tempfile::tempdir().unwrap();
    let tensors = draft
        .tensors
        .iter()
        .map(|(name, (shape, values))| {
            let bytes = values.iter().flat_map(|&one| f64::from(one).to_le_bytes()).collect();
            (name.clone(), (Dtype::F64, shape.clone(), bytes))
        })
        .collect();
    write(dir.path(), &draft.manifest, &tensors);
    let error = Model::open(dir.path(), Precision::Float32).unwrap_err().to_string();
    // All of them are longer than the manifest allows, so they are not even read.
    assert!(error.contains("F64") || error.contains("bytes"), "{error}");
}

#[test]
fn files_that_are_missing_cut_or_too_long_are_refused() {
    let (dir, opened) = draft().open();
    opened.unwrap();
    for name in ["model.json", "model.safetensors"] {
        let path = dir.path().join(name);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let error = Model::open(dir.path(), Precision::Float32).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(name), "{error}");
        for length in [0, 1, 7, 8, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..length]).unwrap();
            let error = Model::open(dir.path(), Precision::Float32).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}, {length} bytes: {error}");
        }
        fs::write(&path, [&bytes[..], b"0"].concat()).unwrap();
        assert_eq!(
            Model::open(dir.path(), Precision::Float32).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{name}"
        );
        fs::write(&path, &bytes).unwrap();
    }
    // A file larger than any memory, but sparse: no bytes of it are stored.
    let path = dir.path().join("model.safetensors");
    fs::File::options().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
    let error = Model::open(dir.path(), Precision::Float32).unwrap_err().to_string();
    assert!(error.contains("`model.safetensors`: expected at most"), "{error}");
}

#[test]
fn no_changed_bit_goes_unnoticed() {
    let (dir, opened) = draft().open();
    opened.unwrap();
    for name in ["model.json", "model.safetensors"] {
        let path = dir.path().join(name);
        let bytes = fs::read(&path).unwrap();
        for place in (0..bytes.len()).step_by(3) {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << (place / 3 % 8);
            fs::write(&path, &changed).unwrap();
            assert!(Model::open(dir.path(), Precision::Float32).is_err(), "{name}: byte {place}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    Model::open(dir.path(), Precision::Float32).unwrap();
}

#[test]
fn weights_of_another_export_are_refused() {
    let (dir, _) = draft().open();
    let mut other = draft();
    other.manifest["input"]["fanout"] = json!([7, 7]);
    let (other, _) = other.open();
    fs::copy(other.path().join("model.json"), dir.path().join("model.json")).unwrap();
    let error = Model::open(dir.path(), Precision::Float32).unwrap_err().to_string();
    assert!(error.contains("expected the weights of this `model.json`"), "{error}");
}

/// Two seeds and two more nodes: edges 2 -> 0, 3 -> 0, 3 -> 1, then 0 -> 2.
fn sampled() -> Sampled {
    Sampled {
        nodes: vec![5, 6, 7, 8],
        nodes_per_hop: vec![2, 2, 0],
        edges_per_hop: vec![3, 1],
        sources: vec![2, 3, 3, 0],
        picked: vec![2, 1, 1, 0],
        degrees: vec![2.0, 1.0, 1.0, 0.0],
    }
}

#[test]
fn subgraphs_whose_counts_disagree_are_refused() {
    let shape = Shape { kind: "gcn", layers: 2, features: 3, ..Shape::default() };
    let model = shape.random(&mut Random(2)).model();
    let x = [0.5; 12];
    model.forward(&sampled().view(), &x).unwrap();
    type Change = fn(&mut Sampled);
    let cases: [(&str, Change); 14] = [
        ("nodes_per_hop: expected 3", |one| assert!(one.nodes_per_hop.pop().is_some())),
        ("nodes_per_hop: expected 3", |one| one.nodes_per_hop.push(0)),
        ("edges_per_hop: expected 2", |one| one.edges_per_hop.clear()),
        ("nodes: expected 5", |one| one.nodes_per_hop[2] = 1),
        ("nodes_per_hop: expected counts", |one| one.nodes_per_hop[1] = u64::MAX),
        ("nodes: expected 4", |one| assert!(one.nodes.pop().is_some())),
        ("sources: expected 4", |one| assert!(one.sources.pop().is_some())),
        ("picked: expected 4", |one| assert!(one.picked.pop().is_some())),
        ("picked: expected 3 (edges up to hop 1)", |one| one.picked = vec![3, 1, 0, 0]),
        ("picked: expected 3 (edges up to hop 1)", |one| one.picked = vec![u32::MAX; 4]),
        ("picked: expected 4 (edges up to hop 2)", |one| one.picked[3] = 1),
        ("sources: expected less than 4", |one| one.sources[1] = 4),
        ("degrees: expected 4", |one| assert!(one.degrees.pop().is_some())),
        ("degrees: expected counts, found NaN", |one| one.degrees[1] = f32::NAN),
    ];
    for (message, change) in cases {
        let mut sampled = sampled();
        change(&mut sampled);
        let error = model.forward(&sampled.view(), &x).expect_err(message);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(message), "{error}\nhas no `{message}`");
    }
    let whole = sampled();
    let mut view = whole.view();
    view.degrees = None;
    let error = model.forward(&view, &x).unwrap_err().to_string();
    assert!(error.contains("needs in-degrees"), "{error}");
    let error = model.forward(&whole.view(), &x[1..]).unwrap_err().to_string();
    assert!(error.contains("expected 4 nodes x 3 numbers, found 11"), "{error}");
}

#[test]
fn a_source_of_a_later_hop_is_refused() {
    let shape = Shape { layers: 2, ..Shape::default() };
    let model = shape.random(&mut Random(2)).model();
    let mut sampled = sampled();
    sampled.nodes_per_hop = vec![2, 1, 1];
    sampled.picked.pop();
    let error = model.forward(&sampled.view(), &[0.5; 4]).unwrap_err().to_string();
    assert!(error.contains("sources: expected less than 3 up to hop 1, found 3"), "{error}");
}

#[test]
fn no_seeds_have_no_logits() {
    let model = Shape::default().random(&mut Random(2)).model();
    let none = Sampled { nodes_per_hop: vec![0, 0], edges_per_hop: vec![0], ..Sampled::default() };
    assert!(model.forward(&none.view(), &[]).unwrap().is_empty());
}
