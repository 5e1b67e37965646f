//! Logits of written cases, for `tests/python/infer_cases.py`, which compares them with PyTorch's.
//!
//! `forward DIR...`: each has `model/` and `case.safetensors`, and gets `logits.bin`, float32.

use std::error::Error;
use std::fs;
use std::path::Path;

use outercore_infer::{Model, Subgraph};
use safetensors::SafeTensors;

fn main() -> Result<(), Box<dyn Error>> {
    for dir in std::env::args().skip(1) {
        answer(Path::new(&dir)).map_err(|error| format!("{dir}: {error}"))?;
    }
    Ok(())
}

fn answer(dir: &Path) -> Result<(), Box<dyn Error>> {
    let model = Model::open(&dir.join("model"))?;
    let bytes = fs::read(dir.join("case.safetensors"))?;
    let case = SafeTensors::deserialize(&bytes)?;
    let integers = |name: &str| -> Result<Vec<u64>, Box<dyn Error>> {
        let (numbers, _) = case.tensor(name)?.data().as_chunks();
        Ok(numbers.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect())
    };
    let local = |name: &str| -> Result<Vec<u32>, Box<dyn Error>> {
        Ok(integers(name)?.into_iter().map(u32::try_from).collect::<Result<_, _>>()?)
    };
    let floats = |name: &str| -> Result<Vec<f32>, Box<dyn Error>> {
        let (numbers, _) = case.tensor(name)?.data().as_chunks();
        Ok(numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
    };
    let degrees = floats("degrees")?;
    let subgraph = Subgraph {
        nodes: &integers("nodes")?,
        nodes_per_hop: &integers("nodes_per_hop")?,
        edges_per_hop: &integers("edges_per_hop")?,
        sources: &local("sources")?,
        picked: &local("picked")?,
        degrees: model.needs_degrees().then_some(&degrees),
    };
    let logits = model.forward(&subgraph, &floats("x")?)?;
    let bytes: Vec<u8> = logits.iter().flat_map(|one| one.to_le_bytes()).collect();
    Ok(fs::write(dir.join("logits.bin"), bytes)?)
}
