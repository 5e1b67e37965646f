//! Chooses the nodes of a layer by importance.

use std::collections::{HashMap, HashSet};

use outercore_core::Stream;

use super::hgt::SCORE_BYTES;
use super::pick::{OF_SOURCES, first, key};
use crate::config::FanOut;

/// The in-edges of the nodes of a layer, node by node.
pub(super) struct Layer<'a> {
    /// Number of in-edges of each node.
    pub degrees: &'a [u64],
    /// The source of each edge.
    pub sources: &'a [u64],
}

/// For each node the places of its taken in-edges, and the weight of each taken edge.
pub(super) type Taken = (Vec<Vec<u64>>, Vec<f32>);

/// Bytes per in-edge: its position and its source.
const EDGE_BYTES: u64 = 16;

impl Layer<'_> {
    /// The approximate bytes that [`Self::choose`] uses if every edge has a different source.
    pub fn scratch(&self) -> u64 {
        self.sources.len() as u64 * (EDGE_BYTES + SCORE_BYTES)
    }

    /// Chooses at most `fan_out` sources for all nodes and takes the edges from them.
    ///
    /// Source `j` has the importance `p(j) = sum over edges (1 / degree of its target)^2`. The
    /// sources with the smallest `-ln(u(j)) / p(j)` are chosen; `u(j)` is drawn per node. The edge
    /// from `j` to `v` has the weight `1 / (degree(v) p(j))`, divided by the sum of these weights
    /// over the taken edges of `v`.
    pub fn choose(&self, stream: Stream, batch: u64, hop: u32, fan_out: FanOut) -> Taken {
        let of_edges = || {
            let per_node = self
                .degrees
                .iter()
                .flat_map(|&degree| std::iter::repeat_n(1.0 / degree as f64, degree as usize));
            self.sources.iter().copied().zip(per_node)
        };
        let mut importance: HashMap<u64, f64> = HashMap::new();
        for (source, share) in of_edges() {
            *importance.entry(source).or_default() += share * share;
        }
        let chosen: Option<HashSet<u64>> = match fan_out {
            FanOut::Take(count) if (count as usize) < importance.len() => {
                let keyed = importance.iter().map(|(&source, &p)| {
                    let draw = stream.uniform(batch, hop | OF_SOURCES, source).unit();
                    (key(draw, p), source)
                });
                Some(first(keyed.collect(), count as usize).into_iter().collect())
            }
            _ => None,
        };
        let (mut places, mut weights) = (Vec::with_capacity(self.degrees.len()), Vec::new());
        let mut edges = of_edges();
        for &degree in self.degrees {
            let (mut own, before) = (Vec::new(), weights.len());
            let mut sum = 0.0;
            for (place, (source, share)) in (0..degree).zip(edges.by_ref().take(degree as usize)) {
                if chosen.as_ref().is_none_or(|chosen| chosen.contains(&source)) {
                    own.push(place);
                    let weight = share / importance[&source];
                    sum += weight;
                    weights.push(weight);
                }
            }
            weights[before..].iter_mut().for_each(|weight| *weight /= sum);
            places.push(own);
        }
        (places, weights.into_iter().map(|weight| weight as f32).collect())
    }
}
