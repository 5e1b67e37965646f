//! The configuration of a loader: all options with their defaults and units.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use outercore_cache::Policy;
use outercore_core::{Bytes, Error, Result};
use outercore_far::FarOptions;
use outercore_format::Schema;
use outercore_io::Backend;
use outercore_layout::Precision;
use outercore_sample::rules::{EqualTimes, Method, Rules, Subgraph, TimeOrder};
use outercore_sample::{FanOut, SampleConfig, TypedFanOuts};
use serde::{Deserialize, Serialize};

/// Least memory that the plan reserves per edge of a batch.
const LEAST_EDGE_BYTES: u64 = 64;

/// Trial batches may have this many edges under any budget, so the error can state the required
/// memory.
const TRIED_EDGES: u64 = 1 << 22;

/// Where the topology is stored while batches are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyMode {
    /// Resident if it takes at most half of the budget, or seven eighths if no features are
    /// delivered; otherwise paged.
    #[default]
    Auto,
    /// Entirely in memory.
    Resident,
    /// On disk; only pages with picked positions are read.
    Paged,
}

/// How to choose the rows of the constant part.
///
/// # Example
/// ```
/// use outercore_pipeline::Hotness;
/// assert_eq!("in_degree".parse::<Hotness>().unwrap(), Hotness::InDegree);
/// let array: Hotness = "nodes/node/reverse_pagerank".parse().unwrap();
/// assert_eq!(array.to_string(), "nodes/node/reverse_pagerank");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hotness {
    /// The rows that a pre-sampled part of an epoch needs most often (Helios 3.2.2).
    #[default]
    Presample,
    /// The nodes that an epoch is expected to visit most often, computed from seeds, fan-outs and
    /// all edges: the weighted reverse PageRank of GIDS 3.3, with one step per hop.
    Visits,
    /// The nodes with most in-edges; costs one pass over the offsets.
    InDegree,
    /// The nodes with the largest values in a node array, given by its key: for example a saved
    /// PageRank, or values chosen by the user.
    Array(String),
    /// Without a constant part.
    None,
}

impl fmt::Display for Hotness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Presample => "presample",
            Self::Visits => "visits",
            Self::InDegree => "in_degree",
            Self::Array(key) => key,
            Self::None => "none",
        })
    }
}

impl FromStr for Hotness {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "presample" => Self::Presample,
            "visits" => Self::Visits,
            "in_degree" => Self::InDegree,
            "none" => Self::None,
            key if key.contains('/') => Self::Array(key.to_owned()),
            _ => {
                return Err(Error::invalid(format!("`{text}` is no hotness")).hint(
                    "choose presample, visits, in_degree, none, or the key of a node array",
                ));
            }
        })
    }
}

/// The features of one node type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureChoice {
    /// An array of the data set, by key.
    Array(String),
    /// An `.npy` file: a matrix with one row for each node of the type.
    Path(PathBuf),
}

