//! The in-edges of some columns, with all data that the rules examine.

use std::ops::Range;

use outercore_core::{Error, NodeId, Result, Stream};
use outercore_format::Schema;
use outercore_store::row_values::RowValues;
use outercore_store::{Extent, Topology};
use rayon::prelude::*;

use super::ladies::Layer;
use super::pick::{OF_SOURCES, Places, labor, uniform, weighted};
use super::{Choice, EqualTimes, Rules};
use crate::config::Step;
use crate::pick::{Picker, Taken};

/// Columns of one step, from any batches.
pub(crate) struct RuledColumns<'a> {
    pub topology: &'a dyn Topology,
    /// The types, if there are several.
    pub schema: Option<&'a Schema>,
    pub rules: &'a Rules,
    pub picker: Picker,
    pub step: Step,
    pub stream: Stream,
    pub hop: u32,
    /// The column of each place.
    pub columns: &'a [NodeId],
    pub extents: &'a [Extent],
    /// The coordinates of each column's draws: its batch, and its column or the column within its
    /// tree.
    pub draws_of: &'a [(u64, u64)],
    /// Time of the seed that each column belongs to; empty without times.
    pub seed_times: &'a [i64],
    /// Whether the source of an edge into a column is in the column's batch; set if only such edges
    /// count.
    pub is_member: Option<&'a (dyn Fn(usize, NodeId) -> bool + Sync)>,
    /// Number of columns of each batch.
    pub shares: &'a [usize],
}

/// The picks of some columns.
#[derive(Default)]
pub(crate) struct Picked {
    /// Positions of the picked edges, column by column.
    pub positions: Vec<u64>,
    /// Number of edges of each column.
    pub counts: Vec<usize>,
    /// Weight of each edge; empty if edges have no weights.
    pub weights: Vec<f32>,
    /// Bytes that the choice used for each batch, if nodes have scores.
    pub scratch: Vec<u64>,
}

/// The data that rules examine, for each edge of a piece.
#[derive(Default)]
struct Looks {
    weights: Vec<f64>,
    /// The later of the times of the edge and its source.
    times: Vec<i64>,
    /// Random numbers of the sources.
    numbers: Vec<f64>,
}

/// Cuts columns into parts with at most `most` edges each, or with one column.
pub(crate) fn pieces(extents: &[Extent], most: u64) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut first = 0;
    while first < extents.len() {
        let (mut last, mut edges) = (first, 0u64);
        while last < extents.len() && (last == first || edges + extents[last].degree <= most) {
            edges += extents[last].degree;
            last += 1;
        }
        parts.push(first..last);
        first = last;
    }
    parts
}

/// The in-edges of some columns, in parts of at most `most` edges; a part may divide a column.
pub(crate) struct Spans<'a> {
    extents: &'a [Extent],
    most: u64,
    /// The current column, and the number of its edges already returned.
    at: (usize, u64),
}

impl<'a> Spans<'a> {
    pub fn new(extents: &'a [Extent], most: u64) -> Self {
        Self { extents, most: most.max(1), at: (0, 0) }
    }
}

impl Iterator for Spans<'_> {
    /// Columns, ascending, each with a range of positions.
    type Item = Vec<(usize, Range<u64>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut spans, mut left) = (Vec::new(), self.most);
        while left > 0 && self.at.0 < self.extents.len() {
            let (column, done) = self.at;
            let Extent { start, degree, .. } = self.extents[column];
            let taken = (degree - done).min(left);
            if taken > 0 {
                spans.push((column, start + done..start + done + taken));
            }
            left -= taken;
            self.at = if done + taken == degree { (column + 1, 0) } else { (column, done + taken) };
        }
        (!spans.is_empty()).then_some(spans)
    }
}

