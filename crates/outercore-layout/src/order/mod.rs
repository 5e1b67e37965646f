//! Orders of rows, which decide whose rows are adjacent. Pure functions of a topology.

mod degree;
mod glist;
mod lists;
mod rcm;

use std::fmt;
use std::str::FromStr;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_store::Topology;
use serde::{Deserialize, Serialize};

use crate::OnProgress;

/// Most nodes of an order, which holds node ids in 32 bits.
const MOST_NODES: u64 = 1 << 32;

/// Nodes between two calls of [`OnProgress`].
const STEP: usize = 1 << 14;

/// Default number of hops of the working sets of [`Method::Glist`]. With more hops, the set of a
/// node outgrows the pages that are read together.
const HOPS: u32 = 1;

/// By default, nodes of this in-degree or above are not centres of [`Method::Glist`]. The rows of
/// their neighbours fill many pages, and they are neighbours of many other nodes.
const MOST_DEGREE: u64 = 64;

/// Methods for ordering rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By node id.
    None,
    /// Neighbours of important nodes together; important nodes with common neighbours are adjacent.
    Glist,
    /// By falling in-degree.
    Degree,
    /// Reverse Cuthill-McKee.
    Rcm,
}

/// An order of rows: its method with all parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "lowercase", deny_unknown_fields)]
pub enum Order {
    /// By node id.
    #[default]
    None,
    /// Neighbours of important nodes together.
    ///
    /// **Source** GLIST 4.3.2, algorithm 2.
    Glist {
        /// Number of hops of a working set (h in the paper).
        hops: u32,
        /// Largest number of important nodes (Cn in the paper).
        centres: u64,
        /// Important nodes have an in-degree below this (Td in the paper).
        most_degree: u64,
    },
    /// By falling in-degree, then by node id.
    Degree,
    /// Breadth first from nodes of low degree, reversed.
    ///
    /// **Source** Cuthill and McKee (1969), reversed as by George (1971).
    Rcm,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 4] = [Self::None, Self::Glist, Self::Degree, Self::Rcm];

    /// The name in options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Glist => "glist",
            Self::Degree => "degree",
            Self::Rcm => "rcm",
        }
    }

    /// The order by this method for a graph of `nodes` nodes.
    pub const fn order(self, nodes: u64) -> Order {
        match self {
            Self::None => Order::None,
            Self::Glist => Order::Glist { hops: HOPS, centres: nodes, most_degree: MOST_DEGREE },
            Self::Degree => Order::Degree,
            Self::Rcm => Order::Rcm,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| {
            Error::invalid(format!("order `{text}`, expected `none`, `glist`, `degree` or `rcm`"))
        })
    }
}

impl Order {
    /// The method.
    pub const fn method(self) -> Method {
        match self {
            Self::None => Method::None,
            Self::Glist { .. } => Method::Glist,
            Self::Degree => Method::Degree,
            Self::Rcm => Method::Rcm,
        }
    }

    /// The nodes by place; `None` for the order of the ids.
    ///
    /// **Cost** requests the in-edges of one node at a time, so a topology on disk would be slow.
    /// Memory is at most `room`: 13 bytes per node, or for [`Order::Glist`] 36 bytes per node and 8
    /// per member of a sampled working set.
    ///
    /// # Errors
    /// `Unsupported`: 2^32 nodes or more. `Budget`, with the least sufficient budget. Failed reads;
    /// errors of `on_progress`.
    pub fn nodes(
        self,
        topology: &dyn Topology,
        room: Bytes,
        on_progress: OnProgress<'_>,
    ) -> Result<Option<Vec<u32>>> {
        if topology.num_nodes() >= MOST_NODES && self != Self::None {
            let text = "an order of 2^32 nodes or more";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let nodes = match self {
            Self::None => return Ok(None),
            Self::Degree => degree::by_degree(topology, room)?,
            Self::Rcm => rcm::reverse_cuthill_mckee(topology, room, on_progress)?,
            Self::Glist { hops, centres, most_degree } => {
                let wanted = glist::Parameters { hops, centres, most_degree };
                glist::reorganise(topology, wanted, room, on_progress)?
            }
        };
        Ok(Some(nodes))
    }
}

/// Checks that `needed` bytes of working memory are available.
///
/// # Errors
/// `Budget`, with the sufficient memory.
fn require(needed: u64, room: Bytes) -> Result<()> {
    if needed <= room.0 {
        return Ok(());
    }
    let text = format!("ordering takes {}, there is room for {room}", Bytes(needed));
    Err(Error::new(ErrorKind::Budget, text).needs(Bytes(needed)))
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use outercore_store::resident::ResidentTopology;
    use outercore_testkit::Csc;
    use proptest::prelude::*;

    use super::*;

    fn nodes_of(graph: &Csc, method: Method) -> Vec<u32> {
        let topology =
            ResidentTopology::from_csc(graph.offsets.clone(), graph.sources.clone(), None).unwrap();
        let order = method.order(graph.num_nodes());
        order.nodes(&topology, Bytes::gib(1), &mut |_, _, _, _| Ok(())).unwrap().unwrap()
    }

    fn list(graph: &Csc, node: u32) -> &[u64] {
        let ends = [node as usize, node as usize + 1].map(|at| graph.offsets[at] as usize);
        &graph.sources[ends[0]..ends[1]]
    }

    /// Cuthill-McKee from its definition, with a queue.
    fn naive_rcm(graph: &Csc) -> Vec<u32> {
        let rank = |node: &u32| (list(graph, *node).len(), *node);
        let mut left: Vec<u32> = (0..graph.num_nodes() as u32).collect();
        left.sort_by_key(rank);
        let (mut order, mut queue) = (Vec::new(), std::collections::VecDeque::new());
        while !left.is_empty() {
            queue.push_back(left.remove(0));
            while let Some(node) = queue.pop_front() {
                order.push(node);
                let mut next: Vec<u32> = left
                    .iter()
                    .copied()
                    .filter(|&n| list(graph, node).contains(&n.into()))
                    .collect();
                next.sort_by_key(rank);
                left.retain(|node| !next.contains(node));
                queue.extend(next);
            }
        }
        order.reverse();
        order
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn every_order_has_every_node_once_and_is_what_it_is_called(
            nodes in 1u64..80,
            edges in 0u64..300,
            seed in 0u64..1000,
        ) {
            let graph = Csc::power_law(nodes, edges, seed);
            let ids: Vec<u32> = (0..nodes as u32).collect();
            for method in [Method::Glist, Method::Degree, Method::Rcm] {
                let mut found = nodes_of(&graph, method);
                found.sort_unstable();
                prop_assert_eq!(&found, &ids);
            }
            let mut by_degree = ids;
            by_degree.sort_by_key(|&node| (Reverse(list(&graph, node).len()), node));
            prop_assert_eq!(nodes_of(&graph, Method::Degree), by_degree);
            prop_assert_eq!(nodes_of(&graph, Method::Rcm), naive_rcm(&graph));
        }
    }

    #[test]
    fn a_path_is_laid_out_end_to_end() {
        let edges: Vec<(u64, u64)> = (0..9).flat_map(|n| [(n, n + 1), (n + 1, n)]).collect();
        let order = nodes_of(&Csc::from_edges(10, &edges), Method::Rcm);
        assert_eq!(order, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    }
}
