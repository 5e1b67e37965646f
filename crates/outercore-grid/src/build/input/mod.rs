//! The input of a grid, and passes over it: the CSC, or the triples of a knowledge graph.

mod csc;
mod triples;

use outercore_core::{Error, ErrorKind, Result};
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::npy::OnBytes;
use outercore_store::verified;
use rayon::ThreadPool;
use rayon::prelude::*;

use self::csc::Csc;
use self::triples::Triples;
use crate::source::{GridSource, Origin};

/// Bytes per read.
pub(super) const READ: usize = 1 << 20;

/// The arcs of the grid.
pub(super) struct Input {
    pub(super) source: GridSource,
    pub(super) nodes: u64,
    /// Number of items in a pass: arcs of the CSC, or triples.
    pub(super) rows: u64,
    pub(super) symmetric: bool,
    arrays: Arrays,
}

enum Arrays {
    Csc(Box<Csc>),
    Triples(Triples),
}

/// Consecutive arcs or triples.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Number of arcs or triples before it.
    first: u64,
    arcs: usize,
    /// The column of the first arc, counted from the first column of the input; 0 for triples.
    column: u32,
    /// Number of arcs of that column before the chunk.
    behind: u32,
}

/// The read buffers of a thread.
#[derive(Default)]
pub(super) struct Buffers {
    wide: Vec<u64>,
    sources: Vec<u32>,
    ids: Vec<u32>,
    triples: Vec<[i64; 3]>,
    targets: Vec<u32>,
}

impl Input {
    /// Opens the arrays; edge ids only if `with_ids`.
    ///
    /// # Errors
    /// `Unsupported`: 2^32 nodes or columns.
    pub(super) fn open(data_set: &DataSet, source: GridSource, with_ids: bool) -> Result<Self> {
        let nodes = source.nodes();
        let (arrays, rows) = match source.origin() {
            Origin::Csc(columns) => {
                let arcs = columns.arcs();
                let csc = Box::new(Csc::open(data_set, columns.clone(), nodes, with_ids)?);
                (Arrays::Csc(csc), arcs.end - arcs.start)
            }
            Origin::Triples { rows, relation } => {
                (Arrays::Triples(Triples::open(data_set, nodes, *relation)?), *rows)
            }
        };
        let symmetric = source.is_symmetric();
        let input = Self { source, nodes, rows, symmetric, arrays };
        for (what, count) in [("nodes", input.nodes), ("columns", input.columns())] {
            if count > u64::from(u32::MAX) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("a grid of {count} {what}, expected less than 2^32"),
                ));
            }
        }
        Ok(input)
    }

    /// Number of columns of the CSC; 0 for triples.
    pub(super) fn columns(&self) -> u64 {
        match &self.arrays {
            Arrays::Csc(csc) => csc.columns(),
            Arrays::Triples(_) => 0,
        }
    }

    /// Number of columns, if columns are not nodes; otherwise 0.
    pub(super) fn extra_columns(&self) -> u64 {
        match &self.arrays {
            Arrays::Csc(csc) => csc.extra_columns(),
            Arrays::Triples(_) => 0,
        }
    }

    /// The number of rows that an edge array must have, if known.
    pub(super) fn edge_rows(&self) -> Option<u64> {
        match &self.arrays {
            Arrays::Csc(csc) => csc.edge_rows(),
            Arrays::Triples(_) => Some(self.rows),
        }
    }

    /// Bytes of the arrays to read.
    pub(super) fn bytes(&self) -> u64 {
        match &self.arrays {
            Arrays::Csc(csc) => csc.bytes(),
            Arrays::Triples(triples) => triples.array().data_len(),
        }
    }

    /// Verifies the checksums of the arrays that passes read in parallel. The grid stores these
    /// checksums as its sources, so its content must match them.
    ///
    /// **Cost** one sequential read of the arrays. This is a separate pass, because a checksum
    /// needs the bytes in order.
    ///
    /// # Errors
    /// `Corrupt`: the bytes differ from the written ones. Failed reads; errors of `on_bytes`.
    pub(super) fn verify(&self, on_bytes: OnBytes<'_>) -> Result<()> {
        let arrays: Vec<&ArrayRef> = match &self.arrays {
            Arrays::Csc(csc) => csc.read_in_parallel().collect(),
            Arrays::Triples(triples) => vec![triples.array()],
        };
        let total = arrays.iter().map(|array| array.data_len()).sum();
        let mut before = 0;
        for array in arrays {
            verified::verify(array.clone(), &mut |done, _| on_bytes(before + done, total))?;
            before += array.data_len();
        }
        Ok(())
    }

    /// Bytes of a [`Buffers`] per arc of a chunk.
    pub(super) fn buffer_per_arc(&self) -> u64 {
        match &self.arrays {
            Arrays::Csc(csc) => csc.buffer_per_arc(),
            Arrays::Triples(_) => Triples::BUFFER_PER_ROW,
        }
    }

    /// Number of arcs in each column of the CSC; empty for triples.
    ///
    /// # Errors
    /// `Corrupt`: offsets that decrease, or contradict the number of arcs. `Unsupported`: 2^32 arcs
    /// into one node.
    pub(super) fn column_degrees(
        &self,
        on_columns: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<u32>> {
        match &self.arrays {
            Arrays::Csc(csc) => csc.column_degrees(on_columns),
            Arrays::Triples(_) => Ok(Vec::new()),
        }
    }

    /// Number of arcs into each node, computed from `columns`. Returns `columns` too if columns are
    /// not nodes. For triples, `columns` already counts by node.
    ///
    /// # Errors
    /// `Unsupported`: 2^32 arcs into one node.
    pub(super) fn in_degrees(&self, columns: Vec<u32>) -> Result<(Vec<u32>, Option<Vec<u32>>)> {
        match &self.arrays {
            Arrays::Csc(csc) if csc.extra_columns() > 0 => {
                Ok((csc.in_degrees(&columns)?, Some(columns)))
            }
            _ => Ok((columns, None)),
        }
    }

    /// All arcs or triples in chunks of at most `rows`, given the number of arcs in each column.
    fn chunks<'a>(
        &'a self,
        degrees: &'a [u32],
        rows: usize,
    ) -> Box<dyn Iterator<Item = Chunk> + 'a> {
        match &self.arrays {
            Arrays::Csc(csc) => Box::new(csc.chunks(degrees, rows)),
            Arrays::Triples(_) => Box::new(triples::chunks(self.rows, rows)),
        }
    }

    /// Reads a chunk and calls `each(target, sources, edge rows)` for its arcs.
    fn walk(
        &self,
        pass: &Pass<'_>,
        chunk: Chunk,
        buffers: &mut Buffers,
        each: &mut impl FnMut(u32, &[u32], Ids<'_>) -> Result<()>,
    ) -> Result<()> {
        match &self.arrays {
            Arrays::Csc(csc) => csc.walk(pass, chunk, buffers, each),
            Arrays::Triples(triples) => triples.walk(pass, chunk, buffers, each),
        }
    }
}

