//! Names of the grid's arrays and the JSON that describes them.

use outercore_core::{Context, Error, ErrorKind, Result, command, shell_path};
use outercore_store::dataset::DataSet;
use serde::{Deserialize, Serialize};

use crate::shape::{GridShape, Order};

/// The grid's description: JSON as `uint8 [n]`.
pub const HEADER: &str = "grid/edge/header";
/// Positions of the pieces: `uint64 [pieces, 8]`.
pub const PIECES: &str = "grid/edge/pieces";
/// Bodies of the pieces: `uint8 [bytes]`.
pub const BLOCKS: &str = "grid/edge/blocks";
/// The node of each rank: `uint32 [N]`; absent if ranks equal node ids.
pub const ORDER: &str = "grid/edge/order";
/// Arcs out of each rank: `uint32 [C]`.
pub const OUT_DEGREES: &str = "grid/edge/out_degrees";
/// Arcs into each rank: `uint32 [C]`; absent in a symmetric grid.
pub const IN_DEGREES: &str = "grid/edge/in_degrees";
/// Weights of the stored edges, in the order of the pieces: `float32 [edges]` if that represents
/// all of them exactly, otherwise `float64 [edges]`; absent without weights.
pub const WEIGHTS: &str = "grid/edge/weights";

pub(crate) const ALL: [&str; 7] = [HEADER, PIECES, BLOCKS, ORDER, OUT_DEGREES, IN_DEGREES, WEIGHTS];

/// How to repair a damaged grid.
pub(crate) fn mend() -> String {
    let anew = command("grid DATASET", &[("overwrite", "")]);
    format!("run `outercore check DATASET`; `{anew}` builds the grid anew")
}

/// The command that rebuilds the grid of a data set, for the given edge type or relation and the
/// given array `weights`.
pub fn rebuild_command(
    data_set: &DataSet,
    relation: Option<&str>,
    weights: Option<&str>,
) -> String {
    let relation = relation.map(|relation| named(data_set, relation));
    let relation = relation.as_deref().map(|name| ("relation", name));
    let weights = weights.map(|name| ("weights", name));
    let options: Vec<_> = relation.into_iter().chain(weights).chain([("overwrite", "")]).collect();
    command(&format!("grid {}", shell_path(data_set.root())), &options)
}

/// The user's name for the edge type or the relation that the core calls `relation`.
pub(crate) fn named(data_set: &DataSet, relation: &str) -> String {
    if !data_set.manifest().edge_types.is_empty() {
        return relation.replace("__", ",");
    }
    // `outercore check` reports a damaged dictionary.
    let name = relation.parse().ok().and_then(|id| data_set.relation_name(id).ok());
    name.unwrap_or_else(|| relation.to_owned())
}

/// The version of the grid that this build writes and reads.
pub const GRID_VERSION: u32 = 3;

const FORMAT: &str = "outercore-grid";

/// Partitions have at most `1 << MAX_PARTITION_LOG2` nodes, whose local ids have 16 bits.
pub(crate) const MAX_PARTITION_LOG2: u32 = 16;

/// The most partitions of a grid.
pub const MAX_PARTITIONS: u64 = 4096;

/// Content of `grid/edge/header`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridHeader {
    /// Always `outercore-grid`.
    pub format: String,
    /// The version of the grid; it differs from the version of the data set.
    pub version: u32,
    /// Nodes of the graph.
    pub nodes: u64,
    /// Nodes with an arc.
    pub connected: u64,
    /// A partition has at most `1 << partition_log2` nodes.
    pub partition_log2: u32,
    /// Number of partitions.
    pub partitions: u64,
    /// How ranks become places.
    pub order: Order,
    /// Whether a stored edge stands for two arcs.
    pub symmetric: bool,
    /// Arcs of the CSC, or triples.
    pub arcs: u64,
    /// Stored edges, loops included.
    pub edges: u64,
    /// Edges from a node to itself.
    pub loops: u64,
    /// Bytes of the data of `grid/edge/blocks`.
    pub codec_bytes: u64,
    /// The edge type of its arcs, as in keys, or the id of the relation; absent: all arcs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// Name of the edge array of the weights.
    pub weights: Option<String>,
    /// The least weight; absent without weights or without edges.
    pub least_weight: Option<f64>,
    /// Checksums of the grid's input: offsets (or triples), sources, edge ids and weights; empty if
    /// not used.
    pub topology: [String; 4],
}

