use outercore_core::{Error, ErrorKind, Result};
use serde::Deserialize;

const FORMAT: &str = "outercore-inference";
/// The newest version; models of nodes with plain features have version 1.
const VERSION: u64 = 2;
/// The format of a checkpoint that `outercore train` stores in a run; it cannot be served.
const TRAINING_FORMAT: &str = "outercore-model";

// Far above any real network, and low enough that no tensor size overflows 64 bits.
const MOST_LAYERS: usize = 64;
const MOST_WIDTH: usize = 1 << 24;
const MOST_HEADS: usize = 1 << 10;

/// Description of a model: the content of `model.json`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifest {
    /// Shape and kind of the network.
    pub network: Network,
    /// The part after the network; `None` if the network's outputs are the logits of nodes.
    pub head: Option<Head>,
    /// Meaning of the outputs.
    pub task: Task,
    /// Inputs of the model.
    pub input: Input,
    /// Digest of the weights, as `sha256:` and 64 hexadecimal digits.
    pub weights: String,
}

/// Shape and kind of a network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Network {
    /// Kind of its layers.
    pub kind: Kind,
    /// Number of layers.
    pub layers: usize,
    /// Number of features per node.
    pub features: usize,
    /// Width between the layers; for `gat`, of all heads together.
    pub hidden: usize,
    /// Number of logits per seed.
    pub outputs: usize,
    /// Number of attention heads; 1 for every kind except `gat`.
    pub heads: usize,
    /// Normalisation after a layer.
    pub norm: NormKind,
    /// The states from which the outputs are computed.
    pub jumping: Jumping,
    /// Whether a linear map of a layer's input is added to its output.
    pub residual: bool,
}

/// How a layer computes a node's state from the node and its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// GraphSAGE: the mean of the neighbours and the node itself, with separate weights.
    Sage,
    /// Graph convolution, normalised by in-degrees in the whole graph.
    Gcn,
    /// The sum of the neighbours and the node, through two linear maps.
    Gin,
    /// Attention over the neighbours and the node.
    Gat,
    /// Only the node: edges are not used.
    Mlp,
}

/// Normalisation between the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NormKind {
    /// Without normalisation.
    None,
    /// By the mean and variance of the training batches.
    Batch,
    /// Each node by the mean and variance of its values.
    Layer,
}

/// The states of a seed from which the outputs are computed (jumping knowledge).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Jumping {
    /// The last state.
    None,
    /// All states, concatenated.
    Cat,
    /// The element-wise maximum of all states.
    Max,
}

/// Computes a prediction from the network's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Head {
    /// A score for a pair of nodes.
    Pairs {
        /// How to compute the score from their states.
        score: PairScore,
    },
    /// The states of a graph's nodes are pooled into one, from which a perceptron computes the
    /// logits.
    Graphs {
        /// How to pool the states.
        readout: Readout,
        /// Number of logits per graph.
        outputs: usize,
    },
}

/// A symmetric score of two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PairScore {
    /// Their inner product.
    Dot,
    /// Their inner product with a weight for each dimension (DistMult of one relation).
    Diagonal,
    /// A perceptron of their element-wise product.
    Mlp,
}

/// How to pool the states of a graph's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Readout {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their element-wise maximum.
    Max,
}

/// Meaning of a network's outputs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Task {
    /// Kind of prediction.
    pub kind: TaskKind,
    /// Names of the outputs; empty if they have no names.
    pub names: Vec<String>,
    /// Means of the training values, by output; empty except for `values`.
    pub means: Vec<f64>,
    /// Standard deviations of the training values, by output; positive.
    pub deviations: Vec<f64>,
}

/// Kind of prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskKind {
    /// One class per node.
    Classes,
    /// Several labels per node, each present or not.
    Labels,
    /// Real values.
    Values,
    /// Whether there is an edge between two nodes.
    Links,
}

/// Inputs of a network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Input {
    /// Name of the node array with the features; `x` means the array with the role of features.
    pub features: String,
    /// In-neighbours per hop, nearest first; -1 takes all. Empty for `mlp`.
    pub fanout: Vec<i64>,
    /// Whether neighbours are drawn with replacement.
    pub replace: bool,
    /// Number of categories in each column, if the features are categories. Each category has a
    /// learnt embedding, and the sum of a node's embeddings is the input of the network. Empty if
    /// the features are the input.
    #[serde(default)]
    pub categories: Vec<usize>,
    /// Whether the only column is the in-degree; the last category covers all larger degrees.
    #[serde(default)]
    pub degree: bool,
    /// Number of nodes with a learnt row, which is the network's input instead of features; 0:
    /// features are used.
    #[serde(default)]
    pub table: usize,
}

/// The members that are read first.
#[derive(Deserialize)]
struct Preamble {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "format")]
    _format: String,
    #[serde(rename = "version")]
    _version: u64,
    network: Network,
    head: Option<Head>,
    task: Task,
    input: Input,
    weights: String,
}

