//! The CSC arrays of an edge type against each other, in one pass.

use outercore_core::Result;

use super::words::Words;
use super::{Checker, Findings};
use crate::dataset::ArrayRef;

/// Columns between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;

/// The arrays of an edge type and what bounds their values.
pub(super) struct Csc {
    pub offsets: ArrayRef,
    pub sources: ArrayRef,
    pub ids: Option<ArrayRef>,
    /// Number of source nodes.
    pub source_nodes: u64,
    /// Rows of the imported edge list, where they are known.
    pub rows: Option<u64>,
}

/// Checks structure and checksums together: offsets from 0 to the number of edges without a step
/// back, sources that exist, and columns sorted by source, then edge id.
pub(super) fn check(csc: &Csc, checker: &mut Checker<'_, '_>) -> Result<()> {
    let mut offsets = Words::open(&csc.offsets)?;
    let mut edges = Edges {
        csc,
        sources: Words::open(&csc.sources)?,
        ids: csc.ids.as_ref().map(Words::open).transpose()?,
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
        while self.at < end {
            let position = self.at;
            let source = self.sources.next()?;
            let id = match &mut self.ids {
                Some(ids) => ids.next()?,
                None => position,
            };
            self.at += 1;
            if source >= self.csc.source_nodes {
                let what = format!("node {source}, the graph has {}", self.csc.source_nodes);
                findings.row(&self.csc.sources.key, position, what);
            }
            if let (Some(rows), Some(ids)) = (self.csc.rows, &self.csc.ids)
                && id >= rows
            {
                let what = format!("edge id {id}, the imported edge list has {rows} rows");
                findings.row(&ids.key, position, what);
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

    fn bytes_read(&self) -> u64 {
        self.sources.bytes_read() + self.ids.as_ref().map_or(0, Words::bytes_read)
    }
}
