use outercore_core::NodeId;

/// The seeds of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeds {
    /// Number of the batch in its epoch: a coordinate of the randomness.
    pub batch: u64,
    /// The seed nodes; each duplicate has a separate place.
    pub nodes: Vec<NodeId>,
    /// The time of each seed, if rules use times; otherwise empty.
    pub times: Vec<i64>,
}
