//! Walks the arcs into many nodes, one block of sources at a time.
//!
//! The arcs of a node ascend by source, and blocks of sources are processed in the same order. Each
//! arc is processed in turn, so results depend neither on the blocks nor on the threads.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::parallel::for_each;

/// Nodes that a thread takes at a time.
pub(crate) const NODES_AT_ONCE: usize = 128;

/// A node id as stored by topologies.
pub trait Id: Copy + Sync + Into<u64> {}

impl Id for u32 {}
impl Id for u64 {}

/// The arcs into some nodes, and the position of each node's next arc.
pub struct Incoming<'a, I> {
    /// Sources of the arcs into each node, ascending, node by node.
    pub sources: &'a [I],
    /// Position of each node's next arc in `sources`; advances during processing.
    pub next: &'a mut [u64],
    /// End of each node's arcs.
    pub ends: &'a [u64],
    /// The ids of the nodes, if each node has exactly one arc to itself instead of its self-loops
    /// in `sources`.
    pub loops: Option<&'a [u64]>,
}

/// The rows of consecutive sources.
#[derive(Clone)]
pub struct Block<'a> {
    /// The sources of the block.
    pub nodes: Range<u64>,
    /// `[rows, width]`.
    pub rows: &'a [f32],
    /// The row of each source; if `None`, source `nodes.start + i` has row `i`.
    pub places: Option<&'a [u32]>,
}

/// Processes the rows that arrive at some nodes; all implementations are `#[inline(always)]`.
pub(crate) trait Arrivals: Send {
    /// The receiver of rows for the node at `place`.
    fn at(&mut self, place: usize) -> impl Arrival;
}

/// Processes the rows that arrive at a node.
pub(crate) trait Arrival {
    /// Processes a row that arrives along an arc.
    fn take(&mut self, source: u64, row: &[f32]);
}

impl<'a, I: Id> Incoming<'a, I> {
    pub(crate) fn check(&self) -> Result<()> {
        let nodes = self.next.len();
        let loops = self.loops.is_none_or(|ids| ids.len() == nodes);
        let arcs = self.sources.len() as u64;
        let within = |(next, end): (&u64, &u64)| next <= end && *end <= arcs;
        if self.ends.len() == nodes && loops && self.next.iter().zip(self.ends).all(within) {
            return Ok(());
        }
        Err(Error::invalid(format!("arcs into {nodes} nodes: bounds do not fit {arcs} sources")))
    }

    /// Processes all arcs from the sources of a block.
    ///
    /// Each item of `arrivals` receives the rows for [`NODES_AT_ONCE`] nodes; the last one for the
    /// rest.
    ///
    /// # Errors
    /// Corrupt: sources that do not ascend, or that have no row in the block.
    pub(crate) fn take_all<A: Arrivals>(
        self,
        block: &Block<'_>,
        width: usize,
        mut arrivals: impl Iterator<Item = A>,
        threads: usize,
    ) -> Result<()> {
        let failed = Mutex::new(None);
        let pieces: Vec<_> = self
            .next
            .chunks_mut(NODES_AT_ONCE)
            .enumerate()
            .map(|(piece, next)| {
                let own = piece * NODES_AT_ONCE..piece * NODES_AT_ONCE + next.len();
                Walk {
                    sources: self.sources,
                    next,
                    ends: &self.ends[own.clone()],
                    loops: self.loops.map(|nodes| &nodes[own]),
                    block,
                    width,
                    arrivals: arrivals.next().expect("arrivals for all nodes"),
                }
            })
            .collect();
        for_each(pieces, threads, |walk| {
            if let Err(error) = dispatch(walk) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Block<'_> {
    pub(crate) fn check(&self, width: usize) -> Result<()> {
        let count = self.nodes.end.saturating_sub(self.nodes.start);
        let rows = self.rows.len() / width.max(1);
        let placed = self.places.is_none_or(|places| places.len() as u64 == count);
        if self.rows.len() == rows * width && placed {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{} numbers for a block of {count} sources, expected rows of {width}",
            self.rows.len()
        )))
    }

    #[inline(always)]
    fn row(&self, source: u64, width: usize) -> Result<&[f32]> {
        let offset = (source - self.nodes.start) as usize;
        let place = self.places.map_or(offset, |places| places[offset] as usize);
        self.rows.get(place * width..(place + 1) * width).ok_or_else(|| {
            Error::corrupt(format!("source {source} has no row in its block"))
                .hint("run `outercore check` on the data set")
        })
    }
}

struct Walk<'a, I, A> {
    sources: &'a [I],
    next: &'a mut [u64],
    ends: &'a [u64],
    loops: Option<&'a [u64]>,
    block: &'a Block<'a>,
    width: usize,
    arrivals: A,
}

impl<I: Id, A: Arrivals> Kernel for Walk<'_, I, A> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<L: Lanes>(mut self, _: L) -> Result<()> {
        let (block, width) = (self.block, self.width);
        let nodes = &block.nodes;
        for (place, next) in self.next.iter_mut().enumerate() {
            let own = self.loops.map(|nodes| nodes[place]);
            // The arc of a node to itself is processed in the order of sources.
            let mut waits = own.filter(|node| nodes.contains(node));
            let mut node = self.arrivals.at(place);
            while *next < self.ends[place] {
                let source: u64 = self.sources[*next as usize].into();
                if source >= nodes.end {
                    break;
                }
                if source < nodes.start {
                    return Err(Error::corrupt(format!(
                        "sources of a node do not ascend: {source} is before {}",
                        nodes.start
                    ))
                    .hint("run `outercore check` on the data set"));
                }
                *next += 1;
                if Some(source) == own {
                    continue;
                }
                if let Some(itself) = waits.filter(|&itself| itself < source) {
                    node.take(itself, block.row(itself, width)?);
                    waits = None;
                }
                node.take(source, block.row(source, width)?);
            }
            if let Some(itself) = waits {
                node.take(itself, block.row(itself, width)?);
            }
        }
        Ok(())
    }
}
