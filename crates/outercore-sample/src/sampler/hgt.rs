//! Batches for HGT, whose nodes are drawn by type.

use std::ops::Range;

use outercore_core::{Error, ErrorKind, Result, hint};
use outercore_store::Extent;

use super::Sampler;
use super::choose::for_each;
use super::lookups::Lookups;
use super::work::Work;
use crate::config::Step;
use crate::rules::{NodeBudget, Spans};
use crate::stored::Stored;

/// Columns of one batch and one step: their indices among all columns, and the node type of their
/// sources.
type Share = (Range<usize>, usize);

impl Sampler<'_> {
    /// Draws the nodes of all hops. The batches have no edges yet.
    pub(super) fn draw_nodes<N: Stored>(
        &self,
        works: &mut [Work<N>],
        lookups: &mut Lookups,
    ) -> Result<()> {
        let types = self.config.types.as_ref();
        let node_types = types.map_or(1, |types| types.schema.node_types().len());
        let mut budgets: Vec<NodeBudget> =
            works.iter().map(|_| NodeBudget::new(node_types)).collect();
        for hop in 0..self.config.fan_outs.len() {
            let steps = self.config.steps(hop);
            self.ask(&steps, works, lookups);
            self.fill(&steps, works, lookups, &mut budgets)?;
            let counts = self.config.fan_outs_of(hop);
            let pairs = works.iter_mut().zip(&mut budgets).collect();
            for_each(pairs, |(work, budget)| {
                work.batch.scratch = work.batch.scratch.max(budget.scratch());
                let drawn = budget.draw(self.stream, work.batch.batch, hop as u32, &counts);
                // This also records places as sources; `restart_edges` removes them.
                work.relabel(&drawn, |_| ())?;
                work.end_hop(false);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Adds the sources of the in-edges of all columns to the budgets of their batches.
    fn fill<N: Stored>(
        &self,
        steps: &[Step],
        works: &[Work<N>],
        lookups: &mut Lookups,
        budgets: &mut [NodeBudget],
    ) -> Result<()> {
        let Lookups { columns, shares, extents, positions, answers, .. } = lookups;
        extents.resize(columns.len(), Extent::default());
        self.topology.extents(columns, extents)?;
        let shares = self.shares_of(steps, shares, works.len());
        for spans in Spans::new(extents, self.config.rules.together.0) {
            positions.clear();
            positions.extend(spans.iter().flat_map(|(_, own)| own.clone()));
            answers.resize(positions.len(), 0);
            self.topology.sources(positions, answers)?;
            let mut starts = Vec::with_capacity(spans.len() + 1);
            starts.push(0);
            for (_, own) in &spans {
                starts.push(starts[starts.len() - 1] + (own.end - own.start) as usize);
            }
            let batches = works.iter().zip(budgets.iter_mut()).zip(&shares).collect();
            for_each(batches, |((work, budget), shares)| {
                for (share, source_type) in shares {
                    let place = |column| spans.partition_point(|(of_span, _)| *of_span < column);
                    for at in place(share.start)..place(share.end) {
                        let per_edge = 1.0 / extents[spans[at].0].degree as f64;
                        for &source in &answers[starts[at]..starts[at + 1]] {
                            if !work.has(source, 0) {
                                budget.add(*source_type, source, per_edge);
                            }
                        }
                    }
                }
                Ok(())
            })?;
            let nodes = budgets.iter().map(NodeBudget::len).sum::<usize>() as u64;
            // Several batches share the planned number of nodes; a single batch may exceed it.
            let together = (works.len() > 1).then_some(self.config.rules.together.0);
            let most = self.config.most_edges.into_iter().chain(together).min();
            if most.is_some_and(|most| nodes > most) {
                return Err(too_many_nodes(works, nodes));
            }
        }
        Ok(())
    }

    /// The shares of each batch, in the order of the steps.
    fn shares_of(&self, steps: &[Step], shares: &[usize], batches: usize) -> Vec<Vec<Share>> {
        let mut of_batches = vec![Vec::with_capacity(steps.len()); batches];
        let mut first = 0;
        for (step, shares) in steps.iter().zip(shares.chunks(batches.max(1))) {
            let types = self.config.types.as_ref();
            let source_type =
                types.map_or(0, |types| types.schema.edge_types()[step.edge_type].source);
            for (own, &share) in of_batches.iter_mut().zip(shares) {
                own.push((first..first + share, source_type));
                first += share;
            }
        }
        of_batches
    }
}

/// With several batches the first one is named, but then the batches are drawn again one by one.
fn too_many_nodes<N>(works: &[Work<N>], nodes: u64) -> Error {
    let batch = works[0].batch.batch;
    let text = format!("batch {batch} draws from {nodes} nodes or more, too many for the budget");
    Error::new(ErrorKind::Budget, text).hint(hint!(
        "raise " {memory} ", or lower the batch size or the numbers of samples"
    ))
}
