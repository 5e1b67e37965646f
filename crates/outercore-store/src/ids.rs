//! Ids and offsets in memory, at their stored width, and checks of their values.

use bytemuck::Pod;
use outercore_core::{Bytes, Context, EdgeId, Error, ErrorKind, NodeId, Result};
use outercore_format::DType;
use outercore_format::keys::{EDGE_IDS, OFFSETS, SOURCES};
use outercore_io::Engine;

use crate::dataset::ArrayRef;

/// Node ids, edge ids or offsets, at their stored width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// 32-bit ids.
    Narrow(Vec<u32>),
    /// 64-bit ids.
    Wide(Vec<u64>),
}

impl From<Vec<u32>> for Ids {
    fn from(ids: Vec<u32>) -> Self {
        Self::Narrow(ids)
    }
}

impl From<Vec<u64>> for Ids {
    fn from(ids: Vec<u64>) -> Self {
        Self::Wide(ids)
    }
}

impl Default for Ids {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl Ids {
    /// Iterates over the ids in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let (narrow, wide): (&[u32], &[u64]) = match self {
            Self::Narrow(ids) => (ids, &[]),
            Self::Wide(ids) => (&[], ids),
        };
        narrow.iter().map(|&id| id.into()).chain(wide.iter().copied())
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(ids) => ids.len(),
            Self::Wide(ids) => ids.len(),
        }
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all ids but keeps the memory.
    pub fn clear(&mut self) {
        match self {
            Self::Narrow(ids) => ids.clear(),
            Self::Wide(ids) => ids.clear(),
        }
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Narrow(ids) => ids.capacity() * size_of::<u32>(),
            Self::Wide(ids) => ids.capacity() * size_of::<u64>(),
        }
    }

    /// Reads a whole array.
    pub(crate) fn load(array: &ArrayRef, engine: &mut Engine) -> Result<Self> {
        match array.dtype {
            DType::U32 => load(array, engine).map(Self::Narrow),
            DType::U64 => load(array, engine).map(Self::Wide),
            other => Err(not_ids(&array.key, other)),
        }
    }

    /// `out[i] = self[positions[i]]`.
    pub(crate) fn gather(&self, positions: &[u64], out: &mut [u64]) -> Result<()> {
        match self {
            Self::Narrow(ids) => gather(ids, positions, out),
            Self::Wide(ids) => gather(ids, positions, out),
        }
    }
}

/// The loop holds only loads and stores, so that the processor overlaps the cache misses of many
/// positions.
fn gather<I: Copy + Into<u64>>(ids: &[I], positions: &[u64], out: &mut [u64]) -> Result<()> {
    assert_eq!(positions.len(), out.len(), "one place in the answer for each position");
    for (&position, out) in positions.iter().zip(out) {
        match ids.get(position as usize) {
            Some(&id) => *out = id.into(),
            None => return Err(no_such_position(position, ids.len() as u64)),
        }
    }
    Ok(())
}

/// Reads a whole array whose elements have the size of `I`.
pub(crate) fn load<I: Pod>(array: &ArrayRef, engine: &mut Engine) -> Result<Vec<I>> {
    // The format is little-endian, and elements are read without conversion.
    const { assert!(cfg!(target_endian = "little")) };
    assert_eq!(array.row_bytes(), size_of::<I>() as u64, "array `{}`", array.key);
    let count = array.rows() as usize;
    let mut values = reserve(array, count)?;
    values.resize(count, I::zeroed());
    let context = || format!("array `{}`", array.key);
    let file = engine.register(&array.path).with_context(context)?;
    let bytes = bytemuck::cast_slice_mut(&mut values);
    engine.read_into(file, array.data_offset, bytes).with_context(context)?;
    Ok(values)
}

/// Reserves memory for `count` elements of an array.
pub(crate) fn reserve<I>(array: &ArrayRef, count: usize) -> Result<Vec<I>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| {
        let size = Bytes((count * size_of::<I>()) as u64);
        Error::new(ErrorKind::Budget, format!("array `{}`: no memory for {size}", array.key))
            .hint("leave the topology on disk (`paged`)")
    })?;
    outercore_io::prefer_huge_pages(values.spare_capacity_mut());
    Ok(values)
}

/// Edge ids for an array without stored ids: the positions themselves.
pub(crate) fn identity(positions: &[u64], edges: u64, ids: &mut [EdgeId]) -> Result<()> {
    match positions.iter().find(|&&position| position >= edges) {
        Some(&position) => Err(no_such_position(position, edges)),
        None => {
            ids.copy_from_slice(positions);
            Ok(())
        }
    }
}

/// Checks that every source is below `nodes`. `sources` starts at position `first` of the array.
pub(crate) fn check_sources<I: Copy + Into<u64>>(
    sources: &[I],
    first: u64,
    nodes: u64,
) -> Result<()> {
    // The maximum needs no branch per element. The wrong element is searched only if there is one.
    let greatest = sources.iter().map(|&source| source.into()).max();
    if greatest.is_none_or(|greatest| greatest < nodes) {
        return Ok(());
    }
    let bad = sources.iter().position(|&source| source.into() >= nodes);
    let bad = bad.expect("the greatest source is out of range");
    Err(no_such_source(first + bad as u64, sources[bad].into(), nodes))
}

pub(crate) fn check_ids_len(found: u64, edges: u64) -> Result<()> {
    if found == edges {
        return Ok(());
    }
    Err(corrupt(EDGE_IDS, format!("has {found} ids, expected one for each of the {edges} edges")))
}

pub(crate) fn not_ids(array: &str, found: DType) -> Error {
    corrupt(array, format!("has type {found}, expected uint32 or uint64"))
}

pub(crate) fn decreasing(position: u64, before: u64, found: u64) -> Error {
    corrupt(OFFSETS, format!("position {position} holds {found}, less than the {before} before it"))
}

pub(crate) fn beyond_the_edges(position: u64, found: u64, edges: u64) -> Error {
    let found = format!("position {position} holds {found}, expected at most {edges} edges");
    corrupt(OFFSETS, found)
}

pub(crate) fn no_such_source(position: u64, source: u64, nodes: u64) -> Error {
    let found = format!("position {position} holds {source}, expected a node below {nodes}");
    corrupt(SOURCES, found)
}

pub(crate) fn no_such_node(node: NodeId, nodes: u64) -> Error {
    Error::invalid(format!("node {node} is out of range: the graph has {nodes} nodes"))
}

pub(crate) fn no_such_position(position: u64, edges: u64) -> Error {
    Error::invalid(format!("edge position {position} is out of range: the graph has {edges} edges"))
}

pub(crate) fn corrupt(array: &str, found: impl AsRef<str>) -> Error {
    Error::corrupt(format!("array `{array}`: {}", found.as_ref()))
        .hint("run `outercore check DATASET`; import the graph again if it confirms the damage")
}
