//! Collects a batch's uses of rows, and sums their gradients.

use super::{RowsOf, SideSpace, Summed, Table, Tables, grow};
use crate::loss::total;
use crate::model::Size;
use crate::rows::Step;
use crate::uses::{Sizes, Source, Sums, Uses};

/// For each kind of use of entities, the rows used.
pub(super) fn entity_uses(rows: &[RowsOf; 2], shared: bool) -> Vec<&[u32]> {
    let [tails, heads] = rows;
    let mut kinds: Vec<&[u32]> = vec![&tails.anchors, &tails.targets];
    if !shared {
        kinds.extend([&heads.anchors[..], &heads.targets]);
    }
    kinds.extend([&tails.candidates[..], &heads.candidates]);
    kinds
}

/// For each kind of use of relations, the rows used.
pub(super) fn relation_uses(rows: &[RowsOf; 2], shared: bool) -> Vec<&[u32]> {
    let [tails, heads] = rows;
    if shared { vec![&tails.relations] } else { vec![&tails.relations, &heads.relations] }
}

/// Sums the gradients of equal rows, and returns the loss. The loss is not finite if an optimiser
/// step with one of the sums would make the state infinite or NaN.
pub(super) fn sum(
    from: &Tables<'_>,
    rows: &[RowsOf; 2],
    sides: &[SideSpace; 2],
    (of_entities, of_relations): (&mut Summed, &mut Summed),
    shared: bool,
    threads: usize,
) -> f32 {
    let objective = from.objective;
    let (stride, size) = (from.stride(), objective.size);
    let source = |numbers, stride, factors| Some(Source { numbers, stride, factors });
    let anchors = |side: usize| source(&sides[side].to_anchors[..], stride, None);
    let targets =
        |side: usize| source(&sides[side].queries[..], stride, Some(&sides[side].to_positives[..]));
    let weights = |side: usize| Some(&rows[side].weights[..]);
    let gradients = if shared {
        // The head of a triple is the anchor of one question and the target of the other.
        vec![([anchors(0), targets(1)], weights(0)), ([anchors(1), targets(0)], weights(0))]
    } else {
        let own =
            |side| [([anchors(side), None], weights(side)), ([targets(side), None], weights(side))];
        [own(0), own(1)].concat()
    };
    let candidates =
        |side: usize| ([source(&sides[side].to_candidates[..], stride, None), None], None);
    let gradients = gradients.into_iter().chain([candidates(0), candidates(1)]);
    let uses = entity_uses(rows, shared).into_iter().zip(gradients);
    let kinds: Vec<_> =
        uses.map(|(rows, (gradients, weights))| Uses { rows, gradients, weights }).collect();
    let twice = if shared { 2.0 } else { 1.0 };
    let strength = twice * objective.strengths.0;
    let of_rows =
        of_entities.add_up(from.entities, &kinds, (size, strength), objective.steps.0, threads);

    let shared = shared && objective.reverse.is_none();
    let own = |side: usize| source(&sides[side].to_relations[..], from.relations.width, None);
    let gradients = if shared {
        vec![([own(0), own(1)], weights(0))]
    } else {
        vec![([own(0), None], weights(0)), ([own(1), None], weights(1))]
    };
    let uses = relation_uses(rows, shared).into_iter().zip(gradients);
    let kinds: Vec<_> =
        uses.map(|(rows, (gradients, weights))| Uses { rows, gradients, weights }).collect();
    let twice = if shared { 2.0 } else { 1.0 };
    let strength = twice * objective.strengths.1;
    let of_relations =
        of_relations.add_up(from.relations, &kinds, (size, strength), objective.steps.1, threads);
    total(&sides[0].values) + total(&sides[1].values) + of_rows + of_relations
}

impl Summed {
    /// Writes the sums of gradients of equal rows, and returns the regularisation cost of the rows.
    fn add_up(
        &mut self,
        table: &Table<'_>,
        kinds: &[Uses<'_>],
        (size, strength): (Option<Size>, f32),
        step: Step,
        threads: usize,
    ) -> f32 {
        if table.width == 0 {
            return 0.0;
        }
        let rows = self.order.rows.len();
        grow(&mut self.sums, rows * table.width);
        self.costs.resize(rows, 0.0);
        let sums = Sums {
            kinds,
            order: &self.order,
            table: table.rows,
            width: table.width,
            state: table.state,
            state_width: step.state_width(table.width),
            sizes: size.map(|size| Sizes { size, strength }),
        };
        sums.write(&mut self.sums[..rows * table.width], &mut self.costs, threads);
        total(&self.costs)
    }
}
