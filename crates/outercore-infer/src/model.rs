use std::fs::File;
use std::io::Read;
use std::path::Path;

use outercore_core::{Context, Error, Result};

use crate::answer::Answer;
use crate::convolution::{Convolution, rectify};
use crate::ends::{Inputs, Outputs};
use crate::linear::Linear;
use crate::manifest::{Jumping, Kind, Manifest, Network};
use crate::matrix::{Matrix, Rows};
use crate::norm::Norm;
use crate::precision::Precision;
use crate::subgraph::{Batch, Hop, Subgraph};
use crate::tensors::{Tensors, digest, most_bytes};

const MANIFEST: &str = "model.json";
const WEIGHTS: &str = "model.safetensors";
/// Includes the names of many classes.
const MOST_MANIFEST: u64 = 16 << 20;
const WAY_OUT: &str = "`outercore export-model RUN` writes a model that can be opened";

/// A trained network, ready to predict.
///
/// # Example
/// ```no_run
/// use outercore_infer::{Model, Precision, Subgraph};
/// let model = Model::open("runs/first/serving".as_ref(), Precision::Float32)?;
/// // Two seeds of a one-layer model; the first has one neighbour, the second none.
/// let subgraph = Subgraph {
///     nodes: &[4, 9, 7],
///     nodes_per_hop: &[2, 1],
///     edges_per_hop: &[1],
///     sources: &[2],
///     picked: &[1, 0],
///     degrees: None,
/// };
/// let features = vec![0.5; 3 * model.features()];
/// let answer = model.read_out(&model.forward(&subgraph, &features)?);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Model {
    manifest: Manifest,
    version: String,
    precision: Precision,
    layers: Vec<Layer>,
    /// Combines the states of all layers into one.
    joint: Option<Linear>,
    inputs: Inputs,
    head: Outputs,
}

/// Results of the network for a subgraph.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// `[seeds, width]`: the states of the seeds, row-major.
    pub states: Vec<f32>,
    /// `[known, first width]`: the states after the first layer, for the nodes with an entry in the
    /// `known` argument of [`Model::forward_from`]. Given states are included.
    pub first: Vec<f32>,
}

#[derive(Debug)]
struct Layer {
    convolution: Convolution,
    skip: Option<Linear>,
    /// `None` if the layer outputs the logits, without an activation.
    norm: Option<Norm>,
}

impl Model {
    /// Reads the model in `dir`, for computation in `precision`.
    ///
    /// With `Int8`, linear maps are computed in integers: weights of 11 bits with a scale per
    /// output, inputs of up to 16 bits with a scale per row. All other values stay float32: means
    /// of neighbours, norms, activations, attention scores, embeddings of categories.
    ///
    /// **Cost** reads both files completely; uses memory for twice the weights until it returns.
    ///
    /// **Errors** `NotFound`, `Corrupt`, `Version` and `Invalid` name the file and, if one is
    /// concerned, the tensor.
    pub fn open(dir: &Path, precision: Precision) -> Result<Self> {
        let read = |name: &str, most: u64| {
            read_file(&dir.join(name), most).with_context(|| format!("`{name}`"))
        };
        let opened = || {
            let manifest = read(MANIFEST, MOST_MANIFEST)?;
            let parsed = Manifest::parse(&manifest).with_context(|| format!("`{MANIFEST}`"))?;
            let weights = read(WEIGHTS, most_bytes(&parsed))?;
            Self::build(parsed, digest(&manifest), &weights, precision)
                .with_context(|| format!("`{WEIGHTS}`"))
        };
        opened().map_err(|error| error.context(format!("model `{}`", dir.display())).hint(WAY_OUT))
    }

    pub(crate) fn build(
        manifest: Manifest,
        version: String,
        weights: &[u8],
        precision: Precision,
    ) -> Result<Self> {
        let mut tensors = Tensors::parse(weights, &manifest, &version, precision)?;
        let network = &manifest.network;
        let layers =
            (0..network.layers).map(|layer| Layer::take(network, layer, &mut tensors)).collect();
        let joint = match network.jumping {
            Jumping::None => None,
            Jumping::Cat => Some(tensors.take_linear("head", network.layers * network.hidden)),
            Jumping::Max => Some(tensors.take_linear("head", network.hidden)),
        };
        let inputs = Inputs::take(&manifest, &mut tensors);
        let head = Outputs::take(&manifest, &mut tensors);
        if !tensors.is_empty() {
            return Err(Error::internal("a tensor of the format has no place in the network"));
        }
        Ok(Self { manifest, version, precision, layers, joint, inputs, head })
    }

