//! Questions: requests that have been checked.

use outercore_core::NodeId;

use crate::asked::Asked;
use crate::inline::Inline;

/// A request that has been checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The id that the client gave the request.
    pub id: Option<String>,
    /// The nodes to compute. Nodes of graphs are filled in later, because they depend on the
    /// moment.
    pub nodes: Vec<NodeId>,
    /// The predictions to make for the nodes.
    pub asked: Asked,
    /// Inline nodes, edges and graphs; `NEW_NODE + k` in `nodes` is the k-th inline node.
    pub inline: Option<Inline>,
    /// Seed of the sampler.
    pub seed: u64,
    /// LSN of the oldest update that the answer must include.
    pub min_lsn: u64,
    /// Longest time for the answer; `None` stands for the limit of the server.
    pub deadline_ms: Option<u64>,
    /// Names of the wanted outputs; empty stands for all.
    pub outputs: Vec<String>,
}
