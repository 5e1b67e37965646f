//! The triples of a knowledge graph as arcs from head to tail.

use outercore_core::{Error, Result};
use outercore_format::{DType, keys};
use outercore_store::dataset::{ArrayFile, ArrayRef, DataSet};

use super::{Buffers, Chunk, Ids, Pass};

/// The training triples of all relations, or of one.
pub(super) struct Triples {
    rows: ArrayFile,
    nodes: u64,
    relation: Option<i64>,
}

/// `rows` triples in chunks of at most `most`.
pub(super) fn chunks(rows: u64, most: usize) -> impl Iterator<Item = Chunk> {
    (0..rows).step_by(most).map(move |first| {
        let arcs = (rows - first).min(most as u64) as usize;
        Chunk { first, arcs, column: 0, behind: 0 }
    })
}

impl Triples {
    /// Bytes of [`Buffers`] per triple: the triple, its head, its tail and its place.
    pub(super) const BUFFER_PER_ROW: u64 = 24 + 4 + 4 + 4;

    /// Opens the triples of a graph with this number of nodes.
    ///
    /// # Errors
    /// `Corrupt`: an array that cannot hold triples.
    pub(super) fn open(data_set: &DataSet, nodes: u64, relation: Option<i64>) -> Result<Self> {
        let array = data_set.array(keys::TRIPLES)?;
        if array.dtype != DType::I64 || array.shape.get(1..) != Some(&[3][..]) {
            return Err(Error::corrupt(format!(
                "array `{}`: {} {:?}, expected int64 [n, 3]",
                array.key, array.dtype, array.shape
            ))
            .hint("run `outercore check DATASET`"));
        }
        Ok(Self { rows: ArrayFile::open(array)?, nodes, relation })
    }

    pub(super) fn array(&self) -> &ArrayRef {
        self.rows.array()
    }

    /// Reads a chunk and calls `each(tail, [head], row)` for each triple of the chosen relation.
    pub(super) fn walk(
        &self,
        pass: &Pass<'_>,
        chunk: Chunk,
        buffers: &mut Buffers,
        each: &mut impl FnMut(u32, &[u32], Ids<'_>) -> Result<()>,
    ) -> Result<()> {
        let Buffers { triples, sources, targets, ids, .. } = buffers;
        triples.resize(chunk.arcs, [0; 3]);
        self.rows.read(3 * chunk.first, bytemuck::cast_slice_mut(triples))?;
        sources.clear();
        targets.clear();
        ids.clear();
        for (at, &[head, relation, tail]) in triples.iter().enumerate() {
            if self.relation.is_some_and(|chosen| chosen != relation) {
                continue;
            }
            let row = chunk.first + at as u64;
            sources.push(self.node(row, head)?);
            targets.push(self.node(row, tail)?);
            ids.push(at as u32);
        }
        if let Some(places) = pass.places {
            // All at once and without branches, so that many cache misses overlap.
            sources.iter_mut().for_each(|source| *source = places[*source as usize]);
        }
        for ((source, target), at) in sources.iter().zip(targets.iter()).zip(ids.iter()) {
            let row = Ids::From(chunk.first + u64::from(*at));
            each(*target, std::slice::from_ref(source), row)?;
        }
        Ok(())
    }

    /// An end of a triple, as a node number.
    fn node(&self, row: u64, entity: i64) -> Result<u32> {
        match u64::try_from(entity) {
            Ok(id) if id < self.nodes => Ok(id as u32),
            _ => Err(Error::corrupt(format!(
                "array `{}`: row {row}: entity {entity}, expected 0 to {}",
                keys::TRIPLES,
                self.nodes.saturating_sub(1)
            ))
            .hint("run `outercore check DATASET`")),
        }
    }
}
