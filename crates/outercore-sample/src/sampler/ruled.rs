//! Decisions by rules that look at edges.

use outercore_core::Result;

use super::Sampler;
use super::lookups::Lookups;
use super::work::Work;
use crate::config::{FanOut, Step};
use crate::pick::Picker;
use crate::rules::RuledColumns;
use crate::stored::Stored;

impl Sampler<'_> {
    /// As [`Self::decide`], by rules that look at edges; the extents are there.
    pub(super) fn decide_by_rules(
        &self,
        hop: usize,
        steps: &[Step],
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
    ) -> Result<()> {
        let Lookups {
            columns, coordinates, trees, counts, shares, extents, picked, positions, ..
        } = lookups;
        let is_forest = self.config.rules.is_disjoint();
        picked.clear();
        positions.clear();
        counts.clear();
        let mut first = 0;
        for (&step, shares) in steps.iter().zip(shares.chunks(works.len().max(1))) {
            let all = first..first + shares.iter().sum::<usize>();
            let (mut draws_of, mut seed_times) = (Vec::new(), Vec::new());
            let mut at = first;
            for (work, &share) in works.iter().zip(shares) {
                let of_share = at..at + share;
                let own = if is_forest {
                    &coordinates[of_share.clone()]
                } else {
                    &columns[of_share.clone()]
                };
                draws_of.extend(own.iter().map(|&coordinate| (work.batch.batch, coordinate)));
                if !work.seed_times.is_empty() {
                    let of_trees =
                        trees[of_share].iter().map(|&tree| work.seed_times[tree as usize]);
                    seed_times.extend(of_trees);
                }
                at += share;
            }
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
            };
            let (of_step, of_columns) = ruled.pick()?;
            positions.extend(of_step);
            let mut rest = &of_columns[..];
            for (work, &share) in works.iter_mut().zip(shares) {
                if step.fan_out == FanOut::Take(0) {
                    work.skip(self.config, step);
                }
                let own = rest.split_off(..share).expect("a count for each column");
                let own = own.iter().map(|&count| count as u64);
                picked.push(work.count(own, self.config.most_edges)?);
            }
            counts.extend(of_columns.iter().map(|&count| count as u32));
            first = all.end;
        }
        Ok(())
    }
}