    /// Description of the model.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Digest of its manifest, which contains the digest of the weights. It does not depend on the
    /// precision.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The precision of the computation.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Number of feature columns to provide per node.
    pub fn features(&self) -> usize {
        self.manifest.columns()
    }

    /// Number of logits per prediction: for a node, a pair of nodes, or a graph.
    pub fn outputs(&self) -> usize {
        self.manifest.outputs()
    }

    /// Width of a node's state, the input of a head.
    pub fn width(&self) -> usize {
        self.manifest.network.outputs
    }

    /// Number of hops of the subgraphs to provide.
    pub fn hops(&self) -> usize {
        self.manifest.input.fanout.len()
    }

    /// Whether it weights edges by in-degree.
    pub fn needs_degrees(&self) -> bool {
        matches!(self.manifest.network.kind, Kind::Gcn | Kind::Gin)
    }

    /// Whether a self-loop of the data counts as a neighbour; `gcn` and `gat` add a self-loop to
    /// every node.
    pub fn counts_loops(&self) -> bool {
        !matches!(self.manifest.network.kind, Kind::Gcn | Kind::Gat)
    }

    /// Width of the states after the first layer, if [`Model::forward_from`] accepts known states.
    ///
    /// `None` for networks with at most one hop, and for networks whose input is the number of
    /// edges of a node.
    pub fn first_width(&self) -> Option<usize> {
        let sees_edges = self.manifest.input.degree;
        (self.hops() > 1 && !sees_edges).then(|| self.manifest.network.widths(0).1)
    }

    /// States of the seeds. Without a head, these are their logits.
    ///
    /// A seed's state depends only on its neighbourhood, bit for bit, and not on other seeds.
    /// Features that are not finite give states that are not finite.
    ///
    /// **Shapes** `x` `[nodes, features]`; result `[seeds, width]`, row-major.
    ///
    /// **Cost** computes on this thread; a layer computes only the nodes that later layers need.
    ///
    /// **Errors** `Invalid` if the counts of the subgraph disagree, or for a category or node that
    /// the model does not know.
    pub fn forward(&self, subgraph: &Subgraph<'_>, x: &[f32]) -> Result<Vec<f32>> {
        Ok(self.forward_from(subgraph, x, &[])?.states)
    }