impl RuledColumns<'_> {
    /// Picks the edges of all columns.
    ///
    /// **Cost** examines every in-edge of the columns, [`Rules::together`] at a time or those of
    /// one column.
    ///
    /// # Errors
    /// Errors of the topology and of the arrays; `Invalid` for an invalid weight.
    pub fn pick(&self) -> Result<Picked> {
        if matches!(self.rules.choice, Choice::Ladies) {
            return self.pick_layers();
        }
        if let Some(is_member) = self.is_member {
            return self.pick_members(is_member);
        }
        if self.takes_latest() {
            return self.pick_latest();
        }
        let (mut positions, mut counts) = (Vec::new(), Vec::with_capacity(self.columns.len()));
        for piece in pieces(self.extents, self.rules.together.0) {
            for (start, places) in self.piece(piece.start, piece.end)? {
                counts.push(places.len());
                positions.extend(places.into_iter().map(|place| start + place));
            }
        }
        Ok(Picked { positions, counts, ..Picked::default() })
    }

    /// The edges whose source is in the batch.
    fn pick_members(&self, is_member: &(dyn Fn(usize, NodeId) -> bool + Sync)) -> Result<Picked> {
        let mut picked = Picked { counts: vec![0; self.columns.len()], ..Picked::default() };
        for spans in Spans::new(self.extents, self.rules.together.0) {
            let positions: Vec<u64> = spans.iter().flat_map(|(_, own)| own.clone()).collect();
            let mut sources = vec![0; positions.len()];
            self.topology.sources(&positions, &mut sources)?;
            let mut rest = &sources[..];
            let shares: Vec<_> = spans
                .into_iter()
                .map(|(column, own)| {
                    let count = (own.end - own.start) as usize;
                    (column, own, rest.split_off(..count).expect("a source for each position"))
                })
                .collect();
            let found: Vec<(usize, Places)> = shares
                .into_par_iter()
                .with_min_len(16)
                .map(|(column, own, sources)| {
                    let of_batch =
                        own.zip(sources).filter(|&(_, &source)| is_member(column, source));
                    (column, of_batch.map(|(position, _)| position).collect())
                })
                .collect();
            for (column, positions) in found {
                picked.counts[column] += positions.len();
                picked.positions.extend(positions);
            }
        }
        Ok(picked)
    }

    /// Like [`Self::pick`], for all columns of a batch together.
    fn pick_layers(&self) -> Result<Picked> {
        let mut picked = Picked::default();
        let mut first = 0;
        for &share in self.shares {
            let extents = &self.extents[first..first + share];
            let positions: Vec<u64> = extents.iter().flat_map(Extent::positions).collect();
            let mut sources = vec![0; positions.len()];
            self.topology.sources(&positions, &mut sources)?;
            let degrees: Vec<u64> = extents.iter().map(|extent| extent.degree).collect();
            let batch = self.draws_of.get(first).map_or(0, |&(batch, _)| batch);
            let layer = Layer { degrees: &degrees, sources: &sources };
            let (places, weights) = layer.choose(self.stream, batch, self.hop, self.step.fan_out);
            for (extent, places) in extents.iter().zip(places) {
                picked.counts.push(places.len());
                picked.positions.extend(places.into_iter().map(|place| extent.start + place));
            }
            picked.weights.extend(weights);
            picked.scratch.push(layer.scratch());
            first += share;
        }
        Ok(picked)
    }

    /// For each column, the position of its first in-edge, and the places picked among its
    /// in-edges.
    fn piece(&self, first: usize, last: usize) -> Result<Vec<(u64, Places)>> {
        let extents = &self.extents[first..last];
        let positions: Vec<u64> = extents.iter().flat_map(Extent::positions).collect();
        let looks = self.look_at(first, last, &positions)?;
        let mut at = 0;
        let starts: Vec<usize> = extents
            .iter()
            .map(|extent| {
                let start = at;
                at += extent.degree as usize;
                start
            })
            .collect();
        let columns = (first..last).into_par_iter().zip(starts).with_min_len(16);
        let picked = columns.map_init(Taken::default, |taken, (column, edges)| {
            (self.extents[column].start, self.of_column(column, edges, &looks, taken))
        });
        Ok(picked.collect())
    }

    /// The places picked for one column, whose edges start at `edges` in the piece.
    fn of_column(&self, column: usize, edges: usize, looks: &Looks, taken: &mut Taken) -> Places {
        let degree = self.extents[column].degree;
        let at = |place: u64| edges + place as usize;
        let mut among: Places = (0..degree).collect();
        if let (Some(times), Some(&now)) = (&self.rules.times, self.seed_times.get(column)) {
            among.retain(|&place| match times.equal {
                EqualTimes::Seen => looks.times[at(place)] <= now,
                EqualTimes::Hidden => looks.times[at(place)] < now,
            });
        }
        let (batch, coordinate) = self.draws_of[column];
        let draws = || self.stream.uniform(batch, self.hop, coordinate);
        match self.rules.choice {
            Choice::Uniform => uniform(self.picker, &among, draws, taken),
            Choice::Weighted(_) => {
                let weights: Vec<f64> =
                    among.iter().map(|&place| looks.weights[at(place)]).collect();
                weighted(self.step.fan_out, self.picker.replaces(), &among, &weights, draws())
            }
            Choice::Ladies | Choice::Hgt => unreachable!("chosen for all columns together"),
            Choice::Labor => labor(self.step.fan_out, &among, |place| looks.numbers[at(place)]),
        }
    }

    /// Collects the data that rules examine, for the edges at `positions` of columns `first` to
    /// `last`.
    fn look_at(&self, first: usize, last: usize, positions: &[u64]) -> Result<Looks> {
        let mut looks = Looks::default();
        let weights = match &self.rules.choice {
            Choice::Weighted(of_types) => {
                of_types.get(self.step.edge_type).and_then(Option::as_ref)
            }
            _ => None,
        };
        let mut rows = Vec::new();
        if weights.is_some() || self.times().0.is_some() {
            rows = self.rows_at(positions)?;
        }
        if matches!(self.rules.choice, Choice::Weighted(_)) {
            looks.weights.resize(positions.len(), 1.0);
        }
        if let Some(weights) = weights {
            weights.floats(&rows, &mut looks.weights)?;
            let bad = |weight: &f64| !(weight.is_finite() && *weight >= 0.0);
            if let Some(place) = looks.weights.iter().position(bad) {
                return Err(Error::invalid(format!(
                    "weight {} of the edge in row {}{}: expected a number from 0 on",
                    looks.weights[place],
                    rows[place],
                    self.of_type()
                )));
            }
        }
        if self.rules.times.is_some() {
            looks.times = self.times_at(positions, &rows)?;
        }
        if matches!(self.rules.choice, Choice::Labor) {
            let mut sources = vec![0; positions.len()];
            self.topology.sources(positions, &mut sources)?;
            let batches = (first..last).flat_map(|column| {
                std::iter::repeat_n(self.draws_of[column].0, self.extents[column].degree as usize)
            });
            let number = |(&source, batch): (&u64, u64)| {
                self.stream.uniform(batch, self.hop | OF_SOURCES, source).unit()
            };
            looks.numbers = sources.iter().zip(batches).map(number).collect();
        }
        Ok(looks)
    }

    /// The times of the edges of this step, and of their sources.
    pub(super) fn times(&self) -> (Option<&RowValues>, Option<&RowValues>) {
        let Some(times) = &self.rules.times else { return (None, None) };
        let source =
            self.schema.map_or(0, |schema| schema.edge_types()[self.step.edge_type].source);
        (
            times.edges.get(self.step.edge_type).and_then(Option::as_deref),
            times.nodes.get(source).and_then(Option::as_deref),
        )
    }

    /// The rows of edges within their edge type.
    pub(super) fn rows_at(&self, positions: &[u64]) -> Result<Vec<u64>> {
        let edge_type = self.step.edge_type;
        let first_row = self.schema.map_or(0, |schema| schema.edge_types()[edge_type].rows.start);
        let mut rows = vec![0; positions.len()];
        self.topology.edge_ids(positions, &mut rows)?;
        rows.iter_mut().for_each(|row| *row -= first_row);
        Ok(rows)
    }

    /// The later of the times of each edge and its source; `rows` is needed only if edges have
    /// times.
    pub(super) fn times_at(&self, positions: &[u64], rows: &[u64]) -> Result<Vec<i64>> {
        let (of_edges, of_nodes) = self.times();
        let mut times = vec![i64::MIN; positions.len()];
        if let Some(of_edges) = of_edges {
            of_edges.integers(rows, &mut times)?;
        }
        if let Some(of_nodes) = of_nodes {
            let mut sources = vec![0; positions.len()];
            self.topology.sources(positions, &mut sources)?;
            let first = self.schema.map_or(0, |schema| {
                let source = schema.edge_types()[self.step.edge_type].source;
                schema.node_types()[source].nodes.start
            });
            sources.iter_mut().for_each(|source| *source -= first);
            let mut found = vec![0; positions.len()];
            of_nodes.integers(&sources, &mut found)?;
            times.iter_mut().zip(found).for_each(|(time, found)| *time = (*time).max(found));
        }
        Ok(times)
    }

    /// Names the edge type in messages, if there are several.
    fn of_type(&self) -> String {
        self.schema.map_or(String::new(), |schema| {
            format!(" of edge type `{}`", schema.edge_types()[self.step.edge_type].name)
        })
    }
}
