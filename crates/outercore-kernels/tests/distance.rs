//! Compares scores by distance with their definition in double precision.

use outercore_kernels::{Distance, distance_scores};
use proptest::prelude::*;

const DISTANCES: [Distance; 2] = [Distance::Manhattan, Distance::Modulus];

/// Values between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn distance_of(distance: Distance, first: &[f32], second: &[f32]) -> f64 {
    let difference: Vec<f64> =
        first.iter().zip(second).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
    match distance {
        Distance::Manhattan => difference.iter().map(|value| value.abs()).sum(),
        Distance::Modulus => {
            let (real, imaginary) = difference.split_at(difference.len() / 2);
            real.iter().zip(imaginary).map(|(x, y)| x.hypot(*y)).sum()
        }
    }
}

fn scores(
    distance: Distance,
    width: usize,
    queries: &[f32],
    candidates: &[f32],
    threads: usize,
) -> Vec<f32> {
    let mut found = vec![7.0; queries.len() / width * (candidates.len() / width)];
    distance_scores(distance, width, queries, candidates, &mut found, threads)
        .expect("sizes that fit");
    found
}

fn assert_scores(width: usize, queries: &[f32], candidates: &[f32]) {
    for distance in DISTANCES {
        let found = scores(distance, width, queries, candidates, 2);
        let mut places = found.iter();
        for query in queries.chunks(width) {
            for candidate in candidates.chunks(width) {
                let expected = -distance_of(distance, query, candidate);
                let actual = f64::from(*places.next().expect("a score of every pair"));
                let error = (actual - expected).abs();
                assert!(error <= 2e-5 * width as f64, "{distance:?}: {actual}, not {expected}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn scores_are_minus_the_distances(
        rows in 1_usize..90,
        candidates in 1_usize..70,
        units in 1_usize..40,
        seed in any::<u64>(),
    ) {
        let width = 2 * units;
        let (queries, mut others) = (numbers(rows * width, seed), numbers(candidates * width, !seed));
        // One candidate equals a query, at distance zero.
        others[..width].copy_from_slice(&queries[..width]);
        assert_scores(width, &queries, &others);
    }
}

#[test]
fn many_candidates_are_compared_in_parts() {
    assert_scores(6, &numbers(9 * 6, 3), &numbers(2500 * 6, 4));
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (queries, candidates) = (numbers(700 * 10, 5), numbers(33 * 10, 6));
    for distance in DISTANCES {
        let one = scores(distance, 10, &queries, &candidates, 1);
        for threads in [2, 3, 7] {
            assert_eq!(scores(distance, 10, &queries, &candidates, threads), one, "{threads}");
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let rows = numbers(30, 1);
    let mut out = vec![0.0; 25];
    for (distance, width, count) in
        [(Distance::Modulus, 5, 25), (Distance::Manhattan, 0, 25), (Distance::Manhattan, 6, 24)]
    {
        let out = &mut out[..count];
        assert!(distance_scores(distance, width, &rows, &rows, out, 1).is_err(), "{width}");
    }
    assert!(distance_scores(Distance::Manhattan, 6, &rows, &rows, &mut out, 1).is_ok());
}