/// Configuration of a loader: its batches, and the resources that it may use.
///
/// The first group of fields decides the batches. The second group changes only their cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderConfig {
    /// Neighbours per node and hop, starting at the seeds; -1 means all. In a graph with several
    /// edge types, these apply to each edge type that is not in `typed_fan_outs`.
    pub fan_outs: Vec<i64>,
    /// Neighbours per node and hop for single edge types, by their names in keys; for HGT by node
    /// type.
    pub typed_fan_outs: BTreeMap<String, Vec<i64>>,
    /// Node type of the seeds, in a graph with several node types.
    pub input_type: Option<String>,
    /// Seeds per batch.
    pub batch_size: u64,
    /// Draw neighbours with replacement.
    pub replace: bool,
    /// How to choose neighbours.
    pub method: Method,
    /// Sample the neighbourhood of each seed separately.
    pub disjoint: bool,
    /// Which edges between its nodes a batch contains.
    pub subgraph: Subgraph,
    /// Name of the edge arrays with sampling weights.
    pub weights: Option<String>,
    /// Name of the edge arrays with the times of edges.
    pub edge_times: Option<String>,
    /// Name of the node arrays with the times of nodes.
    pub node_times: Option<String>,
    /// Which of the visible edges are taken.
    pub time_order: TimeOrder,
    /// Whether a seed sees edges and nodes that have the same time as the seed.
    pub equal_times: EqualTimes,
    /// Visit the seeds in a new pseudo-random order every epoch.
    pub shuffle: bool,
    /// Leave out an incomplete last batch.
    pub drop_last: bool,
    /// Seed of all randomness.
    pub seed: u64,
    /// Deliver the id of every sampled edge: its row number in the imported edge list.
    pub edge_ids: bool,
    /// Rank of this process among those that share an epoch.
    pub rank: u64,
    /// Number of processes that share an epoch.
    pub world_size: u64,
    /// Array of the data set to deliver as features, by key (`nodes/node/x`).
    pub features: Option<String>,
    /// An `.npy` file to deliver as features instead: a matrix with one row per node.
    pub features_path: Option<PathBuf>,
    /// Features by node type, in a graph with several node types.
    pub typed_features: BTreeMap<String, FeatureChoice>,
    /// Precision of the feature rows; [`Precision::Int8`] reads `int8` layouts.
    #[serde(default)]
    pub precision: Precision,
    /// Further arrays to deliver in their stored form, by key: `nodes/node/year` with one row per
    /// node of a batch, `edges/edge/weight` with one row per edge.
    pub arrays: Vec<String>,

    /// Memory budget of the loader.
    pub memory: Bytes,
    /// Part of the budget that the caller uses (for labels, for example).
    pub reserved: Bytes,
    /// Sampling and assembly threads; 0 means one per core.
    pub threads: usize,
    /// Read back end.
    #[serde(with = "as_text")]
    pub backend: Backend,
    /// Where the topology is stored.
    pub topology: TopologyMode,
    /// Eviction in the dynamic part.
    #[serde(with = "as_text")]
    pub policy: Policy,
    /// How to choose the constant part.
    #[serde(with = "as_text")]
    pub hotness: Hotness,
    /// Batches per group; if absent, the plan chooses.
    pub group: Option<u32>,
    /// Groups sampled ahead of the group that is being fetched.
    pub look_ahead: u32,
    /// Share of the row slots for the constant part; if absent, the plan chooses.
    pub constant_share: Option<f64>,
    /// Memory server for copies of features and topology.
    pub far: Option<FarOptions>,
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            fan_outs: vec![15, 10],
            typed_fan_outs: BTreeMap::new(),
            input_type: None,
            batch_size: 1024,
            replace: false,
            method: Method::Neighbor,
            disjoint: false,
            subgraph: Subgraph::Directional,
            weights: None,
            edge_times: None,
            node_times: None,
            time_order: TimeOrder::Any,
            equal_times: EqualTimes::Seen,
            shuffle: false,
            drop_last: false,
            seed: 0,
            edge_ids: true,
            rank: 0,
            world_size: 1,
            features: None,
            features_path: None,
            typed_features: BTreeMap::new(),
            precision: Precision::Exact,
            arrays: Vec::new(),
            memory: Bytes::gib(1),
            reserved: Bytes(0),
            threads: 0,
            backend: Backend::Auto,
            topology: TopologyMode::Auto,
            policy: Policy::Window,
            hotness: Hotness::Presample,
            group: None,
            look_ahead: 1,
            constant_share: None,
            far: None,
        }
    }
}

