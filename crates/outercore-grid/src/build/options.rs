//! How a grid is built.

use outercore_core::Bytes;

use crate::shape::Order;

/// How a grid is built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Everything the build keeps in memory.
    pub memory: Bytes,
    /// Threads; by default those of the machine, at most 16.
    pub threads: Option<usize>,
    /// The edge type whose arcs the grid has, as in keys; by default all arcs.
    pub relation: Option<String>,
    /// The edge array to take weights from, by its name within the edge type.
    pub weights: Option<String>,
    /// The order of the nodes; by default the given one where most arcs are short, else by degree.
    pub order: Option<Order>,
    /// Partitions of at most `1 << partition_log2` nodes, 1 to 16; by default by the size of the
    /// graph.
    pub partition_log2: Option<u32>,
    /// Whether to replace a grid that is there.
    pub overwrite: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            memory: Bytes::gib(1),
            threads: None,
            relation: None,
            weights: None,
            order: None,
            partition_log2: None,
            overwrite: false,
        }
    }
}

impl BuildOptions {
    /// Name of the weights within the edge type.
    pub(super) fn weights_name(&self) -> Option<&str> {
        let name = self.weights.as_deref()?;
        Some(name.strip_prefix("edges/edge/").unwrap_or(name))
    }
}
