//! The changed in-edges of one node: ascending, stored in pieces that are copied on write.

use std::sync::Arc;

use outercore_core::{EdgeId, NodeId};

/// Most edges in a piece. A change of a shared list copies one piece.
const PIECE: usize = 512;

/// In-edges as (source, edge id), strictly ascending, as in the file format.
///
/// A copy shares its pieces with the original until one of them changes.
#[derive(Clone, Debug, Default)]
pub struct List {
    pieces: Vec<Arc<Piece>>,
    /// For each piece, the number of edges up to its end.
    ends: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Piece {
    sources: Vec<u32>,
    ids: Vec<EdgeId>,
}

impl Piece {
    fn len(&self) -> usize {
        self.sources.len()
    }

    fn key(&self, at: usize) -> (u32, EdgeId) {
        (self.sources[at], self.ids[at])
    }

    /// Place of the first edge that is not below `key`.
    fn place(&self, key: (u32, EdgeId)) -> usize {
        let first = self.sources.partition_point(|&source| source < key.0);
        let last = first + self.sources[first..].partition_point(|&source| source == key.0);
        first + self.ids[first..last].partition_point(|&id| id < key.1)
    }
}

impl List {
    /// Bytes of memory for each edge.
    pub const EDGE_BYTES: u64 = (size_of::<u32>() + size_of::<EdgeId>()) as u64;

    /// Creates a list from edges in ascending order; every source is below 2^32.
    pub fn from_sorted(sources: &[NodeId], ids: &[EdgeId]) -> Self {
        assert_eq!(sources.len(), ids.len(), "one id for each source");
        let pieces = sources.chunks(PIECE).zip(ids.chunks(PIECE)).map(|(sources, ids)| {
            let sources = sources.iter().map(|&source| narrow(source)).collect();
            Arc::new(Piece { sources, ids: ids.to_vec() })
        });
        let mut list = Self { pieces: pieces.collect(), ends: Vec::new() };
        list.count_from(0);
        list
    }

    /// Number of edges.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The edge at `index`.
    pub fn get(&self, index: u64) -> Option<(NodeId, EdgeId)> {
        let piece = self.ends.partition_point(|&end| end <= index);
        let before = if piece == 0 { 0 } else { self.ends[piece - 1] };
        let edges = self.pieces.get(piece)?;
        let at = (index - before) as usize;
        Some((edges.sources[at].into(), edges.ids[at]))
    }

    /// The edges in their order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, EdgeId)> {
        self.pieces.iter().flat_map(|piece| {
            piece.sources.iter().zip(&piece.ids).map(|(&source, &id)| (source.into(), id))
        })
    }

    /// Adds an edge.
    pub fn insert(&mut self, source: NodeId, id: EdgeId) {
        let key = (narrow(source), id);
        // An edge beyond all others goes into the last piece.
        let at = self.piece_of(key).min(self.pieces.len().saturating_sub(1));
        if self.pieces.is_empty() {
            self.pieces.push(Arc::default());
        }
        let piece = Arc::make_mut(&mut self.pieces[at]);
        let place = piece.place(key);
        piece.sources.insert(place, key.0);
        piece.ids.insert(place, id);
        if piece.len() > PIECE {
            let half = piece.len() / 2;
            let second =
                Piece { sources: piece.sources.split_off(half), ids: piece.ids.split_off(half) };
            self.pieces.insert(at + 1, Arc::new(second));
        }
        self.count_from(at);
    }

    /// Removes all edges from `source`; returns their ids.
    pub fn remove(&mut self, source: NodeId) -> Vec<EdgeId> {
        let source = narrow(source);
        let first = self.piece_of((source, 0));
        let mut removed = Vec::new();
        for piece in &mut self.pieces[first..] {
            let start = piece.place((source, 0));
            let end = start + piece.sources[start..].iter().take_while(|&&s| s == source).count();
            if start == piece.len() || end == start {
                break;
            }
            let piece = Arc::make_mut(piece);
            piece.sources.drain(start..end);
            removed.extend(piece.ids.drain(start..end));
        }
        if !removed.is_empty() {
            self.pieces.retain(|piece| piece.len() > 0);
            self.count_from(0);
        }
        removed
    }

    /// Number of edges from `source`.
    pub fn count(&self, source: NodeId) -> u64 {
        let source = narrow(source);
        let from = |piece: &Piece| {
            let start = piece.sources.partition_point(|&s| s < source);
            piece.sources[start..].partition_point(|&s| s == source) as u64
        };
        let first = self.piece_of((source, 0));
        let pieces = self.pieces[first..].iter();
        pieces.take_while(|piece| piece.key(0).0 <= source).map(|piece| from(piece)).sum()
    }

    /// The first piece whose last edge is not below `key`, or the number of pieces.
    fn piece_of(&self, key: (u32, EdgeId)) -> usize {
        self.pieces.partition_point(|piece| piece.key(piece.len() - 1) < key)
    }

    /// Recomputes `ends` from the piece `first` on.
    fn count_from(&mut self, first: usize) {
        self.ends.truncate(first);
        let mut end = self.len();
        for piece in &self.pieces[first..] {
            end += piece.len() as u64;
            self.ends.push(end);
        }
    }
}

/// A source as stored. Graphs with 2^32 nodes or more take no updates.
fn narrow(source: NodeId) -> u32 {
    u32::try_from(source).expect("a node below 2^32")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_list_is_a_sorted_set_and_its_copies_do_not_change(
            start in 0u64..1500,
            steps in prop::collection::vec((0u64..12, prop::bool::ANY), 1..800),
        ) {
            let mut model: BTreeSet<(u64, u64)> = (0..start).map(|id| (id % 7, id)).collect();
            let (sources, ids): (Vec<u64>, Vec<u64>) = model.iter().copied().unzip();
            let mut list = List::from_sorted(&sources, &ids);
            let before = list.clone();
            let original = model.clone();
            for (id, (source, is_removed)) in (start..).zip(steps) {
                if is_removed && id % 5 == 0 {
                    let removed = list.remove(source);
                    let expected: Vec<u64> =
                        model.iter().filter(|edge| edge.0 == source).map(|edge| edge.1).collect();
                    prop_assert_eq!(removed, expected);
                    model.retain(|edge| edge.0 != source);
                } else {
                    list.insert(source, id);
                    model.insert((source, id));
                }
                prop_assert_eq!(list.len(), model.len() as u64);
                let expected = model.iter().filter(|edge| edge.0 == source).count() as u64;
                prop_assert_eq!(list.count(source), expected);
            }
            prop_assert!(list.iter().eq(model.iter().copied()));
            for (index, edge) in model.iter().enumerate() {
                prop_assert_eq!(list.get(index as u64), Some(*edge));
            }
            prop_assert_eq!(list.get(list.len()), None);
            prop_assert!(before.iter().eq(original));
        }
    }
}
