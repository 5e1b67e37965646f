//! Draws of negatives from ranges with different weights.

use outercore_kernels::{Drawn, Occasion, Population, draw};
use proptest::prelude::*;

/// Rows and bias of a draw; also checks its ranges.
fn drawn(ranges: &[(i64, i64)], shares: &[f64], even: usize, number: u32) -> Vec<(i64, f32)> {
    let from = Population { ranges, shares: Some(shares), weights: None, even, weighted: 0 };
    let found = draw(from, Occasion { seed: 5, epoch: 1, pool: 2, batch: 3, number }).unwrap();
    assert_eq!(found.ranges.len(), found.rows.len());
    for (row, range) in found.rows.iter().zip(&found.ranges) {
        let (start, stop) = ranges[*range as usize];
        assert!((start..stop).contains(row), "row {row} in {start}..{stop}");
    }
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

#[test]
fn each_kind_has_the_bias_of_the_draw_and_of_the_rows_ranges() {
    let found = Drawn { rows: vec![1, 4, 9], bias: vec![0.5, 0.25, 2.0], ranges: vec![1, 0, 1] };
    let logs = [-1.0, -2.0, -4.0, -8.0];
    let of_kinds = found.bias_by_kind(&logs, 2, true).unwrap();
    assert_eq!(of_kinds, [-1.5, -0.75, 0.0, -7.5, -3.75, -6.0]);
    let of_kinds = found.bias_by_kind(&logs, 2, false).unwrap();
    assert_eq!(of_kinds, [-2.0, -1.0, -2.0, -8.0, -4.0, -8.0]);
    for ranges in [0, 3] {
        let error = found.bias_by_kind(&logs, ranges, true).unwrap_err();
        assert!(error.to_string().contains("4 logarithms"), "{error}");
    }
}
