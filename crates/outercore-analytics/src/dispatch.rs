//! From an algorithm with its options to what it needs, computes and delivers.

use std::path::Path;

use outercore_core::{Bytes, Result};
use outercore_grid::Grid;

use crate::algorithm::{Algorithm, PathResult};
use crate::algorithms::pagerank::Teleport;
use crate::algorithms::{
    betweenness, bfs, closeness, degrees, hits, kcore, label_propagation, local_clustering,
    louvain, pagerank, radii, scc, sssp, triangles, wcc,
};
use crate::output::{Need, NodeValue, Raw, Values, deliver, deliver_file};
use crate::program::Passes;

/// A result of any type, in the numbering of the grid.
#[derive(Debug)]
pub(crate) enum AnyRaw {
    I32(Raw<i32>),
    I64(Raw<i64>),
    F64(Raw<f64>),
}

/// A result by node id, and what is worth saying beside it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) values: Values,
    pub(crate) facts: serde_json::Map<String, serde_json::Value>,
}

/// What an algorithm takes on a grid, with `personalized` entries in the teleport vector.
pub(crate) fn need(algorithm: &Algorithm, grid: &Grid, personalized: u64) -> Need {
    let shape = grid.shape();
    let mut arcs = vec![0u64; shape.partitions()];
    for piece in grid.pieces() {
        // At its row and at its column, which for a symmetric grid's edge are both its sources.
        arcs[piece.row_part as usize] += u64::from(piece.edges);
        arcs[piece.col_part as usize] += u64::from(piece.edges);
    }
    let largest = arcs.into_iter().max().unwrap_or(0);
    match algorithm {
        Algorithm::Pagerank { .. } => {
            let options = algorithm.pagerank_options().unwrap_or_default();
            pagerank::need(shape, &options, personalized)
        }
        Algorithm::Bfs { flow, result, .. } => bfs::need(shape, (*flow).into(), result.is_before()),
        Algorithm::Sssp { flow, result, .. } => {
            sssp::need(shape, (*flow).into(), result.is_before())
        }
        Algorithm::Wcc {} => wcc::need(shape),
        Algorithm::Scc {} => scc::need(shape),
        Algorithm::Radii { .. } => radii::need(shape),
        Algorithm::Betweenness { weights, .. } => betweenness::need(shape, weights.is_some()),
        Algorithm::Closeness { .. } => closeness::need(shape),
        Algorithm::Hits { .. } => hits::need(shape, &algorithm.hits_options().unwrap_or_default()),
        Algorithm::Kcore {} => kcore::need(shape, largest),
        Algorithm::LabelPropagation { .. } => label_propagation::need(shape, largest),
        Algorithm::Louvain { .. } => louvain::need(shape),
        Algorithm::Triangles {} => triangles::need(shape, largest),
        Algorithm::LocalClustering {} => local_clustering::need(shape, largest),
        Algorithm::Degrees { .. } => degrees::need(shape),
    }
}

