//! A request after it was checked.

use outercore_core::NodeId;

use crate::asked::Asked;
use crate::inline::Inline;

/// A request after it was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The id that the client has given the request.
    pub id: Option<String>,
    /// The nodes that have to be computed. Those of graphs are entered later: which they are depends
    /// on the moment.
    pub nodes: Vec<NodeId>,
    /// What is made of them.
    pub asked: Asked,
    /// Inline nodes, edges and graphs; `NEW_NODE + k` in `nodes` is the k-th inline node.
    pub inline: Option<Inline>,
    /// Seed of the sampler.
    pub seed: u64,
    /// Number of the oldest update that the answer must have seen.
    pub min_lsn: u64,
    /// How long the answer may take; the server's own limit where absent.
    pub deadline_ms: Option<u64>,
    /// Outputs wanted; all where empty.
    pub outputs: Vec<String>,
}