impl GridHeader {
    /// A header of this version.
    pub(crate) fn new(shape: &GridShape, relation: Option<&str>, topology: [String; 4]) -> Self {
        Self {
            format: FORMAT.into(),
            version: GRID_VERSION,
            nodes: shape.nodes,
            connected: shape.connected,
            partition_log2: shape.partition_log2,
            partitions: shape.partitions() as u64,
            order: shape.order,
            symmetric: shape.symmetric,
            arcs: shape.arcs,
            edges: shape.edges,
            loops: 0,
            codec_bytes: 0,
            relation: relation.map(str::to_owned),
            weights: None,
            least_weight: None,
            topology,
        }
    }

    /// The JSON of the header.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal(error.to_string()).context(HEADER))
    }

    /// Parses and checks the header of the grid of a data set.
    ///
    /// # Errors
    /// `Invalid`: an older version, which must be rebuilt like a stale grid. `Version`: a newer
    /// version, regardless of the other content. `Corrupt`: not a header, or a header that
    /// contradicts itself.
    pub(crate) fn from_json(json: &[u8], data_set: &DataSet) -> Result<Self> {
        #[derive(Deserialize)]
        struct Preamble {
            format: String,
            version: u32,
            #[serde(default)]
            relation: Option<String>,
            #[serde(default)]
            weights: Option<String>,
        }
        let corrupt = |what: String| Error::corrupt(what).hint(mend());
        let preamble: Preamble =
            serde_json::from_slice(json).map_err(|error| corrupt(error.to_string()))?;
        if preamble.format != FORMAT {
            return Err(corrupt(format!("format `{}`, expected `{FORMAT}`", preamble.format)));
        }
        if preamble.version != GRID_VERSION {
            let what = format!("version {}, this build reads {GRID_VERSION}", preamble.version);
            let Preamble { relation, weights, .. } = preamble;
            let anew = rebuild_command(data_set, relation.as_deref(), weights.as_deref());
            return Err(if preamble.version < GRID_VERSION {
                Error::invalid(what).hint(format!("build it anew: `{anew}`"))
            } else {
                Error::new(ErrorKind::Version, what).hint(format!(
                    "use a newer outercore, or build the grid for this one: `{anew}`"
                ))
            });
        }
        let header: Self =
            serde_json::from_slice(json).map_err(|error| corrupt(error.to_string()))?;
        header.validate().map_err(corrupt)?;
        Ok(header)
    }

    fn validate(&self) -> Result<(), String> {
        if !(1..=MAX_PARTITION_LOG2).contains(&self.partition_log2) {
            return Err(format!("partition_log2 {}, expected 1 to 16", self.partition_log2));
        }
        if self.nodes > u64::from(u32::MAX) || self.connected > self.nodes {
            return Err(format!("{} of {} nodes are connected", self.connected, self.nodes));
        }
        let partitions = self.shape().partitions() as u64;
        if self.partitions != partitions || partitions > MAX_PARTITIONS {
            return Err(format!("{} partitions, expected {partitions}", self.partitions));
        }
        let arcs = if self.symmetric {
            self.edges.checked_mul(2).and_then(|arcs| arcs.checked_sub(self.loops))
        } else {
            Some(self.edges)
        };
        if arcs != Some(self.arcs) || self.loops > self.edges {
            return Err(format!(
                "{} edges and {} loops for {} arcs",
                self.edges, self.loops, self.arcs
            ));
        }
        Ok(())
    }

    /// The shape of the grid.
    pub fn shape(&self) -> GridShape {
        GridShape {
            nodes: self.nodes,
            connected: self.connected,
            partition_log2: self.partition_log2,
            order: self.order,
            symmetric: self.symmetric,
            arcs: self.arcs,
            edges: self.edges,
            weighted: self.weights.is_some(),
        }
    }
}

/// Adds the array's key to an error.
pub(crate) fn in_array<T, E: Into<Error>>(key: &str, result: Result<T, E>) -> Result<T> {
    result.with_context(|| format!("grid `{key}`"))
}
