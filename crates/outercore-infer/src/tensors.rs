use std::collections::BTreeMap;

use outercore_core::{Error, Result};
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::linear::Linear;
use crate::manifest::{Head, Jumping, Kind, Manifest, Network, NormKind, PairScore};
use crate::precision::Precision;

/// Member of the header with the digest of the manifest that the weights belong to.
const MANIFEST: &str = "manifest";
/// Ten times the size of a header with the most layers.
const MOST_HEADER: u64 = 1 << 20;

/// The weights of a model by name: exactly the tensors that its manifest implies.
#[derive(Debug)]
pub(crate) struct Tensors {
    by_name: BTreeMap<String, Vec<f32>>,
    /// Precision of the linear maps built from the weights.
    precision: Precision,
}

impl Tensors {
    /// Parses the bytes of `model.safetensors` and checks them against the manifest, whose bytes
    /// have the digest `version`.
    pub fn parse(
        bytes: &[u8],
        manifest: &Manifest,
        version: &str,
        precision: Precision,
    ) -> Result<Self> {
        let malformed = |error| Error::corrupt(format!("expected safetensors, found: {error}"));
        let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(malformed)?;
        let belongs = metadata.metadata().as_ref().and_then(|members| members.get(MANIFEST));
        if belongs.map(String::as_str) != Some(version) {
            return Err(Error::corrupt(format!(
                "expected the weights of this `model.json`, {version}, found those of {}",
                belongs.map_or("none", String::as_str)
            )));
        }
        let found = digest(&bytes[8 + header..]);
        if found != manifest.weights {
            return Err(Error::corrupt(format!(
                "expected weights with the digest {}, found {found}",
                manifest.weights
            )));
        }
        let stored = SafeTensors::deserialize(bytes).map_err(malformed)?;
        let mut expected = shapes(manifest);
        let mut tensors = BTreeMap::new();
        for (name, view) in stored.tensors() {
            let read = expected
                .remove(&name)
                .ok_or_else(|| Error::corrupt("there is no such tensor in this kind of network"))
                .and_then(|shape| {
                    if view.dtype() != Dtype::F32 || view.shape() != shape {
                        return Err(Error::corrupt(format!(
                            "expected F32 {shape:?}, found {:?} {:?}",
                            view.dtype(),
                            view.shape()
                        )));
                    }
                    values(&name, view.data())
                });
            let values = read.map_err(|error| error.context(format!("tensor `{name}`")))?;
            tensors.insert(name, values);
        }
        match expected.into_iter().next() {
            Some((name, shape)) => {
                Err(Error::corrupt(format!("tensor `{name}`: expected F32 {shape:?}, found none")))
            }
            None => Ok(Self { by_name: tensors, precision }),
        }
    }

    /// Moves a tensor out.
    ///
    /// # Panics
    /// If [`shapes`] does not list the tensor, or it was taken before: a bug in this crate.
    pub fn take(&mut self, name: &str) -> Vec<f32> {
        self.by_name
            .remove(name)
            .unwrap_or_else(|| panic!("tensor `{name}` is not listed, or used twice"))
    }

    /// The linear map with the weight `name.weight` and the bias `name.bias`.
    pub fn take_linear(&mut self, name: &str, inputs: usize) -> Linear {
        let weight = self.take(&format!("{name}.weight"));
        let bias = self.take(&format!("{name}.bias"));
        self.linear(&weight, Some(&bias), inputs)
    }

    /// A linear map with the given weights.
    pub fn linear(&self, weight: &[f32], bias: Option<&[f32]>, inputs: usize) -> Linear {
        Linear::new(weight, bias, inputs, self.precision)
    }