/// Runs an algorithm.
pub(crate) fn compute<R: Passes>(
    run: &mut R,
    algorithm: &Algorithm,
    teleport: &Teleport,
) -> Result<AnyRaw> {
    Ok(match algorithm {
        Algorithm::Pagerank { .. } => {
            let options = algorithm.pagerank_options().unwrap_or_default();
            AnyRaw::F64(pagerank::pagerank(run, &options, teleport)?)
        }
        Algorithm::Bfs { source, flow, cutoff, result } => {
            let search =
                bfs::Search { sources: source.nodes(), flow: (*flow).into(), cutoff: *cutoff };
            match result {
                PathResult::Distances => AnyRaw::I32(bfs::bfs(run, &search)?),
                PathResult::Predecessors => AnyRaw::I64(bfs::bfs_predecessors(run, &search)?),
            }
        }
        Algorithm::Sssp { source, weights, flow, cutoff, result } => {
            let search = sssp::Search {
                sources: source.nodes(),
                weighted: weights.is_some(),
                flow: (*flow).into(),
                cutoff: *cutoff,
            };
            match result {
                PathResult::Distances => AnyRaw::F64(sssp::sssp(run, &search)?),
                PathResult::Predecessors => AnyRaw::I64(sssp::sssp_predecessors(run, &search)?),
            }
        }
        Algorithm::Wcc {} => AnyRaw::I64(wcc::wcc(run)?),
        Algorithm::Scc {} => AnyRaw::I64(scc::scc(run)?),
        Algorithm::Radii { sources, seed, flow } => {
            AnyRaw::I32(radii::radii(run, *sources, *seed, (*flow).into())?)
        }
        Algorithm::Betweenness { sources, samples, seed, weights, normalized } => {
            let sources = match (sources, samples) {
                (Some(sources), _) => betweenness::Sources::Given(sources),
                (None, Some(samples)) => {
                    betweenness::Sources::Drawn { samples: *samples, seed: *seed }
                }
                (None, None) => betweenness::Sources::All,
            };
            let weighted = weights.is_some();
            AnyRaw::F64(betweenness::betweenness(run, sources, weighted, *normalized)?)
        }
        Algorithm::Closeness { nodes, flow, improved } => {
            let nodes = nodes.as_deref();
            AnyRaw::F64(closeness::closeness(run, nodes, (*flow).into(), *improved)?)
        }
        Algorithm::Hits { .. } => {
            AnyRaw::F64(hits::hits(run, &algorithm.hits_options().unwrap_or_default())?)
        }
        Algorithm::Kcore {} => AnyRaw::I64(kcore::kcore(run)?),
        Algorithm::LabelPropagation { max_iterations } => {
            AnyRaw::I64(label_propagation::label_propagation(run, *max_iterations)?)
        }
        Algorithm::Louvain { resolution, weights } => {
            AnyRaw::I64(louvain::louvain(run, *resolution, weights.is_some())?)
        }
        Algorithm::Triangles {} => AnyRaw::I64(triangles::triangles(run)?),
        Algorithm::LocalClustering {} => AnyRaw::F64(local_clustering::local_clustering(run)?),
        Algorithm::Degrees { which } => AnyRaw::I64(degrees::degrees(run, *which)?),
    })
}

impl AnyRaw {
    /// Brings the result into the order of node ids; into a file in a directory, some bytes at a
    /// time, if asked.
    pub(crate) fn deliver<R: Passes>(
        self,
        run: &mut R,
        algorithm: &Algorithm,
        teleport: &Teleport,
        file: Option<(&Path, Bytes)>,
    ) -> Result<Found> {
        fn typed<T: NodeValue, R: Passes>(
            run: &mut R,
            mut raw: Raw<T>,
            teleport: &Teleport,
            known: (&[u64], T),
            file: Option<(&Path, Bytes)>,
        ) -> Result<Found> {
            let facts = std::mem::take(&mut raw.facts);
            let of = |node| teleport.of(node);
            if let Some((directory, window)) = file {
                let file = deliver_file(run, raw, &of, known, directory, window)?;
                return Ok(Found { values: Values::File(file), facts });
            }
            let mut values = deliver(run, raw, &of)?;
            for &node in known.0 {
                if let Some(place) = values.get_mut(node as usize) {
                    *place = known.1;
                }
            }
            Ok(Found { values: T::wrap(values), facts })
        }
        match (self, algorithm) {
            // A source without arcs has no place in the grid, and still reaches itself.
            (Self::I32(raw), Algorithm::Bfs { source, .. }) => {
                typed(run, raw, teleport, (source.nodes(), 0), file)
            }
            (Self::F64(raw), Algorithm::Sssp { source, .. }) => {
                typed(run, raw, teleport, (source.nodes(), 0.0), file)
            }
            // A node without arcs reaches none.
            (Self::F64(raw), Algorithm::Closeness { nodes: Some(nodes), .. }) => {
                let places = run.place(nodes)?;
                let isolated = nodes.iter().zip(places).filter(|(_, place)| place.is_none());
                let ids: Vec<u64> = isolated.map(|(&node, _)| node).collect();
                typed(run, raw, teleport, (&ids, 0.0), file)
            }
            (Self::I32(raw), _) => typed(run, raw, teleport, (&[], 0), file),
            (Self::I64(raw), _) => typed(run, raw, teleport, (&[], 0), file),
            (Self::F64(raw), _) => typed(run, raw, teleport, (&[], 0.0), file),
        }
    }
}
