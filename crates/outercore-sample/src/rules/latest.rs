//! Picks the latest edges that a seed may see.

use std::collections::HashMap;

use outercore_core::{NodeId, Result};
use outercore_store::Extent;
use rayon::prelude::*;

use super::candidates::{Picked, RuledColumns, pieces};
use super::pick::Places;
use super::{EqualTimes, TimeOrder};
use crate::config::FanOut;

/// Times of a column's edges, with the edges' places in the column, ascending.
type ByTime = Vec<(i64, u64)>;

impl RuledColumns<'_> {
    /// Whether to take the latest edges. Without times, no edge is the latest; the same few edges
    /// would always be taken.
    pub(super) fn takes_latest(&self) -> bool {
        let (of_edges, of_nodes) = self.times();
        self.rules.times.as_ref().is_some_and(|times| times.order == TimeOrder::Last)
            && (of_edges.is_some() || of_nodes.is_some())
    }

    /// Picks the latest edges of each column that its seed may see; among equal times, those with
    /// the higher place. The picks of a column are sorted by place.
    ///
    /// **Cost** reads and sorts the edges of each column once, for any number of seeds.
    pub(super) fn pick_latest(&self) -> Result<Picked> {
        let (asked, extents) = self.distinct();
        // For each distinct column, the places that request it.
        let mut askers: Vec<Vec<usize>> = vec![Vec::new(); extents.len()];
        asked.iter().enumerate().for_each(|(place, &column)| askers[column].push(place));
        let mut found: Vec<Places> = vec![Places::default(); asked.len()];
        for piece in pieces(&extents, self.rules.together.0) {
            let columns = self.by_time(&extents[piece.clone()])?;
            let of_piece: Vec<(usize, Places)> = piece
                .into_par_iter()
                .zip(&columns)
                .flat_map_iter(|(column, edges)| {
                    let askers = askers[column].iter();
                    askers.map(|&place| (place, self.latest(edges, self.seed_times[place])))
                })
                .collect();
            of_piece.into_iter().for_each(|(place, places)| found[place] = places);
        }
        let mut picked = Picked::default();
        for (places, extent) in found.into_iter().zip(self.extents) {
            picked.counts.push(places.len());
            picked.positions.extend(places.into_iter().map(|place| extent.start + place));
        }
        Ok(picked)
    }

    /// For each place, the index of its column among the distinct columns; and the extents of the
    /// distinct columns.
    fn distinct(&self) -> (Vec<usize>, Vec<Extent>) {
        let mut numbers: HashMap<NodeId, usize> = HashMap::new();
        let mut extents = Vec::new();
        let asked = self.columns.iter().zip(self.extents).map(|(&column, &extent)| {
            *numbers.entry(column).or_insert_with(|| {
                extents.push(extent);
                extents.len() - 1
            })
        });
        (asked.collect(), extents)
    }

    fn by_time(&self, extents: &[Extent]) -> Result<Vec<ByTime>> {
        let positions: Vec<u64> = extents.iter().flat_map(Extent::positions).collect();
        let rows = match self.times().0 {
            Some(_) => self.rows_at(&positions)?,
            None => Vec::new(),
        };
        let times = self.times_at(&positions, &rows)?;
        let mut rest = &times[..];
        let mut columns = Vec::with_capacity(extents.len());
        for extent in extents {
            let (own, after) = rest.split_at(extent.degree as usize);
            columns.push(own.iter().copied().zip(0..).collect::<ByTime>());
            rest = after;
        }
        columns.par_iter_mut().for_each(|edges| edges.sort_unstable());
        Ok(columns)
    }

    fn latest(&self, edges: &ByTime, now: i64) -> Places {
        let equal = self.rules.times.as_ref().map(|times| times.equal);
        let seen = edges.partition_point(|&(time, _)| match equal {
            Some(EqualTimes::Hidden) => time < now,
            _ => time <= now,
        });
        let count = match self.step.fan_out {
            FanOut::All => seen,
            FanOut::Take(count) => seen.min(count as usize),
        };
        let mut places: Places =
            edges[seen - count..seen].iter().map(|&(_, place)| place).collect();
        places.sort_unstable();
        places
    }
}
