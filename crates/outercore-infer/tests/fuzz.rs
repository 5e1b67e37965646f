//! Models, from any bytes.

mod common;

use common::{Random, Shape};
use outercore_infer::fuzz;
use outercore_testkit::fuzz::{keep, run};
use serde_json::json;

#[test]
fn any_bytes_as_a_model() {
    run("model", fuzz::model);
}

#[test]
#[ignore = "writes `fuzz/corpus`"]
fn write_the_first_inputs() {
    for (number, kind) in ["sage", "gcn", "gin", "gat", "mlp"].into_iter().enumerate() {
        let shape = Shape {
            kind,
            layers: 2,
            features: 3,
            hidden: 4,
            outputs: 2,
            heads: if kind == "gat" { 2 } else { 1 },
            norm: ["none", "batch", "layer"][number % 3],
            jumping: if kind == "gcn" { "cat" } else { "none" },
            residual: number % 2 == 0,
        };
        let directory = tempfile::tempdir().unwrap();
        let mut draft = shape.random(&mut Random(number as u64));
        if kind == "mlp" {
            draft.manifest["version"] = json!(2);
            draft.manifest["input"]["categories"] = json!([]);
        }
        draft.write(directory.path());
        let file = |name: &str| std::fs::read(directory.path().join(name)).unwrap();
        let (manifest, weights) = (file("model.json"), file("model.safetensors"));
        let length = (manifest.len() as u32).to_le_bytes();
        keep("model", kind, &[&length[..], &manifest, &weights].concat());
    }
}
