//! Draws of negatives by ranges that count differently.

use outercore_kernels::{Askers, Occasion, Population, divide, draw};
use proptest::prelude::*;

fn drawn(ranges: &[(i64, i64)], shares: &[f64], even: usize, number: u32) -> Vec<(i64, f32)> {
    let from = Population { ranges, shares: Some(shares), weights: None, even, weighted: 0 };
    let found = draw(from, Occasion { seed: 5, epoch: 1, pool: 2, batch: 3, number }).unwrap();
    found.rows.into_iter().zip(found.bias).collect()
}

proptest! {
    #[test]
    fn draws_come_from_ranges_with_mass_and_say_how_often(
        sizes in prop::collection::vec((1i64..20, 0u32..4), 1..6),
        number in any::<u32>(),
    ) {
        let mut first = 0;
        let ranges: Vec<_> = sizes
            .iter()
            .map(|&(size, _)| {
                let range = (first, first + size);
                first += size + 3;
                range
            })
            .collect();
        let shares: Vec<_> = sizes.iter().map(|&(_, share)| f64::from(share) / 3.0).collect();
        let mass: f64 = sizes.iter().zip(&shares).map(|(&(size, _), share)| size as f64 * share).sum();
        prop_assume!(mass > 0.0);
        let found = drawn(&ranges, &shares, 200, number);
        prop_assert_eq!(found.len(), 200);
        for (row, bias) in found {
            let range = ranges.iter().position(|range| (range.0..range.1).contains(&row));
            let share = shares[range.expect("a row of a range")];
            prop_assert!(share > 0.0);
            let expected = -(200.0 * share / mass).ln() as f32;
            prop_assert!((bias - expected).abs() < 1e-5, "{} {}", bias, expected);
        }
    }
}

#[test]
fn a_range_is_drawn_by_its_size_times_its_share() {
    let ranges = [(100, 110), (0, 40), (50, 60)];
    let found = drawn(&ranges, &[1.0, 0.25, 0.5], 100_000, 0);
    for (range, expected) in ranges.iter().zip([0.4, 0.4, 0.2]) {
        let count = found.iter().filter(|(row, _)| (range.0..range.1).contains(row)).count();
        let part = count as f64 / found.len() as f64;
        assert!((part - expected).abs() < 0.01, "{range:?}: {part}");
    }
    let of_first: Vec<_> = (100..110)
        .map(|row| found.iter().filter(|&&(one, _)| one == row).count() as f64 / 4000.0)
        .collect();
    assert!(of_first.iter().all(|part| (part - 1.0).abs() < 0.1), "{of_first:?}");
}

#[test]
fn equal_shares_are_expected_as_often_as_none() {
    let from = Population {
        ranges: &[(0, 7), (9, 12)],
        shares: None,
        weights: None,
        even: 50,
        weighted: 0,
    };
    let occasion = Occasion { seed: 5, epoch: 1, pool: 2, batch: 3, number: 0 };
    let without = draw(from, occasion).unwrap();
    let with = draw(Population { shares: Some(&[0.5, 0.5]), ..from }, occasion).unwrap();
    assert_eq!(without.bias, with.bias);
}

#[test]
fn shares_that_are_none_are_refused() {
    let occasion = Occasion { seed: 5, epoch: 1, pool: 2, batch: 3, number: 0 };
    for shares in [&[1.0][..], &[0.0, 0.0], &[-1.0, 2.0], &[f64::NAN, 1.0], &[f64::INFINITY, 1.0]] {
        let from = Population {
            ranges: &[(0, 7), (9, 12)],
            shares: Some(shares),
            weights: None,
            even: 5,
            weighted: 0,
        };
        assert!(draw(from, occasion).unwrap_err().to_string().contains("shares"), "{shares:?}");
    }
}

proptest! {
    #[test]
    fn triples_are_divided_by_the_range_of_their_anchor(
        anchors in prop::collection::vec(0..40i64, 0..60),
        starts in prop::collection::btree_set(1..40i64, 0..5),
        column in 0..3usize,
        groups in prop::collection::vec(0..3i64, 6),
    ) {
        let starts: Vec<i64> = std::iter::once(0).chain(starts).collect();
        let groups = &groups[..starts.len()];
        let kinds: Vec<i64> = (0..starts.len() as i64).map(|range| range * 10).collect();
        let mut triples = vec![-1; 3 * anchors.len()];
        for (triple, &anchor) in triples.chunks_exact_mut(3).zip(&anchors) {
            triple[column] = anchor;
        }
        let places: Vec<i64> = (0..anchors.len() as i64).rev().collect();
        let askers = Askers { starts: &starts, groups, kinds: &kinds };
        let found = divide(&triples, column, &places, askers, 3).unwrap();
        for (group, (some, of_some)) in (0..).zip(found) {
            let range = |place: i64| {
                starts.iter().rposition(|&start| start <= anchors[place as usize]).unwrap()
            };
            let mine = places.iter().copied().filter(|&place| groups[range(place)] == group);
            prop_assert_eq!(&some, &mine.collect::<Vec<_>>());
            let expected: Vec<i64> = some.iter().map(|&place| kinds[range(place)]).collect();
            prop_assert_eq!(of_some, expected);
        }
    }
}

#[test]
fn what_cannot_be_divided_is_refused_by_name() {
    let triples = [3, 0, 5];
    let divided = |column, place, start, group, kinds: &[i64]| {
        let askers = Askers { starts: &[start], groups: &[group], kinds };
        divide(&triples, column, &[place], askers, 1).map_err(|error| error.to_string())
    };
    assert!(divided(0, 0, 0, 0, &[0]).is_ok());
    for (found, expected) in [
        (divided(0, 1, 0, 0, &[0]), "no triple 1"),
        (divided(0, -1, 0, 0, &[0]), "no triple -1"),
        (divided(0, i64::MAX, 0, 0, &[0]), "no triple"),
        (divided(3, 0, 0, 0, &[0]), "column 3"),
        (divided(0, 0, 4, 0, &[0]), "no range of row 3"),
        (divided(0, 0, 0, 1, &[0]), "no group 1"),
        (divided(0, 0, 0, 0, &[]), "kinds"),
    ] {
        let error = found.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
