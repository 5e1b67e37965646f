//! The CSC arrays against each other, in one pass.

use std::ops::Range;

use outercore_core::Result;
use outercore_format::Schema;

use super::words::Words;
use super::{Checker, Findings};
use crate::dataset::ArrayRef;

/// Columns between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;

/// The arrays and what bounds their values.
pub(super) struct Csc {
    pub offsets: ArrayRef,
    pub sources: ArrayRef,
    pub ids: Option<ArrayRef>,
    /// Which columns belong to which edge type.
    pub schema: Schema,
    /// Whether the manifest says how many edges were imported.
    pub rows_are_known: bool,
}

/// What the edges of a column may be.
struct Bounds {
    /// The columns that these bounds are for.
    columns: Range<u64>,
    sources: Range<u64>,
    rows: Range<u64>,
    /// Which edge type, and the type of its sources, where there are several.
    types: Option<(String, String)>,
}

impl Csc {
    /// The bounds of the edge type that `column` belongs to.
    fn bounds(&self, column: u64) -> Bounds {
        let range = &self.schema.edge_types()[self.schema.edge_type_of(column)];
        let source = &self.schema.node_types()[range.source];
        Bounds {
            columns: range.columns.clone(),
            sources: source.nodes.clone(),
            rows: range.rows.clone(),
            types: self.schema.is_typed().then(|| (range.name.clone(), source.name.clone())),
        }
    }
}

/// Checks structure and checksums together: offsets from 0 to the number of edges without a step
/// back, sources that exist, and columns sorted by source, then edge id.
pub(super) fn check(csc: &Csc, checker: &mut Checker<'_, '_>) -> Result<()> {
    let mut offsets = Words::open(&csc.offsets)?;
    let mut edges = Edges {
        csc,
        sources: Words::open(&csc.sources)?,
        ids: csc.ids.as_ref().map(Words::open).transpose()?,
        bounds: None,
        at: 0,
    };
    let total = csc.sources.rows();
    let columns = csc.offsets.rows() - 1;
    let (mut start, mut reported) = (offsets.next()?, 0);
    if start != 0 {
        checker.findings.row(&csc.offsets.key, 0, format!("offset {start}, expected 0"));
        start = 0;
    }
    // After a wrong offset nobody knows in which column the edges up to the next right one are.
    let mut order = Order::Expected;
    for column in 0..columns {
        let end = offsets.next()?;
        if end < start || end > total {
            let expected = format!("offset {end}, expected {start} to {total}");
            checker.findings.row(&csc.offsets.key, column + 1, expected);
            order = Order::Unknown;
        } else {
            edges.column(Some(column), end, order, checker.findings)?;
            start = end;
            order = Order::Expected;
        }
        if column % REPORT_EVERY == 0 {
            reported = checker.advance(edges.bytes_read() + offsets.bytes_read(), reported)?;
        }
    }
    if start != total && order == Order::Expected {
        let expected = format!("last offset {start}, expected {total} (the number of edges)");
        checker.findings.row(&csc.offsets.key, columns, expected);
    }
    edges.column(None, total, Order::Unknown, checker.findings)?;
    checker.advance(edges.bytes_read() + offsets.bytes_read(), reported)?;

    checker.compare(&csc.offsets.key, &offsets.finish());
    checker.compare(&csc.sources.key, &edges.sources.finish());
    if let (Some(ids), Some(array)) = (edges.ids, &csc.ids) {
        checker.compare(&array.key, &ids.finish());
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Expected,
    Unknown,
}

struct Edges<'a> {
    csc: &'a Csc,
    sources: Words<'a>,
    ids: Option<Words<'a>>,
    /// Those of the last column.
    bounds: Option<Bounds>,
    /// The next position.
    at: u64,
}

impl Edges<'_> {
    /// Checks the edges from the current position to `end`.
    fn column(
        &mut self,
        column: Option<u64>,
        end: u64,
        order: Order,
        findings: &mut Findings,
    ) -> Result<()> {
        let mut before = None;
        if let Some(column) = column
            && self.bounds.as_ref().is_none_or(|bounds| !bounds.columns.contains(&column))
        {
            self.bounds = Some(self.csc.bounds(column));
        }
        while self.at < end {
            let position = self.at;
            let source = self.sources.next()?;
            let id = match &mut self.ids {
                Some(ids) => ids.next()?,
                None => position,
            };
            self.at += 1;
            // Of which type the edges of an unknown column are, is unknown, too.
            let knows = |bounds: &&Bounds| bounds.types.is_none() || order == Order::Expected;
            if let (Some(bounds), Some(_)) = (self.bounds.as_ref().filter(knows), column) {
                bounds.check(self.csc, (position, source, id), findings);
            } else if source >= self.csc.schema.num_nodes() {
                let what = format!("node {source}, the graph has {}", self.csc.schema.num_nodes());
                findings.row(&self.csc.sources.key, position, what);
            }
            if before >= Some((source, id)) && order == Order::Expected {
                let column = column.unwrap_or_default();
                let what = format!(
                    "column {column} is not sorted: source {source} of edge {id} comes too late"
                );
                findings.row(&self.csc.sources.key, position, what);
            }
            before = Some((source, id));
        }
        Ok(())
    }

    /// Data bytes read so far.
    fn bytes_read(&self) -> u64 {
        self.sources.bytes_read() + self.ids.as_ref().map_or(0, Words::bytes_read)
    }
}

impl Bounds {
    /// Checks an edge (position, source, id) of these columns.
    fn check(&self, csc: &Csc, (position, source, id): (u64, u64, u64), findings: &mut Findings) {
        let Self { sources, rows, types, .. } = self;
        if !sources.contains(&source) {
            let what = match types {
                None => format!("node {source}, the graph has {}", sources.end),
                Some((edge_type, node_type)) => format!(
                    "node {source} of edge type `{edge_type}`, expected one of type `{node_type}`: {}",
                    within(sources)
                ),
            };
            findings.row(&csc.sources.key, position, what);
        }
        if let Some(ids) = &csc.ids
            && csc.rows_are_known
            && !rows.contains(&id)
        {
            let what = match types {
                None => format!("edge id {id}, the imported edge list has {} rows", rows.end),
                Some((edge_type, _)) => {
                    format!("edge id {id} of edge type `{edge_type}`, expected {}", within(rows))
                }
            };
            findings.row(&ids.key, position, what);
        }
    }
}

/// The numbers of a range, in words.
fn within(range: &Range<u64>) -> String {
    if range.is_empty() { "none".into() } else { format!("{} to {}", range.start, range.end - 1) }
}