impl Manifest {
    /// Parses and checks the bytes of `model.json`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let malformed = |error: serde_json::Error| Error::corrupt(error.to_string());
        let found: Preamble = serde_json::from_slice(bytes).map_err(malformed)?;
        if found.format == TRAINING_FORMAT {
            return Err(Error::invalid(
                "this is a model of `outercore train`, not an exported one",
            ));
        }
        if found.format != FORMAT || !(1..=VERSION).contains(&found.version) {
            return Err(Error::new(
                ErrorKind::Version,
                format!(
                    "expected {FORMAT} version 1 to {VERSION}, found {} version {}",
                    found.format, found.version
                ),
            )
            .hint("install the release that wrote it, or export the model again by this one"));
        }
        let File { network, head, task, input, weights, .. } =
            serde_json::from_slice(bytes).map_err(malformed)?;
        network.check()?;
        if let Some(Head::Graphs { outputs, .. }) = head {
            within("head.outputs", outputs, MOST_WIDTH)?;
        }
        let manifest = Self { network, head, task, input, weights };
        let of_pairs = matches!(manifest.head, Some(Head::Pairs { .. }));
        if of_pairs != (manifest.task.kind == TaskKind::Links) {
            return Err(Error::corrupt("task.kind: `links` and a head of pairs come together"));
        }
        manifest.task.check(manifest.outputs())?;
        manifest.input.check(&manifest.network)?;
        Ok(manifest)
    }

    /// Number of logits per prediction: for a node, a pair of nodes, or a graph.
    pub fn outputs(&self) -> usize {
        match self.head {
            None => self.network.outputs,
            Some(Head::Pairs { .. }) => 1,
            Some(Head::Graphs { outputs, .. }) => outputs,
        }
    }

    /// Number of feature columns to provide per node.
    pub fn columns(&self) -> usize {
        match (self.input.table, self.input.categories.len()) {
            (0, 0) => self.network.features,
            (0, _) if self.input.degree => 0,
            (0, columns) => columns,
            _ => 0,
        }
    }
}

fn within(name: &str, found: usize, most: usize) -> Result<()> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(Error::corrupt(format!("{name}: expected 1 to {most}, found {found}")))
}

impl Network {
    /// Input and output width of a layer.
    pub(crate) fn widths(&self, layer: usize) -> (usize, usize) {
        let before = if layer == 0 { self.features } else { self.hidden };
        (before, if self.ends_at(layer) { self.outputs } else { self.hidden })
    }

    /// Whether `layer` outputs the logits.
    pub(crate) fn ends_at(&self, layer: usize) -> bool {
        layer + 1 == self.layers && self.jumping == Jumping::None
    }

    /// Whether a linear map of the input is added after `layer`.
    pub(crate) fn skips_at(&self, layer: usize) -> bool {
        self.residual && !(self.kind == Kind::Mlp && self.ends_at(layer))
    }

    fn check(&self) -> Result<()> {
        within("network.layers", self.layers, MOST_LAYERS)?;
        within("network.features", self.features, MOST_WIDTH)?;
        within("network.hidden", self.hidden, MOST_WIDTH)?;
        within("network.outputs", self.outputs, MOST_WIDTH)?;
        if self.kind == Kind::Gat {
            within("network.heads", self.heads, MOST_HEADS)?;
            if !self.hidden.is_multiple_of(self.heads) {
                return Err(Error::corrupt(format!(
                    "network.hidden: expected a multiple of the {} attention heads, found {}",
                    self.heads, self.hidden
                )));
            }
        } else {
            within("network.heads", self.heads, 1)?;
        }
        if self.kind == Kind::Mlp && self.jumping != Jumping::None {
            return Err(Error::corrupt(format!(
                "network.jumping: expected `none` for `mlp`, found {:?}",
                self.jumping
            )));
        }
        Ok(())
    }
}

impl Task {
    fn check(&self, outputs: usize) -> Result<()> {
        let scaled = self.kind == TaskKind::Values;
        for (name, count) in [
            ("names", self.names.len()),
            ("means", self.means.len()),
            ("deviations", self.deviations.len()),
        ] {
            let fits = count == 0 || (count == outputs && (scaled || name == "names"));
            if !fits {
                let expected = if scaled || name == "names" {
                    format!("none or {outputs}, one an output")
                } else {
                    format!("none for {:?}", self.kind)
                };
                return Err(Error::corrupt(format!(
                    "task.{name}: expected {expected}, found {count}"
                )));
            }
        }
        if self.means.len() != self.deviations.len() {
            return Err(Error::corrupt(format!(
                "task: expected as many deviations as means, found {} and {}",
                self.deviations.len(),
                self.means.len()
            )));
        }
        if let Some(wrong) = self.deviations.iter().find(|&&deviation| deviation <= 0.0) {
            return Err(Error::corrupt(format!(
                "task.deviations: expected positive numbers, found {wrong}"
            )));
        }
        Ok(())
    }
}

impl Input {
    fn check(&self, network: &Network) -> Result<()> {
        let hops = if network.kind == Kind::Mlp { 0 } else { network.layers };
        if self.fanout.len() != hops {
            return Err(Error::corrupt(format!(
                "input.fanout: expected {hops} hops, found {}",
                self.fanout.len()
            )));
        }
        for &count in &self.categories {
            within("input.categories", count, MOST_WIDTH)?;
        }
        if self.degree && self.categories.len() != 1 {
            return Err(Error::corrupt("input.degree: expected one column of categories"));
        }
        if self.table > 0 && !self.categories.is_empty() {
            return Err(Error::corrupt("input.table: expected no categories beside it"));
        }
        let fits = |&count: &i64| count == -1 || (1..=i64::from(u32::MAX)).contains(&count);
        if let Some(wrong) = self.fanout.iter().find(|count| !fits(count)) {
            return Err(Error::corrupt(format!(
                "input.fanout: expected positive numbers or -1 for all, found {wrong}"
            )));
        }
        Ok(())
    }
}
