//! Folding: updates the layouts of a rewritten array in the same commit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use outercore_core::{Error, ErrorKind, NodeId, Result};
use outercore_format::DType;
use outercore_layout::{Layout, Precision};
use outercore_store::dataset::{ArrayFile, ArrayRef};
use outercore_store::verified;

use crate::fold::Fold;

impl Fold<'_> {
    /// Writes the layouts of the array `key`, which was just written: changed rows at their places,
    /// rows of new nodes at the end. Order and scales stay unchanged.
    ///
    /// A stale layout stays stale, and a damaged one becomes stale. Readers skip it, and a check
    /// reports it. It can be rebuilt, so it does not stop the fold.
    pub fn layouts(&mut self, key: &str) -> Result<()> {
        for precision in Precision::ALL {
            match self.of_precision(key, precision) {
                Ok(()) => {}
                Err(error) => match error.kind() {
                    ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Version => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn of_precision(&mut self, key: &str, precision: Precision) -> Result<()> {
        let Some(layout) = Layout::open(self.data_set, key, precision)? else { return Ok(()) };
        let (layout, changed) = self.with_places(layout)?;
        self.layout(&layout, &changed)
    }

    /// A layout, and the nodes with changed rows, by place.
    fn with_places(&self, layout: Layout) -> Result<(Layout, BTreeMap<u64, NodeId>)> {
        let rows = layout.array().rows();
        if let Some(table) = layout.places() {
            // A wrong place would put a row under another node, in an array with a new, valid
            // checksum.
            verified::verify(table.clone(), &mut |_, _| self.look())?;
        }
        let table = layout.places().cloned().map(ArrayFile::open).transpose()?;
        let changed = self.delta.changed_rows(&layout.array().key);
        let placed = changed.into_iter().map(|node| {
            let place = match &table {
                // The row of a new node comes after all existing rows.
                Some(table) if node < rows => place_of(table, node)?,
                _ => node,
            };
            Ok((place, node))
        });
        let placed = placed.collect::<Result<_>>()?;
        Ok((layout, placed))
    }

    fn layout(&mut self, layout: &Layout, changed: &BTreeMap<u64, NodeId>) -> Result<()> {
        let key = layout.array().key.clone();
        let count = self.delta.num_nodes();
        let copy = |array: &ArrayRef| (array.key.clone(), array.dtype, array.shape[1..].to_vec());
        let (rows, dtype, shape) = copy(layout.rows());
        let places: Vec<u64> = changed.keys().copied().collect();
        self.write(&rows, dtype, &shape, |fold, writer| {
            let row = |place: u64| {
                let row = changed.get(&place).and_then(|node| fold.delta.node_row(&key, *node));
                Ok(row.map(|row| layout.stored(row)))
            };
            fold.rows(layout.rows(), &places, count, &row, writer)
        })?;
        if let Some(table) = layout.places().filter(|table| table.rows() < count) {
            let (key, dtype, shape) = copy(table);
            self.write(&key, dtype, &shape, |fold, writer| {
                let row = |node: u64| {
                    let place = node.to_le_bytes();
                    Ok(Some(Cow::Owned(place[..dtype.size()].to_vec())))
                };
                fold.rows(table, &[], count, &row, writer)
            })?;
        }
        let checksum = self.editor.manifest().arrays[&key].checksum.clone();
        let (header, json) = layout.header_of(&checksum)?;
        self.write(&header, DType::U8, &[], |_, writer| writer.write(&json))
    }
}

/// The place of a node.
fn place_of(table: &ArrayFile, node: NodeId) -> Result<u64> {
    let mut place = [0; 8];
    table.read(node, &mut place[..table.array().dtype.size()])?;
    let place = u64::from_le_bytes(place);
    if place < table.array().rows() {
        return Ok(place);
    }
    Err(Error::corrupt(format!("array `{}`: node {node} has place {place}", table.array().key)))
}
