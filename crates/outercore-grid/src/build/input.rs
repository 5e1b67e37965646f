//! What a grid is made of: the CSC in pieces of a megabyte.

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::{DType, keys};
use outercore_store::dataset::{ArrayFile, DataSet};
use rayon::ThreadPool;
use rayon::prelude::*;

/// Bytes that are read at a time.
pub(super) const READ: usize = 1 << 20;

/// Reads node or edge ids, of 32 bits or 64, below `limit`.
fn read_ids(
    stored: &ArrayFile,
    first: u64,
    limit: u64,
    wide: &mut Vec<u64>,
    ids: &mut [u32],
) -> Result<()> {
    let end = first + ids.len() as u64;
    let beyond = |id: u64| {
        Error::corrupt(format!(
            "array `{}`: {id} between rows {first} and {end}, expected less than {limit}",
            stored.array().key
        ))
        .hint("run `outercore check DATASET`")
    };
    if stored.array().dtype == DType::U64 {
        wide.resize(ids.len(), 0);
        stored.read(first, bytemuck::cast_slice_mut(wide))?;
        if let Some(id) = wide.iter().find(|id| **id >= limit) {
            return Err(beyond(*id));
        }
        ids.iter_mut().zip(wide).for_each(|(id, wide)| *id = *wide as u32);
        return Ok(());
    }
    stored.read(first, bytemuck::cast_slice_mut(ids))?;
    let largest = ids.iter().fold(0, |largest, id| largest.max(*id));
    if !ids.is_empty() && u64::from(largest) >= limit {
        Err(beyond(largest.into()))
    } else {
        Ok(())
    }
}

/// The CSC of the homogeneous graph.
pub(super) struct Input {
    pub(super) nodes: u64,
    pub(super) arcs: u64,
    pub(super) symmetric: bool,
    offsets: ArrayFile,
    sources: ArrayFile,
    /// Absent where not needed, or where the id of an arc is its position.
    ids: Option<ArrayFile>,
}

/// Consecutive arcs.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    first: u64,
    arcs: usize,
    /// The target of the first one.
    target: u32,
    /// Arcs of that target before it.
    behind: u32,
}

/// What a thread reads into.
#[derive(Default)]
pub(super) struct Buffers {
    wide: Vec<u64>,
    sources: Vec<u32>,
    ids: Vec<u32>,
}

