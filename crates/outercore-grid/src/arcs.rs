//! The arcs of a piece, decoded.

/// The direction in which values flow through a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From columns to rows.
    ToRows,
    /// From rows to columns.
    ToColumns,
}

impl Side {
    /// Source and target partition of a piece with the given row and column partition.
    pub fn ends<P>(self, row: P, column: P) -> (P, P) {
        match self {
            Self::ToRows => (column, row),
            Self::ToColumns => (row, column),
        }
    }
}

/// Row entries with at most this many columns are grouped by the number of their columns.
pub const SHORT: usize = 8;

/// The group of a row entry with `columns` columns, at least one. Groups are stored in this order;
/// the last one, [`SHORT`], has all longer entries.
pub fn length_group(columns: usize) -> usize {
    (columns - 1).min(SHORT)
}

/// Decoded arcs of a piece, for one direction of flow.
#[derive(Clone, Copy, Debug)]
pub struct Arcs<'a> {
    /// Local id of each row entry: first the entries of `short_counts`, then all others.
    pub rows: &'a [u16],
    /// The end of each row entry's columns.
    pub ends: &'a [u32],
    /// Number of row entries with 1, 2, ... [`SHORT`] columns, in this order.
    pub short_counts: [u32; SHORT],
    /// Local ids of the columns.
    pub columns: &'a [u16],
    /// One weight per column; empty without weights.
    pub weights: &'a [f64],
    /// The direction of flow.
    pub side: Side,
}

impl<'a> Arcs<'a> {
    /// Row entries: local row, its columns, and their weights (empty without weights).
    pub fn rows(&self) -> impl Iterator<Item = (usize, &'a [u16], &'a [f64])> + use<'a> {
        let (columns, weights) = (self.columns, self.weights);
        let mut start = 0;
        self.rows.iter().zip(self.ends).map(move |(&row, &end)| {
            let range = start..end as usize;
            start = end as usize;
            let weights = if weights.is_empty() { weights } else { &weights[range.clone()] };
            (usize::from(row), &columns[range], weights)
        })
    }

    /// Calls `each(row, columns)` for every row entry, in the order of [`Arcs::rows`]. If this is
    /// inlined, loops over the columns of a short entry have a length known at compile time.
    /// Otherwise the processor must predict the end of each short loop, and is wrong at every
    /// second row.
    #[inline(always)]
    pub fn each_row(&self, mut each: impl FnMut(usize, &[u16])) {
        let (mut rows, mut columns) = (self.rows, self.columns);
        macro_rules! short {
            ($($length:literal)*) => {$({
                let entries = self.short_counts[$length - 1] as usize;
                let (here, others) = rows.split_at(entries);
                let (of_these, after) = columns.split_at(entries * $length);
                for (&row, entry) in here.iter().zip(of_these.as_chunks::<$length>().0) {
                    each(usize::from(row), entry);
                }
                (rows, columns) = (others, after);
            })*};
        }
        const { assert!(SHORT == 8) };
        short!(1 2 3 4 5 6 7 8);
        let mut start = self.columns.len() - columns.len();
        let ends = &self.ends[self.ends.len() - rows.len()..];
        for (&row, &end) in rows.iter().zip(ends) {
            each(usize::from(row), &self.columns[start..end as usize]);
            start = end as usize;
        }
    }

    /// Calls `each(source, target, weight)` for every arc; weight 1 without weights.
    #[inline(always)]
    pub fn for_each(&self, mut each: impl FnMut(usize, usize, f64)) {
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
