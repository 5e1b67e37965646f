//! Local clustering coefficients.

use outercore_core::Result;
use serde::{Deserialize, Serialize};

use super::triangles::{Corners, Counted, Triangles, corners};
use crate::algorithm::{GraphAlgorithm, Scale};
use crate::output::{Isolated, Need, Raw};
use crate::program::Passes;
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// Options of [`local_clustering`], which has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalClustering {}

impl GraphAlgorithm for LocalClustering {
    fn need(&self, scale: &Scale<'_>) -> Need {
        let need = Triangles {}.need(scale);
        // Plus the number of neighbours of each node.
        Need { state_per_node: need.state_per_node + 4, ..need }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        local_clustering(run).map(AnyRaw::from)
    }
}

/// For each node, the share of the possible arcs between its neighbours that exist.
///
/// Neighbours are the other nodes at the node's arcs, in either direction. `d` neighbours have `d
/// (d - 1)` possible arcs; parallel arcs count once. In an undirected graph an edge is two arcs. 0
/// for a node with fewer than two neighbours. Fact: `mean`, over all nodes.
///
/// # Method, cost
/// As for [`triangles`](super::triangles::triangles), but it also counts the arcs opposite to the
/// node in every triangle. State: 20 bytes per connected node.
///
/// # Errors
/// A failed or corrupt read; a stop request.
///
/// # Source
/// LCC of the LDBC Graphalytics specification. For undirected graphs it is the coefficient of
/// Watts, Strogatz, "Collective dynamics of small-world networks" (1998).
pub fn local_clustering<R: Passes>(run: &mut R) -> Result<Raw<f64>> {
    let nodes = run.shape().nodes;
    let Corners { found, neighbours, groups } = corners(run, Counted::Arcs)?;
    let by_partition: Vec<Vec<f64>> = found
        .into_iter()
        .zip(neighbours)
        .map(|(found, neighbours)| {
            let pairs = found.into_iter().zip(neighbours);
            pairs
                .map(|(arcs, degree)| {
                    let degree = f64::from(degree.into_inner());
                    let arcs = arcs.into_inner() as f64;
                    if degree < 2.0 { 0.0 } else { arcs / (degree * (degree - 1.0)) }
                })
                .collect()
        })
        .collect();
    let sum: f64 = by_partition.iter().flatten().sum();
    let mut facts = serde_json::Map::new();
    facts.insert("mean".into(), (sum / nodes.max(1) as f64).into());
    facts.insert("groups".into(), groups.into());
    Ok(Raw { by_partition: Parts::Here(by_partition), isolated: Isolated::Same(0.0), facts })
}
