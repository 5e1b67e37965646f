//! Decisions by rules that examine edges.

use outercore_core::{NodeId, Result};
use outercore_store::Extent;

use super::lookups::Lookups;
use super::work::Work;
use super::{Sampler, note_edges};
use crate::config::{FanOut, Step};
use crate::pick::Picker;
use crate::rules::{Picked, RuledColumns};
use crate::stored::Stored;

impl Sampler<'_> {
    /// Like [`Self::decide`], by rules that examine edges; the extents must be known.
    pub(super) fn decide_by_rules(
        &self,
        hop: usize,
        steps: &[Step],
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
        induced: bool,
    ) -> Result<()> {
        let Lookups {
            columns, coordinates, trees, counts, shares, extents, picked, positions, ..
        } = lookups;
        let own_coordinates: &[u64] =
            if self.config.rules.is_disjoint() { coordinates } else { columns };
        picked.clear();
        positions.clear();
        counts.clear();
        let mut first = 0;
        for (&step, shares) in steps.iter().zip(shares.chunks(works.len().max(1))) {
            let all = first..first + shares.iter().sum::<usize>();
            let (draws_of, seed_times) = belongings(works, shares, first, own_coordinates, trees);
            let ends: Vec<usize> = shares
                .iter()
                .scan(0, |end, &share| {
                    *end += share;
                    Some(*end)
                })
                .collect();
            let of_step = &trees[all.start.min(trees.len())..all.end.min(trees.len())];
            let is_member = |column: usize, source: NodeId| {
                let work = &works[ends.partition_point(|&end| end <= column)];
                work.has(source, of_step.get(column).copied().unwrap_or(0))
            };
            let ruled = RuledColumns {
                topology: self.topology,
                schema: self.config.types.as_ref().map(|types| &*types.schema),
                rules: &self.config.rules,
                picker: Picker::of_step(self.config, step),
                step,
                stream: self.stream,
                hop: hop as u32,
                columns: &columns[all.clone()],
                extents: &extents[all.clone()],
                draws_of: &draws_of,
                seed_times: &seed_times,
                is_member: induced.then_some(&is_member),
                shares,
            };
            let Picked { positions: of_step, counts: of_columns, weights, scratch } =
                ruled.pick()?;
            positions.extend(of_step);
            for (work, scratch) in works.iter_mut().zip(scratch) {
                work.batch.scratch = work.batch.scratch.max(scratch);
            }
            let mut of_edges = &weights[..];
            let mut rest = &of_columns[..];
            for (work, &share) in works.iter_mut().zip(shares) {
                if step.fan_out == FanOut::Take(0) {
                    work.skip(self.config, step);
                }
                let own = rest.split_off(..share).expect("a count for each column");
                let own = own.iter().map(|&count| count as u64);
                let count = work.count(own, self.config.most_edges)?;
                if !weights.is_empty() {
                    let own = of_edges.split_off(..count).expect("a weight for each edge");
                    work.batch.edge_weights.extend_from_slice(own);
                }
                picked.push(count);
            }
            counts.extend(of_columns.iter().map(|&count| count as u32));
            first = all.end;
        }
        Ok(())
    }

    /// Replaces the sampled edges of the batches by all edges between their nodes.
    pub(super) fn induce<N: Stored>(
        &self,
        works: &mut [Work<N>],
        lookups: &mut Lookups,
    ) -> Result<()> {
        let edge_types =
            self.config.types.as_ref().map_or(1, |types| types.schema.edge_types().len());
        let all = |edge_type| Step { edge_type, fan_out: FanOut::All };
        let steps: Vec<Step> = (0..edge_types).map(all).collect();
        works.iter_mut().for_each(Work::restart_edges);
        self.ask(&steps, works, lookups);
        lookups.extents.resize(lookups.columns.len(), Extent::default());
        self.topology.extents(&lookups.columns, &mut lookups.extents)?;
        self.decide_by_rules(self.config.fan_outs.len(), &steps, works, lookups, true)?;
        self.look_up(works, lookups, |_| ())?;
        note_edges(works, &lookups.picked);
        Ok(())
    }
}

/// For each column of a step, the coordinates of its draws (batch, coordinate) and the time of its
/// seed.
///
/// The columns are those from `first` on; `shares` gives the number of columns per batch.
fn belongings(
    works: &[Work<impl Stored>],
    shares: &[usize],
    first: usize,
    coordinates: &[u64],
    trees: &[u32],
) -> (Vec<(u64, u64)>, Vec<i64>) {
    let (mut draws_of, mut seed_times) = (Vec::new(), Vec::new());
    let mut at = first;
    for (work, &share) in works.iter().zip(shares) {
        let own = coordinates[at..at + share].iter();
        draws_of.extend(own.map(|&coordinate| (work.batch.batch, coordinate)));
        if !work.seed_times.is_empty() {
            let trees = trees[at..at + share].iter();
            seed_times.extend(trees.map(|&tree| work.seed_times[tree as usize]));
        }
        at += share;
    }
    (draws_of, seed_times)
}
