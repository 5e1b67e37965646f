//! Offsets of each node's in-edges, in memory.

use outercore_core::{Bytes, Context, NodeId, Result};
use outercore_format::keys::OFFSETS;
use outercore_io::Engine;

use crate::dataset::ArrayRef;
use crate::ids::{Ids, corrupt, decreasing, load, no_such_node, reserve};
use crate::topology::Extent;

/// Offsets that are read at once before they are narrowed to 4 bytes: 1 MiB.
const AT_ONCE: usize = 128 << 10;

/// The checked offsets of a topology: 4 bytes each if it has fewer than 2^32 edges, otherwise 8.
#[derive(Debug)]
pub(crate) struct Offsets(Ids);

impl Offsets {
    /// Checks offsets of `edges` edges.
    ///
    /// # Errors
    /// `Corrupt`, with the position: the offsets do not start at 0, decrease, or do not end at
    /// `edges`.
    pub fn new(offsets: Vec<u64>, edges: u64) -> Result<Self> {
        let mut check = Check::new(edges);
        check.next(&offsets)?;
        check.end()?;
        Ok(Self(if are_narrow(edges) {
            Ids::Narrow(offsets.into_iter().map(|offset| offset as u32).collect())
        } else {
            Ids::Wide(offsets)
        }))
    }

    /// Reads all offsets of a data set. Needs at most 1 MiB in addition to the result.
    ///
    /// # Errors
    /// As [`new`](Self::new); a failed read; `Budget` if memory is short.
    pub fn load(array: &ArrayRef, engine: &mut Engine, edges: u64) -> Result<Self> {
        if !are_narrow(edges) {
            return Self::new(load(array, engine)?, edges);
        }
        assert_eq!(array.row_bytes(), size_of::<u64>() as u64, "array `{}`", array.key);
        let context = || format!("array `{}`", array.key);
        let count = array.rows() as usize;
        let mut offsets = reserve(array, count)?;
        let file = engine.register(&array.path).with_context(context)?;
        let mut chunk = vec![0u64; AT_ONCE.min(count)];
        let mut check = Check::new(edges);
        while offsets.len() < count {
            let chunk = &mut chunk[..AT_ONCE.min(count - offsets.len())];
            let at = array.data_offset + (offsets.len() * size_of::<u64>()) as u64;
            engine.read_into(file, at, bytemuck::cast_slice_mut(chunk)).with_context(context)?;
            check.next(chunk)?;
            offsets.extend(chunk.iter().map(|&offset| offset as u32));
        }
        check.end()?;
        Ok(Self(Ids::Narrow(offsets)))
    }

    /// Bytes of memory for the offsets of a topology.
    pub fn memory_of(columns: u64, edges: u64) -> Bytes {
        let width = if are_narrow(edges) { size_of::<u32>() } else { size_of::<u64>() };
        Bytes((columns + 1) * width as u64)
    }

    /// Bytes of memory taken.
    pub fn memory(&self) -> Bytes {
        Bytes(self.0.heap_bytes() as u64)
    }

    pub fn num_columns(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    /// The offsets, one more than there are columns.
    pub fn numbers(&self) -> &Ids {
        &self.0
    }

    /// Returns the extent of each of `nodes`.
    ///
    /// # Errors
    /// `Invalid` for an id beyond the nodes.
    pub fn extents(&self, nodes: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        match &self.0 {
            Ids::Narrow(offsets) => extents_of(offsets, nodes, extents),
            Ids::Wide(offsets) => extents_of(offsets, nodes, extents),
        }
    }
}

/// Whether offsets of `edges` edges fit 32 bits.
fn are_narrow(edges: u64) -> bool {
    edges <= u32::MAX.into()
}

fn extents_of<O: Copy + Into<u64>>(
    offsets: &[O],
    nodes: &[NodeId],
    extents: &mut [Extent],
) -> Result<()> {
    assert_eq!(nodes.len(), extents.len(), "one place in the answer for each node");
    let count = offsets.len() as u64 - 1;
    for (&node, extent) in nodes.iter().zip(extents) {
        if node >= count {
            return Err(no_such_node(node, count));
        }
        let start = offsets[node as usize].into();
        *extent = Extent { start, degree: offsets[node as usize + 1].into() - start };
    }
    Ok(())
}

/// Checks offsets in pieces: they start at 0, never decrease and end at `edges`.
struct Check {
    edges: u64,
    seen: u64,
    last: u64,
}

impl Check {
    fn new(edges: u64) -> Self {
        Self { edges, seen: 0, last: 0 }
    }

    fn next(&mut self, offsets: &[u64]) -> Result<()> {
        let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
            return Ok(());
        };
        if self.seen == 0 && first != 0 {
            return Err(corrupt(OFFSETS, format!("position 0 holds {first}, expected 0")));
        }
        if first < self.last {
            return Err(decreasing(self.seen, self.last, first));
        }
        if let Some(at) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(decreasing(self.seen + at as u64 + 1, offsets[at], offsets[at + 1]));
        }
        self.seen += offsets.len() as u64;
        self.last = last;
        Ok(())
    }

    fn end(self) -> Result<()> {
        let Self { edges, seen, last } = self;
        if seen == 0 {
            return Err(corrupt(OFFSETS, "is empty, expected one offset more than nodes"));
        }
        if last != edges {
            let position = seen - 1;
            let found =
                format!("position {position} holds {last}, expected {edges}, the number of edges");
            return Err(corrupt(OFFSETS, found));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_take_four_bytes_while_they_fit_and_are_the_same_at_either_width() {
        for (edges, bytes) in [(u64::from(u32::MAX), 12), (1 << 32, 24)] {
            let offsets = Offsets::new(vec![0, 7, edges], edges).unwrap();
            assert_eq!(offsets.memory(), Bytes(bytes));
            assert_eq!(Offsets::memory_of(2, edges), Bytes(bytes));
            assert_eq!(offsets.num_columns(), 2);
            let mut extents = [Extent::default(); 2];
            offsets.extents(&[1, 0], &mut extents).unwrap();
            let expected = [Extent { start: 7, degree: edges - 7 }, Extent { start: 0, degree: 7 }];
            assert_eq!(extents, expected);
            assert!(offsets.extents(&[2], &mut extents[..1]).is_err());
        }
    }

    #[test]
    fn damage_is_found_within_and_between_pieces() {
        let damaged: [(&[&[u64]], &str); 6] = [
            (&[], "is empty"),
            (&[&[1, 2]], "position 0 holds 1, expected 0"),
            (&[&[0, 3], &[2, 4]], "position 2 holds 2, less than the 3"),
            (&[&[0, 1], &[3, 2]], "position 3 holds 2, less than the 3"),
            (&[&[0, 1], &[2, 3]], "position 3 holds 3, expected 4"),
            (&[&[0, 1 << 33], &[4]], "position 2 holds 4, less than the 8589934592"),
        ];
        for (pieces, expected) in damaged {
            let mut check = Check::new(4);
            let found = pieces.iter().try_for_each(|piece| check.next(piece));
            let found = found.and_then(|()| check.end()).unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
    }
}
