//! How a grid numbers and partitions the nodes.

/// How the nodes are numbered and partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By falling degree; consecutive ranks go to different partitions in turn.
    Degree,
    /// In the given order, nodes without arcs last.
    Natural,
}

/// Dimensions and options of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridShape {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Nodes with an arc; only these have a place in a partition.
    pub connected: u64,
    /// A partition has at most `1 << partition_log2` nodes; at most 16.
    pub partition_log2: u32,
    /// How ranks become places.
    pub order: Order,
    /// Whether every stored edge represents two arcs (a loop represents one).
    pub symmetric: bool,
    /// Arcs of the CSC.
    pub arcs: u64,
    /// Stored edges.
    pub edges: u64,
    /// Whether weights are stored.
    pub weighted: bool,
}

impl GridShape {
    /// Number of partitions, at least one.
    pub fn partitions(&self) -> usize {
        self.connected.div_ceil(1 << self.partition_log2).max(1) as usize
    }
    /// Number of nodes in a partition.
    pub fn partition_len(&self, partition: usize) -> usize {
        let (count, p) = (self.partitions() as u64, partition as u64);
        match self.order {
            Order::Degree => self.connected.saturating_sub(p).div_ceil(count) as usize,
            Order::Natural => self
                .connected
                .saturating_sub(p << self.partition_log2)
                .min(1 << self.partition_log2) as usize,
        }
    }
    /// Partition and local id of a rank below `connected`.
    pub fn place(&self, rank: u64) -> (usize, usize) {
        let count = self.partitions() as u64;
        match self.order {
            Order::Degree => ((rank % count) as usize, (rank / count) as usize),
            Order::Natural => (
                (rank >> self.partition_log2) as usize,
                (rank & ((1 << self.partition_log2) - 1)) as usize,
            ),
        }
    }
    /// The rank at a place; the inverse of [`GridShape::place`].
    pub fn rank(&self, partition: usize, local: usize) -> u64 {
        match self.order {
            Order::Degree => local as u64 * self.partitions() as u64 + partition as u64,
            Order::Natural => ((partition as u64) << self.partition_log2) + local as u64,
        }
    }
}
