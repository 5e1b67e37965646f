//! The arcs of a piece, decoded.

/// Which side of a piece the values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From columns to rows.
    ToRows,
    /// From rows to columns.
    ToColumns,
}

impl Side {
    /// Source and target partition of a piece between a row and a column partition.
    pub fn ends<P>(self, row: P, column: P) -> (P, P) {
        match self {
            Self::ToRows => (column, row),
            Self::ToColumns => (row, column),
        }
    }
}

/// Decoded arcs of a piece, seen in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Arcs<'a> {
    /// Local id of each row entry.
    pub rows: &'a [u16],
    /// Where the columns of each row entry end.
    pub ends: &'a [u32],
    /// Local ids of the columns.
    pub columns: &'a [u16],
    /// One for each column; empty without weights.
    pub weights: &'a [f32],
    /// Which way values flow.
    pub side: Side,
}

impl<'a> Arcs<'a> {
    /// Row entries: local row, its columns, their weights (empty without).
    pub fn rows(&self) -> impl Iterator<Item = (usize, &'a [u16], &'a [f32])> + use<'a> {
        let (columns, weights) = (self.columns, self.weights);
        let mut start = 0;
        self.rows.iter().zip(self.ends).map(move |(&row, &end)| {
            let range = start..end as usize;
            start = end as usize;
            let weights = if weights.is_empty() { weights } else { &weights[range.clone()] };
            (usize::from(row), &columns[range], weights)
        })
    }

    /// Calls `each(source, target, weight)` for every arc; weight 1 without weights.
    #[inline(always)]
    pub fn for_each(&self, mut each: impl FnMut(usize, usize, f32)) {
        let to_rows = self.side == Side::ToRows;
        for (row, columns, weights) in self.rows() {
            for (at, &column) in columns.iter().enumerate() {
                let weight = weights.get(at).copied().unwrap_or(1.0);
                let column = usize::from(column);
                if to_rows { each(column, row, weight) } else { each(row, column, weight) }
            }
        }
    }
}
