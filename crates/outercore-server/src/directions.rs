//! How a request lists the edges of an undirected graph.
//!
//! `docs/design/0028-inline-requests.md` has the reasons.

use std::collections::HashMap;

use crate::refusal::{Refusal, cut};
use outercore_core::NodeId;
use outercore_live::NEW_NODE;

/// Tensor of edges, sources then targets: `[2, edges]`.
pub const EDGES: &str = "edge_index";

/// Bytes per edge while edges are counted.
pub const COUNTED_EDGE: usize = 64;

/// How a request lists the edges of an undirected graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Directions {
    /// The request does not say. Edges listed in one direction only count once. Edges listed in
    /// both directions are ambiguous and are refused.
    #[default]
    Unsaid,
    /// Each edge once; two rows between the same nodes are two edges.
    One,
    /// Each edge in both directions, and self-loops once.
    Both,
}

impl Directions {
    /// Name of the parameter of a request.
    pub const PARAMETER: &'static str = "edge_directions";

    /// Parses the value of the parameter, which is JSON.
    ///
    /// # Errors
    /// An unknown value.
    pub fn parse(json: &str) -> Result<Self, Refusal> {
        match json {
            "\"one\"" => Ok(Self::One),
            "\"both\"" => Ok(Self::Both),
            _ => Err(Refusal::wrong(format!(
                "{}: {}, expected `one` or `both`",
                Self::PARAMETER,
                cut(json)
            ))),
        }
    }

    /// Lists the edges as the data set stores them: each edge of an undirected graph once.
    ///
    /// # Errors
    /// Edges in both directions, if the request does not say whether they are one edge or two. With
    /// `Both`: an edge without its reverse, or a self-loop listed twice.
    pub fn each_once(
        self,
        edges: Vec<(NodeId, NodeId)>,
        is_undirected: bool,
    ) -> Result<Vec<(NodeId, NodeId)>, Refusal> {
        let parameter = Self::PARAMETER;
        let mut count: HashMap<(NodeId, NodeId), u64> = HashMap::new();
        for &edge in &edges {
            *count.entry(edge).or_default() += 1;
        }
        let of = |source, target| count.get(&(source, target)).copied().unwrap_or_default();
        let name = |node: NodeId| match node.checked_sub(NEW_NODE) {
            Some(new) => format!("inline node {new}"),
            None => format!("node {node}"),
        };
        match self {
            Self::Unsaid if is_undirected => {
                let reversed = edges.iter().find(|(a, b)| a != b && of(*b, *a) > 0);
                match reversed {
                    None => Ok(edges),
                    Some(&(source, target)) => Err(Refusal::wrong(format!(
                        "{EDGES}: edges between {} and {} in both directions, in an undirected graph; \
                         say by the parameter {parameter}: `both` if each edge is listed in both \
                         directions, as PyG does, or `one` if these are different edges",
                        name(source),
                        name(target)
                    ))),
                }
            }
            Self::One if !is_undirected => Err(Refusal::wrong(format!(
                "{parameter}: `one`, but the graph is directed: {EDGES} has every arc as it is"
            ))),
            Self::Unsaid | Self::One => Ok(edges),
            Self::Both => {
                if let Some(&(source, target)) =
                    edges.iter().find(|(a, b)| of(*a, *b) != of(*b, *a))
                {
                    return Err(Refusal::wrong(format!(
                        "{EDGES}: {} from {} to {} and {} back, expected as many with {parameter} `both`",
                        of(source, target),
                        name(source),
                        name(target),
                        of(target, source)
                    )));
                }
                let mut loops = count.iter().filter(|((source, target), _)| source == target);
                let is_doubled = loops.clone().next().is_some() && loops.all(|(_, n)| n % 2 == 0);
                if is_doubled && is_undirected {
                    return Err(Refusal::wrong(format!(
                        "{EDGES}: every self-loop comes twice, expected once with {parameter} `both`; \
                         with `one` each edge and each self-loop is listed once"
                    )));
                }
                let is_kept = |edge: &(NodeId, NodeId)| !is_undirected || edge.0 <= edge.1;
                Ok(edges.into_iter().filter(is_kept).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use outercore_core::mix;

    use super::*;

    type Edges = Vec<(NodeId, NodeId)>;

    /// Random edges between few nodes, with parallel edges and self-loops.
    fn drawn(seed: u64) -> Edges {
        let word = |place: u64| mix(seed.wrapping_mul(1 << 20) + place);
        let count = word(0) % 12;
        (0..count).map(|edge| (word(2 * edge + 1) % 5, word(2 * edge + 2) % 5)).collect()
    }

    /// The arcs of undirected edges, as a data set stores them.
    fn arcs(edges: &Edges) -> Edges {
        let back = edges.iter().filter(|(a, b)| a != b).map(|&(a, b)| (b, a));
        let mut arcs: Edges = edges.iter().copied().chain(back).collect();
        arcs.sort_unstable();
        arcs
    }

    fn refusal(edges: &Edges, is_undirected: bool, directions: Directions) -> String {
        format!("{:?}", directions.each_once(edges.clone(), is_undirected).unwrap_err())
    }

    #[test]
    fn edges_in_both_directions_are_those_that_were_listed_once() {
        for seed in 0..300 {
            let edges = drawn(seed);
            let wanted = arcs(&edges);
            let one = Directions::One.each_once(edges.clone(), true).unwrap();
            assert_eq!(arcs(&one), wanted, "seed {seed}");
            let mut loops: HashMap<NodeId, u64> = HashMap::new();
            edges
                .iter()
                .filter(|(a, b)| a == b)
                .for_each(|&(a, _)| *loops.entry(a).or_default() += 1);
            if !loops.is_empty() && loops.values().all(|count| count % 2 == 0) {
                assert!(
                    refusal(&wanted, true, Directions::Both)
                        .contains("every self-loop comes twice")
                );
                continue;
            }
            let both = Directions::Both.each_once(wanted.clone(), true).unwrap();
            assert_eq!(arcs(&both), wanted, "seed {seed}");
            // A directed graph keeps the arcs unchanged.
            for directions in [Directions::Unsaid, Directions::Both] {
                let listed = directions.each_once(wanted.clone(), false).unwrap();
                assert_eq!(listed, wanted, "seed {seed}");
            }
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused_with_the_way_out() {
        for seed in 0..300 {
            let edges = drawn(seed);
            let has_reverse = edges.iter().any(|(a, b)| a != b && edges.contains(&(*b, *a)));
            match Directions::Unsaid.each_once(edges.clone(), true) {
                Ok(found) => assert!(!has_reverse && found == edges, "seed {seed}"),
                Err(refusal) => {
                    let text = format!("{refusal:?}");
                    assert!(has_reverse && text.contains("edge_directions: `both`"), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn edges_that_contradict_what_is_said_of_them_are_refused() {
        let new = NEW_NODE;
        let missing = vec![(7, new), (new, 7), (7, new)];
        let text = refusal(&missing, true, Directions::Both);
        assert!(text.contains("2 from node 7 to inline node 0 and 1 back"), "{text}");
        assert!(refusal(&missing, false, Directions::Both).contains("and 1 back"));
        assert!(refusal(&missing, false, Directions::One).contains("the graph is directed"));
    }
}
