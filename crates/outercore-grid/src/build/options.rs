//! Options of a grid build.

use outercore_core::Bytes;

use crate::shape::Order;

/// Options of a grid build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Memory budget of the build.
    pub memory: Bytes,
    /// Number of threads; by default the processor's threads, at most 16.
    pub threads: Option<usize>,
    /// The edge type whose arcs the grid contains, as in keys; by default all arcs.
    pub relation: Option<String>,
    /// The edge array to take weights from, by its name within the edge type.
    pub weights: Option<String>,
    /// The order of the nodes; by default the given order if most arcs are short, otherwise by
    /// degree.
    pub order: Option<Order>,
    /// Partitions have at most `1 << partition_log2` nodes. The value is 1 to 16; by default it
    /// depends on the size of the graph.
    pub partition_log2: Option<u32>,
    /// Whether to replace an existing grid.
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
