//! Weights and times of a data set, opened for the sampler's rules.

use std::sync::Arc;

use outercore_core::{Bytes, Error, ErrorKind, NodeId, Result};
use outercore_io::{CostModel, EngineConfig};
use outercore_sample::rules::{Rules, Times, Together};
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::row_values::RowValues;

use crate::config::LoaderConfig;

/// Weights and times may take one part in this many of the free memory.
const SHARE: u64 = 4;

/// Edges examined together may take one part in this many of the budget.
const TOGETHER_SHARE: u64 = 16;

/// Read buffers of an array that stays on disk.
const STAGING: Bytes = Bytes::kib(512);

/// The rules of a configuration, and their memory.
///
/// Arrays are read into memory as long as they take at most a quarter of `free`.
///
/// # Errors
/// `NotFound`: no array has this name. `Invalid`: contradicting rules, or an array with several
/// columns. Failed reads.
pub fn open_rules(
    dataset: &DataSet,
    config: &LoaderConfig,
    free: Bytes,
    reading: &EngineConfig,
    cost: CostModel,
) -> Result<(Rules, Bytes)> {
    let mut room = Room { left: free.0 / SHARE, taken: 0, reading, cost };
    let schema = dataset.schema();
    let edge_types: Vec<&str> = schema.edge_types().iter().map(|range| &*range.name).collect();
    let node_types: Vec<&str> = schema.node_types().iter().map(|range| &*range.name).collect();
    let mut of_edges = |name: &str| room.open(dataset, "edges", &edge_types, name);
    let weights = config.weights.as_deref().map(&mut of_edges).transpose()?;
    let choice = config.method.choice(weights)?;
    let edges = config.edge_times.as_deref().map(&mut of_edges).transpose()?;
    let nodes = config.node_times.as_deref();
    let nodes = nodes.map(|name| room.open(dataset, "nodes", &node_types, name)).transpose()?;
    let times = (edges.is_some() || nodes.is_some()).then(|| Times {
        edges: edges.unwrap_or_default(),
        nodes: nodes.unwrap_or_default(),
        order: config.time_order,
        equal: config.equal_times,
    });
    let rules = Rules {
        disjoint: config.disjoint,
        choice,
        subgraph: config.subgraph,
        times,
        together: Together::within(config.memory.0 / TOGETHER_SHARE),
    };
    rules.validate(config.replace)?;
    let looked = if rules.look_at_edges() { rules.together.bytes() } else { 0 };
    Ok((rules, Bytes(room.taken + looked)))
}

/// The time of each of `nodes`, which are ids within the seeds' type, or of all nodes of the type;
/// empty if they have no times.
///
/// # Errors
/// `Invalid`: times that are not whole numbers. Failed reads.
pub fn times_of_nodes(
    dataset: &DataSet,
    config: &LoaderConfig,
    nodes: Option<&[NodeId]>,
) -> Result<Vec<i64>> {
    let node_type = config.input_type.as_deref().unwrap_or("node");
    let key = config.node_times.as_ref().map(|name| format!("nodes/{node_type}/{name}"));
    let Some(key) = key.filter(|key| dataset.has_array(key)) else { return Ok(Vec::new()) };
    let array = dataset.array(&key)?;
    let all: Vec<NodeId>;
    let rows = match nodes {
        Some(nodes) => nodes,
        None => {
            all = (0..array.rows()).collect();
            &all
        }
    };
    let reading = EngineConfig { staging: STAGING, ..EngineConfig::default() };
    let values = RowValues::open(&array, false, reading, CostModel::default())?;
    let mut times = vec![0; rows.len()];
    values.integers(rows, &mut times)?;
    Ok(times)
}

/// The memory left for arrays.
struct Room<'a> {
    left: u64,
    taken: u64,
    reading: &'a EngineConfig,
    cost: CostModel,
}

impl Room<'_> {
    /// Opens the array `name` of each type that has one.
    fn open(
        &mut self,
        dataset: &DataSet,
        of: &str,
        types: &[&str],
        name: &str,
    ) -> Result<Vec<Option<Arc<RowValues>>>> {
        let keys: Vec<String> =
            types.iter().map(|name_of| format!("{of}/{name_of}/{name}")).collect();
        if !keys.iter().any(|key| dataset.has_array(key)) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "data set `{}` has no array `{}`",
                    dataset.root().display(),
                    keys.join("` or `")
                ),
            )
            .hint("`outercore info DATASET` lists its arrays"));
        }
        let arrays = keys.iter().map(|key| {
            let array = dataset.has_array(key).then(|| dataset.array(key)).transpose()?;
            array.map(|array| self.open_one(&array).map(Arc::new)).transpose()
        });
        arrays.collect()
    }

    fn open_one(&mut self, array: &ArrayRef) -> Result<RowValues> {
        let len = array.data_len();
        let resident = len <= self.left;
        let reading = EngineConfig { staging: STAGING, tier: None, ..self.reading.clone() };
        if resident {
            self.left -= len;
        }
        self.taken += if resident { len } else { STAGING.0 };
        RowValues::open(array, resident, reading, self.cost)
    }
}
