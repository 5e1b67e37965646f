use std::path::Path;
use std::sync::Arc;

use outercore_core::{Error, Permutation, Result, Stream};
use outercore_format::Manifest;
use outercore_io::Disk;

use super::{EdgeSource, SEED_MASK, pool, push_edges};
use crate::import::{GraphImport, GraphImportOptions, OnProgress};

/// Size and seed of an R-MAT graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmatOptions {
    /// The graph has `2^scale` nodes.
    pub scale: u32,
    /// Input edges per node.
    pub edge_factor: u64,
    /// Random seed.
    pub seed: u64,
}

/// A Kronecker graph with the parameters of Graph500, computed by edge.
///
/// **Source** Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining", SDM'04;
/// the Graph500 specification: A, B, C = 0.57, 0.19, 0.19 and ids scrambled by a random
/// permutation.
///
/// # Example
/// ```
/// use outercore_store::generate::{Rmat, RmatOptions};
/// let graph = Rmat::new(RmatOptions { scale: 10, edge_factor: 16, seed: 1 }).unwrap();
/// assert_eq!((graph.num_nodes(), graph.num_edges()), (1024, 16384));
/// assert_eq!(graph.edge(7), graph.edge(7));
/// ```
#[derive(Clone, Debug)]
pub struct Rmat {
    scale: u32,
    edges: u64,
    stream: Stream,
    scramble: Permutation,
}

/// Upper bounds of the first three quadrants, in units of 2^-16.
const QUADRANTS: [u64; 3] = [37_356, 49_808, 62_260];

impl Rmat {
    /// Creates the graph for `options`.
    ///
    /// # Errors
    /// `Invalid`: a scale outside 1 to 40, no edges, or more than 2^60 edges.
    pub fn new(options: RmatOptions) -> Result<Self> {
        let RmatOptions { scale, edge_factor, seed } = options;
        if !(1..=40).contains(&scale) {
            return Err(Error::invalid(format!("R-MAT scale {scale}, expected 1 to 40")));
        }
        if edge_factor == 0 || edge_factor > 1 << (60 - scale) {
            return Err(Error::invalid(format!(
                "R-MAT edge factor {edge_factor}, expected 1 to {}",
                1u64 << (60 - scale)
            )));
        }
        let scramble = Permutation::new(1 << scale, seed ^ SEED_MASK, 0);
        Ok(Self {
            scale,
            edges: edge_factor << scale,
            stream: Stream::new(seed ^ SEED_MASK, 0),
            scramble,
        })
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> u64 {
        1 << self.scale
    }

    /// Number of edges before the import options apply.
    pub fn num_edges(&self) -> u64 {
        self.edges
    }

    /// Source and target of edge `number`.
    ///
    /// **Cost** About 0.3 µs, mostly for scrambling the ids.
    pub fn edge(&self, number: u64) -> [u64; 2] {
        let mut draws = self.stream.uniform(0, 0, number);
        let (mut source, mut target) = (0, 0);
        let mut word = 0;
        for level in 0..self.scale {
            // Each level takes 16 random bits.
            word = if level % 4 == 0 { draws.next_u64() } else { word >> 16 };
            let draw = word & 0xFFFF;
            let quadrant = QUADRANTS.iter().filter(|&&end| draw >= end).count() as u64;
            source = source << 1 | quadrant >> 1;
            target = target << 1 | quadrant & 1;
        }
        [self.scramble.at(source), self.scramble.at(target)]
    }
}

impl EdgeSource for Rmat {
    fn num_edges(&self) -> u64 {
        self.edges
    }

    fn edge(&self, number: u64) -> [u64; 2] {
        Rmat::edge(self, number)
    }
}

/// Creates a data set of an R-MAT graph in the directory `root`. The options `import` set
/// direction, self-loops and duplicates.
///
/// **Cost** As an import of its edges from text, and the generation of each edge. An interrupted
/// call can be resumed.
///
/// # Errors
/// As [`Rmat::new`] and [`GraphImport`].
pub fn rmat(
    disk: Arc<dyn Disk>,
    root: &Path,
    options: RmatOptions,
    mut import: GraphImportOptions,
    on_progress: OnProgress<'_>,
) -> Result<Manifest> {
    let graph = Rmat::new(options)?;
    import.edges.num_nodes = Some(graph.num_nodes());
    let pool = pool(import.edges.threads)?;
    let mut import = GraphImport::begin(disk, root, import, &format!("{options:?}"))?;
    push_edges(&graph, &pool, import.edges(), &mut *on_progress)?;
    import.finish_edges(on_progress)?;
    import.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrants_come_as_often_as_they_should() {
        let graph = Rmat::new(RmatOptions { scale: 1, edge_factor: 200_000, seed: 3 }).unwrap();
        let mut counts = [0u32; 4];
        for number in 0..graph.num_edges() {
            let [source, target] = graph.edge(number);
            counts[(source * 2 + target) as usize] += 1;
        }
        // The scrambled ids may swap the roles of two nodes.
        if counts[3] > counts[0] {
            counts.reverse();
        }
        for (count, share) in counts.into_iter().zip([0.57, 0.19, 0.19, 0.05]) {
            let found = f64::from(count) / 400_000.0;
            assert!((found - share).abs() < 0.005, "{counts:?}");
        }
    }

    #[test]
    fn degrees_are_skewed_and_hubs_have_no_special_ids() {
        let graph = Rmat::new(RmatOptions { scale: 12, edge_factor: 16, seed: 5 }).unwrap();
        let mut degrees = vec![0u64; 4096];
        for number in 0..graph.num_edges() {
            degrees[graph.edge(number)[1] as usize] += 1;
        }
        let hub = (0..4096).max_by_key(|&v| degrees[v]).unwrap();
        assert!(degrees[hub] > 300, "largest in-degree {}", degrees[hub]);
        assert_ne!(hub, 0);
        let isolated = degrees.iter().filter(|&&degree| degree == 0).count();
        assert!(isolated > 400, "{isolated} nodes without in-edges");
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (scale, edge_factor) in [(0, 1), (41, 1), (10, 0), (40, 1 << 21)] {
            let error = Rmat::new(RmatOptions { scale, edge_factor, seed: 0 }).unwrap_err();
            assert_eq!(error.kind(), outercore_core::ErrorKind::Invalid);
        }
    }
}