/// Edge ids of consecutive arcs.
#[derive(Clone, Copy)]
pub(super) enum Ids<'a> {
    Listed(&'a [u32]),
    /// Consecutive ids, starting with this one.
    From(u64),
}

impl Ids<'_> {
    pub(super) fn get(self, at: usize) -> usize {
        match self {
            Self::Listed(ids) => ids[at] as usize,
            Self::From(first) => first as usize + at,
        }
    }
}

/// Passes over the arcs in parallel, with one state per thread.
pub(super) struct Pass<'a> {
    pub(super) input: &'a Input,
    /// Number of arcs in each column.
    pub(super) degrees: &'a [u32],
    pub(super) pool: &'a ThreadPool,
    /// Number of arcs per chunk.
    pub(super) chunk: usize,
    /// Number of edge rows; `None`: edge ids are not read, and positions are used instead.
    pub(super) rows: Option<u64>,
    /// Replacement for each source in calls of `each`; `None`: the source itself.
    pub(super) places: Option<&'a [u32]>,
}

impl Pass<'_> {
    /// Distributes every `stride`-th chunk to the states, in turns. In parallel, calls `each(state,
    /// target, sources, edge ids)` for the targets of a chunk, then `finish`. After each turn,
    /// calls `after` with the states, in the order of their chunks, and the number of arcs or
    /// triples passed so far.
    pub(super) fn run<S: Send>(
        &self,
        states: &mut [S],
        stride: usize,
        each: impl Fn(&mut S, u32, &[u32], Ids<'_>) -> Result<()> + Sync,
        finish: impl Fn(&mut S) + Sync,
        after: &mut dyn FnMut(&mut [S], u64) -> Result<()>,
    ) -> Result<()> {
        let mut buffers: Vec<Buffers> = states.iter().map(|_| Buffers::default()).collect();
        let mut chunks = self.input.chunks(self.degrees, self.chunk).step_by(stride);
        loop {
            let turn: Vec<Chunk> = chunks.by_ref().take(states.len()).collect();
            let Some(last) = turn.last() else { return Ok(()) };
            let lanes = states.par_iter_mut().zip(&mut buffers).zip(&turn);
            self.pool.install(|| {
                lanes.try_for_each(|((state, buffers), chunk)| {
                    let mut each =
                        |target, sources: &[u32], ids: Ids<'_>| each(state, target, sources, ids);
                    self.input.walk(self, *chunk, buffers, &mut each)?;
                    finish(state);
                    Ok::<(), Error>(())
                })
            })?;
            after(&mut states[..turn.len()], last.first + last.arcs as u64)?;
        }
    }
}

pub(super) fn too_many(node: u64, direction: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("2^32 arcs or more {direction} node {node}, expected fewer"),
    )
}
