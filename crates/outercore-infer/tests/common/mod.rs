//! Models written by hand or at random, and random subgraphs.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use outercore_infer::{Model, Precision, Subgraph};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub type Tensor = (Vec<usize>, Vec<f32>);

/// A model before it is written to files.
#[derive(Clone, Debug)]
pub struct Draft {
    pub manifest: Value,
    pub tensors: BTreeMap<String, Tensor>,
}

/// Shape of a random network.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kind: &'static str,
    pub layers: usize,
    pub features: usize,
    pub hidden: usize,
    pub outputs: usize,
    pub heads: usize,
    pub norm: &'static str,
    pub jumping: &'static str,
    pub residual: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            kind: "sage",
            layers: 1,
            features: 1,
            hidden: 1,
            outputs: 1,
            heads: 1,
            norm: "none",
            jumping: "none",
            residual: false,
        }
    }
}

impl Shape {
    pub fn hops(&self) -> usize {
        if self.kind == "mlp" { 0 } else { self.layers }
    }

    fn manifest(&self) -> Value {
        let Self { kind, layers, features, hidden, outputs, heads, norm, jumping, residual } =
            *self;
        json!({
            "format": "outercore-inference",
            "version": 1,
            "network": {
                "kind": kind, "layers": layers, "features": features, "hidden": hidden,
                "outputs": outputs, "heads": heads, "norm": norm, "jumping": jumping,
                "residual": residual,
            },
            "task": {"kind": "classes", "names": [], "means": [], "deviations": []},
            "input": {"features": "x", "fanout": vec![5; self.hops()], "replace": false},
        })
    }

    /// A model with the given tensors.
    pub fn with(&self, tensors: &[(&str, &[usize], &[f32])]) -> Draft {
        let tensors = tensors
            .iter()
            .map(|&(name, shape, values)| (name.to_owned(), (shape.to_vec(), values.to_vec())))
            .collect();
        Draft { manifest: self.manifest(), tensors }
    }

    /// A model with random tensors.
    pub fn random(&self, random: &mut Random) -> Draft {
        let mut tensors = BTreeMap::new();
        for (name, shape) in self.tensors() {
            let count = shape.iter().product();
            let mut values = random.numbers(count);
            if name.ends_with("variance") {
                values.iter_mut().for_each(|value| *value = value.abs() + 0.5);
            }
            tensors.insert(name, (shape, values));
        }
        Draft { manifest: self.manifest(), tensors }
    }

    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = Vec::new();
        let plain = self.jumping == "none";
        for layer in 0..self.layers {
            let last = plain && layer + 1 == self.layers;
            let before = if layer == 0 { self.features } else { self.hidden };
            let after = if last { self.outputs } else { self.hidden };
            let mut add = |name: &str, shape: &[usize]| {
                all.push((format!("layers.{layer}.{name}"), shape.to_vec()));
            };
            let norm: &[&str] = match self.norm {
                "none" => &[],
                "layer" => &["weight", "bias"],
                _ => &["weight", "bias", "mean", "variance"],
            };
            match self.kind {
                "sage" => {
                    add("neighbours.weight", &[after, before]);
                    add("neighbours.bias", &[after]);
                    add("own.weight", &[after, before]);
                }
                "gin" => {
                    add("eps", &[1]);
                    add("first.weight", &[after, before]);
                    add("first.bias", &[after]);
                    add("second.weight", &[after, after]);
                    add("second.bias", &[after]);
                    for part in norm {
                        add(&format!("inner_norm.{part}"), &[after]);
                    }
                }
                "gat" => {
                    let width = if last { after } else { after / self.heads };
                    add("linear.weight", &[self.heads * width, before]);
                    add("source_attention", &[self.heads, width]);
                    add("target_attention", &[self.heads, width]);
                    add("bias", &[after]);
                }
                _ => {
                    add("linear.weight", &[after, before]);
                    add("linear.bias", &[after]);
                }
            }
            if self.residual && !(self.kind == "mlp" && last) {
                add("skip.weight", &[after, before]);
                add("skip.bias", &[after]);
            }
            if !last {
                for part in norm {
                    add(&format!("norm.{part}"), &[after]);
                }
            }
        }
        if !plain {
            let inputs =
                if self.jumping == "cat" { self.layers * self.hidden } else { self.hidden };
            all.push(("head.weight".into(), vec![self.outputs, inputs]));
            all.push(("head.bias".into(), vec![self.outputs]));
        }
        all
    }
}

impl Draft {
    pub fn tensor(&self, name: &str) -> &[f32] {
        &self.tensors[name].1
    }

    /// Writes the model in the same way as `outercore export-model`.
    pub fn write(&self, dir: &Path) {
        let bytes: BTreeMap<_, _> = self
            .tensors
            .iter()
            .map(|(name, (shape, values))| {
                let bytes: Vec<u8> = values.iter().flat_map(|one| one.to_le_bytes()).collect();
                (name.clone(), (Dtype::F32, shape.clone(), bytes))
            })
            .collect();
        write(dir, &self.manifest, &bytes);
    }

