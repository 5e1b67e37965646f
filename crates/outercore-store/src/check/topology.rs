//! Checks the CSC arrays against each other, in one pass.

use std::ops::Range;

use outercore_core::Result;
use outercore_format::Schema;

use super::words::Words;
use super::{Checker, Findings};
use crate::dataset::ArrayRef;

/// Columns between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;

/// The CSC arrays and the bounds of their values.
pub(super) struct Csc {
    pub offsets: ArrayRef,
    pub sources: ArrayRef,
    pub ids: Option<ArrayRef>,
    /// The columns of each edge type.
    pub schema: Schema,
    /// Whether the manifest records the number of imported edges.
    pub rows_are_known: bool,
}

/// The allowed edges of a column.
struct Bounds {
    /// The columns with these bounds.
    columns: Range<u64>,
    sources: Range<u64>,
    rows: Range<u64>,
    /// The edge type and the type of its sources, if there are several types.
    types: Option<(String, String)>,
}

impl Csc {
    /// The bounds for the edge type of `column`.
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

/// Checks structure and checksums together. Offsets must start at 0, never decrease, and end at the
/// number of edges. Sources must exist. Columns must be sorted by source, then by edge id.
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
    // After a wrong offset, the column of the edges up to the next valid offset is unknown.
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
    /// Bounds of the last column.
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
            // If the column of an edge is unknown, so is its edge type.
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
    /// Checks an edge (position, source, id) against these bounds.
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

/// Formats a range for messages.
fn within(range: &Range<u64>) -> String {
    if range.is_empty() { "none".into() } else { format!("{} to {}", range.start, range.end - 1) }
}