impl Input {
    /// Opens the arrays; edge ids only `with_ids`.
    pub(super) fn open(data_set: &DataSet, with_ids: bool) -> Result<Self> {
        data_set.require_one_type("a grid")?;
        let manifest = data_set.manifest();
        let edges = manifest
            .edge_types
            .get(keys::EDGE)
            .filter(|edges| edges.source == keys::NODE && edges.target == keys::NODE)
            .ok_or_else(|| {
                Error::invalid(format!(
                    "data set `{}`: no edge type `{}` between nodes of type `{}`",
                    data_set.root().display(),
                    keys::EDGE,
                    keys::NODE
                ))
            })?;
        let open = |key| ArrayFile::open(data_set.array(key)?);
        let ids = match with_ids && data_set.has_array(keys::EDGE_IDS) {
            true => Some(open(keys::EDGE_IDS)?),
            false => None,
        };
        let input = Self {
            nodes: data_set.num_nodes(),
            arcs: edges.count,
            symmetric: edges.undirected,
            offsets: open(keys::OFFSETS)?,
            sources: open(keys::SOURCES)?,
            ids,
        };
        if input.nodes > u64::from(u32::MAX) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("a grid of {} nodes, expected less than 2^32", input.nodes),
            ));
        }
        Ok(input)
    }

    /// Bytes of the arrays that are read.
    pub(super) fn bytes(&self) -> u64 {
        let arrays = [Some(&self.offsets), Some(&self.sources), self.ids.as_ref()];
        arrays.into_iter().flatten().map(|stored| stored.array().data_len()).sum()
    }

    /// Bytes a [`Buffers`] holds for each arc of a chunk.
    pub(super) fn buffer_per_arc(&self) -> u64 {
        let wide = |stored: &ArrayFile| stored.array().dtype == DType::U64;
        let any_wide = wide(&self.sources) || self.ids.as_ref().is_some_and(wide);
        4 + if any_wide { 8 } else { 0 } + if self.ids.is_some() { 4 } else { 0 }
    }

    /// Arcs into each node.
    ///
    /// # Errors
    /// `Corrupt`: offsets that fall or do not end with the number of arcs. `Unsupported`: 2^32 arcs
    /// into one node.
    pub(super) fn in_degrees(
        &self,
        on_nodes: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let corrupt = |what: String| {
            Error::corrupt(format!("array `{}`: {what}", keys::OFFSETS))
                .hint("run `outercore check DATASET`")
        };
        let mut degrees = Vec::with_capacity(self.nodes as usize);
        let mut buffer = vec![0u64; READ / 8];
        let mut before = 0;
        let mut row = 0;
        while row <= self.nodes {
            let part = buffer.len().min((self.nodes + 1 - row) as usize);
            self.offsets.read(row, bytemuck::cast_slice_mut(&mut buffer[..part]))?;
            for &offset in &buffer[..part] {
                let degree = offset
                    .checked_sub(before)
                    .ok_or_else(|| corrupt(format!("row {row}: {offset} after {before}")))?;
                before = offset;
                if row == 0 && offset != 0 {
                    return Err(corrupt(format!("row 0: {offset}, expected 0")));
                }
                if row > 0 {
                    degrees.push(u32::try_from(degree).map_err(|_| too_many(row - 1, "into"))?);
                }
                row += 1;
            }
            on_nodes(row.min(self.nodes))?;
        }
        if before != self.arcs {
            return Err(corrupt(format!("the last is {before}, expected {}", self.arcs)));
        }
        Ok(degrees)
    }

    /// All arcs in chunks of at most `arcs`, by the in-degrees.
    pub(super) fn chunks(&self, degrees: &[u32], arcs: usize) -> impl Iterator<Item = Chunk> {
        let total = self.arcs;
        let (mut first, mut target, mut behind) = (0u64, 0usize, 0u32);
        std::iter::from_fn(move || {
            if first == total {
                return None;
            }
            while degrees[target] == behind {
                (target, behind) = (target + 1, 0);
            }
            let len = (arcs as u64).min(total - first) as usize;
            let chunk = Chunk { first, arcs: len, target: target as u32, behind };
            let mut left = len as u64;
            while left > 0 {
                let step = u64::from(degrees[target] - behind);
                if step > left {
                    behind += left as u32;
                    break;
                }
                left -= step;
                if left > 0 { (target, behind) = (target + 1, 0) } else { behind = degrees[target] }
            }
            first += len as u64;
            Some(chunk)
        })
    }

    /// Reads a chunk and calls `each(target, sources, edge ids)` for each of its targets.
    fn walk(
        &self,
        pass: &Pass<'_>,
        chunk: Chunk,
        buffers: &mut Buffers,
        each: &mut impl FnMut(u32, &[u32], Ids<'_>) -> Result<()>,
    ) -> Result<()> {
        let degrees = pass.degrees;
        let Buffers { wide, sources, ids } = buffers;
        sources.resize(chunk.arcs, 0);
        read_ids(&self.sources, chunk.first, self.nodes, wide, sources)?;
        if let Some(places) = pass.places {
            // All at once and with nothing to decide, so that many misses of the cache overlap.
            sources.iter_mut().for_each(|source| *source = places[*source as usize]);
        }
        let listed = self.ids.as_ref().zip(pass.rows);
        if let Some((stored, rows)) = listed {
            ids.resize(chunk.arcs, 0);
            read_ids(stored, chunk.first, rows, wide, ids)?;
        }
        let (mut start, mut target, mut behind) = (0, chunk.target as usize, chunk.behind);
        while start < chunk.arcs {
            let end = chunk.arcs.min(start + (degrees[target] - behind) as usize);
            if end > start {
                let ids = match listed {
                    Some(_) => Ids::Listed(&ids[start..end]),
                    None => Ids::From(chunk.first + start as u64),
                };
                each(target as u32, &sources[start..end], ids)?;
            }
            (start, target, behind) = (end, target + 1, 0);
        }
        Ok(())
    }
}

/// Edge ids of consecutive arcs.
#[derive(Clone, Copy)]
pub(super) enum Ids<'a> {
    Listed(&'a [u32]),
    /// Counted up from here.
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

/// Passes over the arcs in parallel: one state a thread.
pub(super) struct Pass<'a> {
    pub(super) input: &'a Input,
    pub(super) degrees: &'a [u32],
    pub(super) pool: &'a ThreadPool,
    /// Arcs of a chunk.
    pub(super) chunk: usize,
    /// Bound of the edge ids; `None`: they are not read, and positions stand in for them.
    pub(super) rows: Option<u64>,
    /// What stands for a source where it is given to a state; `None`: itself.
    pub(super) places: Option<&'a [u32]>,
}

impl Pass<'_> {
    /// Every `stride`-th chunk is given to a state, in turns: `each(state, target, sources, edge
    /// ids)` for its targets, then `finish`, in parallel. After each turn `after` is called with the
    /// states, in the order of their chunks, and the arcs passed so far.
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