    /// Whether all tensors have been taken.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// The most bytes that the weights of a model can take as a file.
pub(crate) fn most_bytes(manifest: &Manifest) -> u64 {
    // A manifest may describe more than any file can hold: the total of categories and tables is
    // unbounded.
    let numbers: u128 = shapes(manifest)
        .values()
        .map(|shape| shape.iter().map(|&size| size as u128).product::<u128>())
        .sum();
    u64::try_from(8 + u128::from(MOST_HEADER) + 4 * numbers).unwrap_or(u64::MAX)
}

/// The digest of the bytes, as text.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write;

    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

/// Every tensor of a model and its shape: the definition of the format.
fn shapes(manifest: &Manifest) -> BTreeMap<String, Vec<usize>> {
    let Manifest { network, head, input, .. } = manifest;
    let mut shapes = Shapes::default();
    for (column, &count) in input.categories.iter().enumerate() {
        shapes.add(format!("categories.{column}"), &[count, network.features]);
    }
    if input.table > 0 {
        shapes.add("table".into(), &[input.table, network.features]);
    }
    let &Network { kind, heads, hidden, outputs, norm, jumping, .. } = network;
    for layer in 0..network.layers {
        let (before, after) = network.widths(layer);
        let ends = network.ends_at(layer);
        let name = |part: &str| format!("layers.{layer}.{part}");
        match kind {
            Kind::Sage => {
                shapes.linear(&name("neighbours"), before, after);
                shapes.add(name("own.weight"), &[after, before]);
            }
            Kind::Gcn | Kind::Mlp => shapes.linear(&name("linear"), before, after),
            Kind::Gin => {
                shapes.add(name("eps"), &[1]);
                shapes.linear(&name("first"), before, after);
                shapes.norm(&name("inner_norm"), norm, after);
                shapes.linear(&name("second"), after, after);
            }
            Kind::Gat => {
                // The last layer takes the mean over the heads, the others have them side by side.
                let width = if ends { after } else { after / heads };
                shapes.add(name("linear.weight"), &[heads * width, before]);
                shapes.add(name("source_attention"), &[heads, width]);
                shapes.add(name("target_attention"), &[heads, width]);
                shapes.add(name("bias"), &[after]);
            }
        }
        if network.skips_at(layer) {
            shapes.linear(&name("skip"), before, after);
        }
        if !ends {
            shapes.norm(&name("norm"), norm, after);
        }
    }
    match jumping {
        Jumping::None => {}
        Jumping::Cat => shapes.linear("head", network.layers * hidden, outputs),
        Jumping::Max => shapes.linear("head", hidden, outputs),
    }
    match *head {
        None | Some(Head::Pairs { score: PairScore::Dot }) => {}
        Some(Head::Pairs { score: PairScore::Diagonal }) => {
            shapes.add("pairs.diagonal".into(), &[outputs]);
        }
        Some(Head::Pairs { score: PairScore::Mlp }) => {
            shapes.linear("pairs.first", outputs, outputs);
            shapes.linear("pairs.second", outputs, 1);
        }
        Some(Head::Graphs { outputs: logits, .. }) => {
            shapes.linear("graphs.first", outputs, outputs);
            shapes.linear("graphs.second", outputs, logits);
        }
    }
    shapes.0
}

#[derive(Default)]
struct Shapes(BTreeMap<String, Vec<usize>>);

impl Shapes {
    fn add(&mut self, name: String, shape: &[usize]) {
        self.0.insert(name, shape.to_vec());
    }

    fn linear(&mut self, name: &str, inputs: usize, outputs: usize) {
        self.add(format!("{name}.weight"), &[outputs, inputs]);
        self.add(format!("{name}.bias"), &[outputs]);
    }

    fn norm(&mut self, name: &str, kind: NormKind, width: usize) {
        let parts: &[&str] = match kind {
            NormKind::None => &[],
            NormKind::Layer => &["weight", "bias"],
            NormKind::Batch => &["weight", "bias", "mean", "variance"],
        };
        for part in parts {
            self.add(format!("{name}.{part}"), &[width]);
        }
    }
}

fn values(name: &str, bytes: &[u8]) -> Result<Vec<f32>> {
    let (numbers, _) = bytes.as_chunks();
    let values: Vec<f32> = numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let least = if name.ends_with(".variance") { 0.0 } else { f32::MIN };
    let expected = if least == 0.0 { "finite numbers from 0 on" } else { "finite numbers" };
    match values.iter().position(|&value| !(least..=f32::MAX).contains(&value)) {
        Some(place) => Err(Error::corrupt(format!(
            "expected {expected}, found {} at place {place}",
            values[place]
        ))),
        None => Ok(values),
    }
}
