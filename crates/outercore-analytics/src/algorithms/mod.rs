//! The algorithms, each generic over what makes its passes.

pub mod betweenness;
pub mod bfs;
pub mod closeness;
pub mod degrees;
pub mod hits;
pub mod kcore;
pub mod label_propagation;
pub mod local_clustering;
pub mod louvain;
pub mod pagerank;
mod predecessors;
pub mod radii;
pub mod scc;
pub mod sssp;
mod starts;
pub mod triangles;
pub mod wcc;

use std::path::Path;
use std::sync::Mutex;

use outercore_core::{Bytes, Error, Result};
use outercore_grid::Grid;

use self::pagerank::Teleport;
use crate::algorithm::{Algorithm, PathResult};
use crate::output::{Need, NodeValue, Raw, Values, deliver, deliver_file};
use crate::program::{Degree, Passes, Selection};
use crate::state::{Stored, Table};

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

/// Of a checkpoint that has gone further than a run is to go.
pub(crate) fn beyond(name: &str, iterations: u64, maximum: u32) -> Error {
    Error::invalid(format!(
        "{name}: the checkpoint is after iteration {iterations}, max_iterations is {maximum}"
    ))
    .hint("raise max_iterations, or begin anew in another directory")
}

/// All partitions.
pub(crate) fn all(partitions: usize) -> Vec<bool> {
    vec![true; partitions]
}

/// The degrees in all partitions, in memory: one scan.
pub(crate) fn degrees_here<R: Passes, T: Clone + Default + From<u32>>(
    run: &mut R,
    which: Degree,
) -> Result<Vec<Vec<T>>> {
    let shape = *run.shape();
    let mut degrees: Vec<Vec<T>> =
        (0..shape.partitions()).map(|part| vec![T::default(); shape.partition_len(part)]).collect();
    run.scan_degrees(which, &mut |part, local, degree| degrees[part][local] = degree.into())?;
    Ok(degrees)
}

/// The degrees in all partitions: one scan where they have room, else by partition.
pub(crate) fn degrees_table<R: Passes, T: Clone + Default + From<u32>>(
    run: &mut R,
    which: Degree,
) -> Result<Table<Vec<T>>>
where
    Vec<T>: Stored,
{
    if run.spill().is_none() {
        return degrees_here(run, which).map(Table::Here);
    }
    Table::build(run, 1, |run, part| {
        Ok(run.degrees(which, part)?.into_iter().map(T::from).collect())
    })
}

/// Calls `add(its value, its degree)` for every node, in the same way.
pub(crate) fn add_degrees<R: Passes, T>(
    run: &mut R,
    which: Degree,
    values: &mut Table<Vec<T>>,
    mut add: impl FnMut(&mut T, u32),
) -> Result<()>
where
    Vec<T>: Stored,
{
    match values {
        Table::Here(values) => run.scan_degrees(which, &mut |part, local, degree| {
            add(&mut values[part][local], degree);
        }),
        away => away.each(|part, values| {
            let degrees = run.degrees(which, part)?;
            values.iter_mut().zip(degrees).for_each(|(value, degree)| add(value, degree));
            Ok(true)
        }),
    }
}

/// Whether a search is in every partition by now: the next step will probably be in all of them
/// too.
pub(crate) fn is_everywhere(select: &Selection<'_>) -> bool {
    !select.sources.contains(&false) && !select.targets.contains(&false)
}

/// Calls `each(partition, its state)` for all partitions in parallel; results by partition.
pub(crate) fn each_partition<R: Passes, S: Send, T: Send>(
    run: &mut R,
    states: &mut [S],
    each: impl Fn(usize, &mut S) -> T + Sync,
) -> Vec<T> {
    let states: Vec<Mutex<&mut S>> = states.iter_mut().map(Mutex::new).collect();
    run.partitions(|part| each(part, *states[part].lock().expect("each is visited once")))
}