    /// Like [`Model::forward`], but the states after the first layer may be known for some nodes
    /// found by the second-last hop. Their in-edges may be missing from the subgraph.
    ///
    /// The state of such a node depends only on the edges sampled for it and on the features of
    /// their ends. It is therefore bit for bit the same in every subgraph with these edges.
    ///
    /// **Shapes** `known` has one entry per node found by the second-last hop, of
    /// [`Model::first_width`] values; empty if no state is known.
    ///
    /// # Errors
    /// As [`Model::forward`]; `Invalid` for a wrong number or width of known states.
    pub fn forward_from(
        &self,
        subgraph: &Subgraph<'_>,
        x: &[f32],
        known: &[Option<&[f32]>],
    ) -> Result<Forward> {
        let batch = Batch::check(subgraph, self.hops(), self.needs_degrees())?;
        let expected = batch.nodes().checked_mul(self.features());
        if expected != Some(x.len()) {
            return Err(Error::invalid(format!(
                "features: expected {} nodes x {} numbers, found {}",
                batch.nodes(),
                self.features(),
                x.len()
            )));
        }
        let seeds = batch.seeds();
        let x = &self.inputs.of(x, subgraph.nodes, subgraph.picked)?[..];
        let width = self.manifest.network.features;
        let mut states: Vec<Matrix> = Vec::with_capacity(self.layers.len());
        let mut first = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let hop = batch.hop(self.hops().saturating_sub(index));
            let input = match states.last() {
                None => Rows::dense(x, hop.sources, width),
                Some(state) => state.first(hop.sources),
            };
            let mut state = layer.apply(input, &hop);
            if index == 0 && !known.is_empty() {
                first = self.first_states(&mut state, &batch, known)?;
            }
            if self.joint.is_none() {
                states.clear();
            }
            states.push(state);
        }
        let found = match &self.joint {
            None => states.pop().expect("a network has layers"),
            Some(joint) => joint.apply(self.joined(&states, seeds).first(seeds)),
        };
        let states = found.first(seeds).iter().flatten().copied().collect();
        Ok(Forward { states, first })
    }

    /// Replaces states that were computed without edges by known states; returns all of them.
    fn first_states(
        &self,
        state: &mut Matrix,
        batch: &Batch<'_>,
        known: &[Option<&[f32]>],
    ) -> Result<Vec<f32>> {
        let Some(width) = self.first_width() else {
            return Err(Error::invalid("this network takes no states of its first layer"));
        };
        let places = batch.found_by(self.hops() - 1);
        if known.len() != places.len() {
            return Err(Error::invalid(format!(
                "known states: expected {} (nodes of the last hop but one), found {}",
                places.len(),
                known.len()
            )));
        }
        let mut all = Vec::with_capacity(known.len() * width);
        for (row, known) in state.iter_mut().skip(places.start).zip(known) {
            if let Some(known) = known {
                if known.len() != width {
                    return Err(Error::invalid(format!(
                        "known states: expected {width} numbers a node, found {}",
                        known.len()
                    )));
                }
                row.copy_from_slice(known);
            }
            all.extend_from_slice(row);
        }
        Ok(all)
    }

    /// Scores of pairs of seeds, given by their indices; the larger, the more likely an edge.
    ///
    /// **Shapes** `states` `[seeds, width]`; result one score per pair.
    ///
    /// # Errors
    /// `Invalid`: the model does not score pairs, or an index is out of range.
    pub fn score(&self, states: &[f32], pairs: &[(u32, u32)]) -> Result<Vec<f32>> {
        self.head.score(states, self.width(), pairs)
    }

    /// Logits of graphs; graph `i` consists of the next `sizes[i]` seeds.
    ///
    /// **Shapes** `states` `[seeds, width]`; result `[graphs, outputs]`, row-major.
    ///
    /// # Errors
    /// `Invalid`: the model does not predict graphs, or the sizes do not fit the states.
    pub fn of_graphs(&self, states: &[f32], sizes: &[usize]) -> Result<Vec<f32>> {
        self.head.of_graphs(states, self.width(), sizes)
    }

    /// Converts logits to the client's view.
    ///
    /// # Panics
    /// If the logits are not whole rows.
    pub fn read_out(&self, logits: &[f32]) -> Answer {
        assert_eq!(logits.len() % self.outputs(), 0, "logits of whole seeds");
        Answer::read_out(&self.manifest, logits)
    }

    /// Combines the states after every layer into one state per seed.
    fn joined(&self, states: &[Matrix], seeds: usize) -> Matrix {
        let hidden = self.manifest.network.hidden;
        let cat = self.manifest.network.jumping == Jumping::Cat;
        let mut out = Matrix::zeros(seeds, if cat { states.len() * hidden } else { hidden });
        for (index, state) in states.iter().enumerate() {
            for (row, state) in out.iter_mut().zip(state.first(seeds).iter()) {
                if cat {
                    row[index * hidden..][..hidden].copy_from_slice(state);
                    continue;
                }
                for (most, &value) in row.iter_mut().zip(state) {
                    // Rows start at 0, and no state is negative; NaN stays NaN.
                    if *most < value || value.is_nan() {
                        *most = value;
                    }
                }
            }
        }
        out
    }
}

impl Layer {
    fn take(network: &Network, layer: usize, tensors: &mut Tensors) -> Self {
        let (before, _) = network.widths(layer);
        let name = |part: &str| format!("layers.{layer}.{part}");
        Self {
            convolution: Convolution::take(network, layer, tensors),
            skip: network.skips_at(layer).then(|| tensors.take_linear(&name("skip"), before)),
            norm: (!network.ends_at(layer))
                .then(|| Norm::take(network.norm, tensors, &name("norm"))),
        }
    }

    fn apply(&self, x: Rows<'_>, hop: &Hop<'_>) -> Matrix {
        let mut state = self.convolution.apply(x, hop);
        if let Some(skip) = &self.skip {
            skip.add(x.take(hop.targets), &mut state);
        }
        if let Some(norm) = &self.norm {
            norm.apply(&mut state);
            rectify(&mut state);
        }
        state
    }
}

/// Reads a file of at most `most` bytes, without trusting its reported length.
fn read_file(path: &Path, most: u64) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > most {
        return Err(Error::corrupt(format!("expected at most {most} bytes, found {length}")));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(length + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(Error::corrupt(format!(
            "expected {length} bytes, found {}; it was changed meanwhile",
            bytes.len()
        )));
    }
    Ok(bytes)
}