    /// The same model with the weights of linear maps rounded as for int8: by output, to 1023 steps
    /// on each side of zero.
    pub fn rounded(&self) -> Self {
        let mut rounded = self.clone();
        let maps = rounded.tensors.iter_mut().filter(|(_, (shape, _))| shape.len() == 2);
        for (_, (shape, values)) in maps.filter(|(name, _)| name.ends_with("weight")) {
            for row in values.chunks_mut(shape[1]) {
                let largest = row.iter().fold(0.0_f32, |sum, one| sum.max(one.abs()));
                let scale = f64::from(largest) / 1023.0;
                for value in row {
                    *value = ((f64::from(*value) / scale).round_ties_even() * scale) as f32;
                }
            }
        }
        rounded
    }

    pub fn open_as(&self, precision: Precision) -> Model {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        Model::open(dir.path(), precision).unwrap()
    }

    pub fn open(&self) -> (TempDir, outercore_core::Result<Model>) {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        let model = Model::open(dir.path(), Precision::Float32);
        (dir, model)
    }

    pub fn model(&self) -> Model {
        self.open().1.unwrap()
    }
}

/// Writes a manifest and matching tensors of any type.
pub fn write(
    dir: &Path,
    manifest: &Value,
    tensors: &BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
) {
    let serialize = |version: Option<String>| {
        let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let metadata = version.map(|version| [("manifest".to_owned(), version)].into());
        safetensors::serialize(views, metadata).unwrap()
    };
    let bytes = serialize(None);
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut manifest = manifest.clone();
    manifest["weights"] = json!(digest(&bytes[8 + header..]));
    let text = serde_json::to_vec_pretty(&manifest).unwrap();
    fs::write(dir.join("model.safetensors"), serialize(Some(digest(&text)))).unwrap();
    fs::write(dir.join("model.json"), text).unwrap();
}

fn digest(bytes: &[u8]) -> String {
    let hexadecimal: String =
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hexadecimal}")
}

/// A subgraph that owns its arrays.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    pub nodes: Vec<u64>,
    pub nodes_per_hop: Vec<u64>,
    pub edges_per_hop: Vec<u64>,
    pub sources: Vec<u32>,
    pub picked: Vec<u32>,
    pub degrees: Vec<f32>,
}

impl Sampled {
    pub fn view(&self) -> Subgraph<'_> {
        Subgraph {
            nodes: &self.nodes,
            nodes_per_hop: &self.nodes_per_hop,
            edges_per_hop: &self.edges_per_hop,
            sources: &self.sources,
            picked: &self.picked,
            degrees: Some(&self.degrees),
        }
    }

    /// Local sources by destination.
    pub fn edges(&self) -> Vec<Vec<usize>> {
        let mut rest = self.sources.iter().map(|&source| source as usize);
        self.picked.iter().map(|&count| rest.by_ref().take(count as usize).collect()).collect()
    }

    /// The same subgraph without the edges into some nodes that the second-last hop found.
    pub fn without_last_edges(&self, is_left_out: impl Fn(usize) -> bool) -> Self {
        let (mut rest, hops) = (self.clone(), self.edges_per_hop.len());
        let first = self.picked.len() - self.nodes_per_hop[hops - 1] as usize;
        rest.sources.clear();
        for (place, edges) in self.edges().into_iter().enumerate() {
            if place >= first && is_left_out(place - first) {
                rest.edges_per_hop[hops - 1] -= edges.len() as u64;
                rest.picked[place] = 0;
                continue;
            }
            rest.sources.extend(edges.into_iter().map(|source| source as u32));
        }
        rest
    }

    /// Includes repeated seeds, nodes without edges, parallel edges and self-loops.
    pub fn random(hops: usize, random: &mut Random) -> Self {
        let mut sampled = Self::default();
        let seeds = 1 + random.below(5);
        for _ in 0..seeds {
            sampled.nodes.push(10 + random.below(seeds) as u64);
        }
        sampled.nodes_per_hop.push(seeds as u64);
        let mut frontier = 0..seeds;
        for _ in 0..hops {
            let edges = sampled.sources.len();
            for destination in frontier.clone() {
                let picked = random.below(5);
                for _ in 0..picked {
                    let source = match random.below(4) {
                        0 => destination,
                        1 => random.below(sampled.nodes.len()),
                        _ => {
                            sampled.nodes.push(100 + sampled.nodes.len() as u64);
                            sampled.nodes.len() - 1
                        }
                    };
                    sampled.sources.push(source as u32);
                }
                sampled.picked.push(picked as u32);
            }
            frontier = frontier.end..sampled.nodes.len();
            sampled.nodes_per_hop.push(frontier.len() as u64);
            sampled.edges_per_hop.push((sampled.sources.len() - edges) as u64);
        }
        sampled.degrees = sampled.nodes.iter().map(|_| random.below(9) as f32).collect();
        sampled
    }
}

/// A small random generator: the seed is enough to repeat a failing case.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
}