impl LoaderConfig {
    /// Checks conditions that the types cannot express.
    ///
    /// # Errors
    /// `Invalid`, naming the field, its value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        if self.batch_size == 0 {
            return Err(Error::invalid("batch_size is 0, expected at least 1"));
        }
        if self.batch_size > u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "batch_size is {}, expected at most {}",
                self.batch_size,
                u32::MAX
            )));
        }
        if self.world_size > u64::from(u32::MAX) || self.rank >= self.world_size {
            return Err(Error::invalid(format!(
                "rank {} of {} processes, expected a rank from 0 and below their number",
                self.rank, self.world_size
            )));
        }
        let typed = self.typed_fan_outs.values().flatten();
        let mut fan_outs = self.fan_outs.iter().chain(typed);
        if let Some(fan_out) = fan_outs.find(|&&f| f < -1 || f > i64::from(u32::MAX)) {
            return Err(Error::invalid(format!("fan-out {fan_out} is out of range"))
                .hint("give the neighbours per hop, such as 15,10; -1 means all"));
        }
        if self.fan_outs.len() > 255 {
            return Err(Error::invalid(format!(
                "{} hops, expected at most 255",
                self.fan_outs.len()
            )));
        }
        if self.group == Some(0) {
            return Err(Error::invalid("group is 0, expected at least 1 batch"));
        }
        if let Some(share) = self.constant_share
            && !(0.0..=1.0).contains(&share)
        {
            return Err(Error::invalid(format!("constant_share is {share}, expected 0 to 1")));
        }
        if self.features.is_some() && self.features_path.is_some() {
            return Err(Error::invalid("both features and features_path are given, expected one"));
        }
        self.far.as_ref().map_or(Ok(()), FarOptions::validate)
    }

    /// Checks the options that depend on the graph's types.
    ///
    /// # Errors
    /// `NotFound` for an unknown type. `Invalid` for a wrong number of hops, or for options that do
    /// not apply to a graph with or without several types.
    pub fn validate_types(&self, schema: &Schema) -> Result<()> {
        let hops = self.fan_outs.len();
        if !schema.is_typed() {
            let typed = [
                ("typed_fan_outs", !self.typed_fan_outs.is_empty()),
                ("input_type", self.input_type.is_some()),
                ("typed_features", !self.typed_features.is_empty()),
            ];
            return match typed.into_iter().find(|(_, given)| *given) {
                Some((name, _)) => Err(Error::invalid(format!(
                    "{name}: the graph has one type of nodes and edges, so there is nothing to choose"
                ))),
                None => Ok(()),
            };
        }
        if self.features.is_some() || self.features_path.is_some() {
            return Err(Error::invalid(
                "features: the graph has several node types, expected features by type",
            ));
        }
        if self.method == Method::Ladies {
            return Err(Error::invalid(
                "LADIES samples from a graph of one type of nodes and edges",
            )
            .hint("leave the method out, or take LABOR"));
        }
        for name in self.typed_features.keys().chain(&self.input_type) {
            schema.node_type(name)?;
        }
        for (name, fan_outs) in &self.typed_fan_outs {
            let of = match self.method {
                Method::Hgt => schema.node_type(name).map(|_| "node")?,
                _ => schema.edge_type(name).map(|_| "edge")?,
            };
            if fan_outs.len() != hops {
                return Err(Error::invalid(format!(
                    "fan-outs of {of} type `{name}`: {} hops, expected {hops} as for the others",
                    fan_outs.len()
                ))
                .hint(format!("write a number for each hop; 0 takes no {of} of this type")));
            }
        }
        Ok(())
    }

    /// Whether seeds have times, which limit their neighbourhoods.
    pub fn has_times(&self) -> bool {
        self.edge_times.is_some() || self.node_times.is_some()
    }

    /// The configuration of the sampler, over a graph with the types of `schema`; without rules
    /// that need arrays.
    pub fn sampling(&self, schema: &Arc<Schema>) -> SampleConfig {
        let converted = |fan_outs: &Vec<i64>| -> Vec<FanOut> {
            fan_outs.iter().map(|&f| u32::try_from(f).map_or(FanOut::All, FanOut::Take)).collect()
        };
        let names: Vec<&str> = match self.method {
            Method::Hgt => schema.node_types().iter().map(|range| &*range.name).collect(),
            _ => schema.edge_types().iter().map(|range| &*range.name).collect(),
        };
        let of_type = |name| converted(self.typed_fan_outs.get(name).unwrap_or(&self.fan_outs));
        let types = schema.is_typed().then(|| TypedFanOuts {
            schema: Arc::clone(schema),
            of: names.into_iter().map(of_type).collect(),
        });
        SampleConfig {
            fan_outs: converted(&self.fan_outs),
            types,
            rules: Rules::default(),
            replace: self.replace,
            edge_ids: self.needs_edge_ids(),
            most_edges: Some((self.memory.0 / LEAST_EDGE_BYTES).max(TRIED_EDGES)),
        }
    }

    /// Whether edges are sampled with their ids, for delivery or for looking up rows of edge
    /// arrays.
    pub fn needs_edge_ids(&self) -> bool {
        let rules = self.weights.is_some() || self.edge_times.is_some();
        self.edge_ids || rules || self.arrays.iter().any(|key| key.starts_with("edges/"))
    }

    /// Number of threads to start; 0 is replaced by the number of cores.
    pub fn effective_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

/// Serialises a mode as its command-line name.
mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: Display,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_survives_json_and_unknown_keys_are_refused() {
        let config = LoaderConfig { fan_outs: vec![5, -1], ..LoaderConfig::default() };
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<LoaderConfig>(&json).unwrap(), config);
        assert!(serde_json::from_str::<LoaderConfig>(r#"{"batchsize": 3}"#).is_err());
    }

    #[test]
    fn minus_one_means_all_neighbours() {
        let config = LoaderConfig { fan_outs: vec![5, -1], ..LoaderConfig::default() };
        let schema = Arc::new(Schema::of_one_type(1, 1));
        assert!(matches!(config.sampling(&schema).fan_outs[..], [FanOut::Take(5), FanOut::All]));
    }
}
