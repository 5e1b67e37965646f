//! Compares the chunks and negatives of a batch with their definition: triples divided by the range
//! of their anchor, and one draw after the other.

use outercore_core::count_pieces;
use outercore_kernels::{Anchors, Askers, Comparisons, Occasion, Population, Shared, divide, draw};
use proptest::prelude::*;

const FIRST: Occasion = Occasion { seed: 3, epoch: 1, pool: 2, batch: 5, number: 0 };
const RANGES: [(i64, i64); 2] = [(20, 30), (0, 10)];
const LOGS: [f32; 4] = [0.0, -1.0, 0.5, 2.0];

fn population(even: usize) -> Population<'static> {
    Population { ranges: &RANGES, shares: Some(&[1.0, 0.25]), weights: None, even, weighted: 0 }
}

/// Ranges of rows 0 to 9 and 20 to 29. For the side of tails, anchors of the first range are in the
/// second group, the others in the first. For the side of heads, all anchors are in the first
/// group, with two kinds.
fn comparisons(chunk: usize, every: bool, biased: bool) -> Comparisons<'static> {
    let shared = |logs: &'static [f32]| Shared { from: population(7), logs: Some(logs) };
    let side = |groups: &'static [i64], kinds: &'static [i64]| Anchors {
        askers: Askers { starts: &[0, 20], groups, kinds },
        shared: vec![shared(&LOGS), shared(&LOGS[..2])],
    };
    let sides = [side(&[1, 0], &[0, 1]), side(&[0, 0], &[1, 0])];
    Comparisons { sides, chunk, every, biased }
}

proptest! {
    #[test]
    fn a_batch_is_divided_and_drawn_for_as_defined(
        rows in prop::collection::vec((0..20i64, 0..20i64), 1..60),
        chunk in 1usize..30,
        every: bool,
        biased: bool,
        threads in 1usize..4,
    ) {
        let place = |row: i64| if row < 10 { row } else { row + 10 };
        let triples: Vec<i64> =
            rows.iter().flat_map(|&(head, tail)| [place(head), 0, place(tail)]).collect();
        let places: Vec<i64> = (0..rows.len() as i64).rev().collect();
        let comparisons = comparisons(chunk, every, biased);
        let asked = comparisons.ask(&triples, &places, FIRST, threads).unwrap();
        let mut number = 0;
        for (side, asked) in asked.iter().enumerate() {
            let anchors = &comparisons.sides[side];
            let divided = divide(&triples, 2 * side, &places, anchors.askers, 2).unwrap();
            let (mut of_places, mut of_kinds) = (Vec::new(), Vec::new());
            let mut sizes = Vec::new();
            let (mut candidates, mut bias) = (Vec::new(), Vec::new());
            for (group, (some, kinds)) in divided.into_iter().enumerate() {
                let logs = anchors.shared[group].logs.unwrap();
                let pieces = if some.is_empty() { 0 } else { count_pieces(some.len(), chunk) };
                let lengths = (0..pieces).map(|piece| {
                    some.len() * (piece + 1) / pieces - some.len() * piece / pieces
                });
                let mut lengths: Vec<usize> = lengths.collect();
                lengths.sort_unstable_by(|one, other| other.cmp(one));
                for length in lengths {
                    let drawn = draw(population(7), Occasion { number, ..FIRST }).unwrap();
                    number += 1;
                    let rows = if every { (0..10).chain(20..30).collect() } else { drawn.rows };
                    for of_kind in logs.chunks_exact(2) {
                        bias.extend(rows.iter().enumerate().map(|(at, &row)| {
                            let of_draw = if biased && !every { drawn.bias[at] } else { 0.0 };
                            of_kind[usize::from(row < 10)] + of_draw
                        }));
                    }
                    sizes.push((length, rows.len(), logs.len() / 2));
                    candidates.extend(rows);
                }
                of_places.extend(some);
                of_kinds.extend(kinds);
            }
            let found = asked.chunks.iter().map(|one| (one.triples, one.candidates, one.kinds));
            prop_assert_eq!(found.collect::<Vec<_>>(), sizes);
            prop_assert_eq!(&asked.places, &of_places);
            prop_assert_eq!(asked.kinds.as_ref(), Some(&of_kinds));
            prop_assert_eq!(&asked.candidates, &candidates);
            prop_assert_eq!(asked.bias.as_ref(), Some(&bias));
        }
    }
}

#[test]
fn anchors_that_are_all_alike_have_no_kinds() {
    let shared = Shared { from: population(4), logs: None };
    let side = || Anchors {
        askers: Askers { starts: &[], groups: &[], kinds: &[] },
        shared: vec![shared],
    };
    let whole = Comparisons { sides: [side(), side()], chunk: 2, every: false, biased: false };
    let [tails, heads] = whole.ask(&[0, 0, 21, 22, 0, 1], &[1, 0], FIRST, 2).unwrap();
    for asked in [&tails, &heads] {
        assert_eq!((&asked.places[..], &asked.kinds, &asked.bias), (&[1, 0][..], &None, &None));
        assert_eq!(asked.candidates.len(), 4);
    }
    assert_ne!(tails.candidates, heads.candidates);
}

#[test]
fn logarithms_that_are_not_of_the_ranges_are_refused() {
    for logs in [&LOGS[..3], &[]] {
        let mut wrong = comparisons(5, true, false);
        wrong.sides[0].shared[0].logs = Some(logs);
        let error = wrong.ask(&[20, 0, 1], &[0], FIRST, 1).unwrap_err();
        assert!(error.to_string().contains("logarithms of 2 ranges"), "{error}");
    }
}
