//! Distances, losses and gradients against their definition in double precision.

use outercore_kernels::{
    Distance, DistanceChunk, DistanceGradients, Loss, distance_gradients, distance_scores,
    loss_rows,
};
use proptest::prelude::*;

const LOSSES: [Loss; 5] = [
    Loss::Softmax { contrastive: false },
    Loss::Softmax { contrastive: true },
    Loss::Logistic { margin: 1.5 },
    Loss::Margin { margin: 0.7 },
    Loss::SelfAdversarial { margin: 2.0, temperature: 1.3 },
];

/// What a chunk consists of, before it is borrowed.
struct Case {
    width: usize,
    queries: Vec<f32>,
    candidates: Vec<f32>,
    positives: Vec<f32>,
    weights: Vec<f32>,
    masked: (Vec<i64>, Vec<i64>),
    bias: Vec<f32>,
}

impl Case {
    fn new(rows: usize, negatives: usize, width: usize, seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut numbers = |count: usize| (0..count).map(|_| next()).collect::<Vec<f32>>();
        let (queries, mut candidates) = (numbers(rows * width), numbers(negatives * width));
        // One candidate is a query: a distance of zero.
        if negatives > 2 {
            candidates[width..2 * width].copy_from_slice(&queries[..width]);
        }
        let mut masked = (Vec::new(), Vec::new());
        for row in 0..rows {
            for candidate in (row % 3 + 1..negatives).step_by(5) {
                masked.0.push(row as i64);
                masked.1.push(candidate as i64);
            }
        }
        let weights = numbers(rows).iter().map(|value| value.abs() + 0.1).collect();
        let positives = numbers(rows);
        Self { width, queries, candidates, positives, weights, masked, bias: numbers(negatives) }
    }

    fn chunk(&self, distance: Distance, loss: Loss) -> DistanceChunk<'_> {
        DistanceChunk {
            distance,
            loss,
            width: self.width,
            queries: &self.queries,
            candidates: &self.candidates,
            positives: &self.positives,
            weights: &self.weights,
            masked: (&self.masked.0, &self.masked.1),
            bias: Some(&self.bias),
        }
    }

    fn gradients(&self, distance: Distance, loss: Loss, threads: usize) -> Found {
        let mut found = Found {
            value: 0.0,
            queries: vec![7.0; self.queries.len()],
            positives: vec![7.0; self.positives.len()],
            candidates: vec![0.5; self.candidates.len()],
        };
        let to = DistanceGradients {
            queries: &mut found.queries,
            positives: &mut found.positives,
            candidates: &mut found.candidates,
        };
        found.value =
            distance_gradients(self.chunk(distance, loss), to, threads).expect("sizes that fit");
        found
    }
}

#[derive(Debug, PartialEq)]
struct Found {
    value: f32,
    queries: Vec<f32>,
    positives: Vec<f32>,
    candidates: Vec<f32>,
}

/// The distance, and its slopes with respect to the first row.
fn distance_of(distance: Distance, first: &[f32], second: &[f32]) -> (f64, Vec<f64>) {
    let difference: Vec<f64> =
        first.iter().zip(second).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
    let sign = |value: f64| if value == 0.0 { 0.0 } else { value.signum() };
    match distance {
        Distance::Manhattan => (
            difference.iter().map(|value| value.abs()).sum(),
            difference.iter().map(|&value| sign(value)).collect(),
        ),
        Distance::Modulus => {
            let half = difference.len() / 2;
            let modulus =
                |unit: usize| difference[unit % half].hypot(difference[unit % half + half]);
            let slope = |unit: usize| match modulus(unit) {
                0.0 => 0.0,
                modulus => difference[unit] / modulus,
            };
            ((0..half).map(modulus).sum(), (0..2 * half).map(slope).collect())
        }
    }
}

/// The weighted loss of a row and its slopes with respect to the positive and the negatives.
fn loss_of(loss: Loss, positive: f64, weight: f64, scores: &[f64]) -> (f64, f64, Vec<f64>) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let count = scores.len() as f64;
    let sum = |steep: f64| -> f64 {
        let counted = scores.iter().filter(|score| score.is_finite());
        counted.map(|score| (steep * score).exp()).sum()
    };
    match loss {
        Loss::Softmax { contrastive } => {
            let all = sum(1.0) + if contrastive { 0.0 } else { positive.exp() };
            if all == 0.0 {
                return (0.0, 0.0, vec![0.0; scores.len()]);
            }
            let own = if contrastive { 0.0 } else { positive.exp() / all };
            let slopes = scores.iter().map(|score| weight * score.exp() / all).collect();
            (weight * (all.ln() - positive), weight * (own - 1.0), slopes)
        }
        Loss::Logistic { margin } => {
            let margin = f64::from(margin);
            let costs: f64 = scores.iter().map(|score| softplus(score + margin)).sum();
            let slopes = scores.iter().map(|score| weight / count * sigmoid(score + margin));
            let own = positive + margin;
            (weight * (softplus(-own) + costs / count), -weight * sigmoid(-own), slopes.collect())
        }
        Loss::Margin { margin } => {
            let edge = positive - f64::from(margin);
            let missing: f64 = scores.iter().map(|score| (score - edge).max(0.0)).sum();
            let slopes: Vec<f64> = scores
                .iter()
                .map(|&score| if score > edge { weight / count } else { 0.0 })
                .collect();
            (weight / count * missing, -slopes.iter().sum::<f64>(), slopes)
        }
        Loss::SelfAdversarial { margin, temperature } => {
            let (margin, steep) = (f64::from(margin), f64::from(temperature));
            let all = sum(steep);
            let half = weight / 2.0;
            let share = |score: f64| match score.is_finite() {
                true => (steep * score).exp() / all,
                false => 0.0,
            };
            let costs: f64 =
                scores.iter().map(|&score| share(score) * softplus(score + margin)).sum();
            let slopes =
                scores.iter().map(|&score| half * share(score) * sigmoid(score + margin)).collect();
            let own = positive + margin;
            (half * (softplus(-own) + costs), -half * sigmoid(-own), slopes)
        }
    }
}

/// The definition, pair by pair, and the sum of the rows' costs without their signs.
fn naive(case: &Case, distance: Distance, loss: Loss) -> (Found, f32) {
    let (width, rows) = (case.width, case.positives.len());
    let (mut value, mut size) = (0.0, 0.0);
    let mut queries = vec![0.0; case.queries.len()];
    let mut candidates = vec![0.5; case.candidates.len()];
    let mut positives = Vec::new();
    for row in 0..rows {
        let query = &case.queries[row * width..][..width];
        let pairs: Vec<_> = case
            .candidates
            .chunks(width)
            .map(|candidate| distance_of(distance, query, candidate))
            .collect();
        let mut scores: Vec<f64> =
            pairs.iter().zip(&case.bias).map(|(pair, bias)| f64::from(*bias) - pair.0).collect();
        for (masked, &candidate) in case.masked.0.iter().zip(&case.masked.1) {
            if *masked == row as i64 {
                scores[candidate as usize] = f64::NEG_INFINITY;
            }
        }
        let (positive, weight) = (case.positives[row], case.weights[row]);
        let (cost, to_positive, slopes) =
            loss_of(loss, f64::from(positive), f64::from(weight), &scores);
        value += cost;
        size += cost.abs();
        positives.push(to_positive as f32);
        for (candidate, (pair, slope)) in pairs.iter().zip(slopes).enumerate() {
            for number in 0..width {
                queries[row * width + number] -= slope * pair.1[number];
                candidates[candidate * width + number] += slope * pair.1[number];
            }
        }
    }
    let single = |numbers: Vec<f64>| numbers.into_iter().map(|number| number as f32).collect();
    let found = Found {
        value: value as f32,
        queries: single(queries),
        positives,
        candidates: single(candidates),
    };
    (found, size as f32)
}

fn assert_close(what: &str, actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let size = expected.iter().fold(1e-3_f32, |size, value| size.max(value.abs()));
    for (place, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(error <= 2e-5 * size, "{what} at {place}: {actual}, expected {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn gradients_are_those_of_the_definition(
        rows in 1_usize..40,
        negatives in 1_usize..80,
        units in 1_usize..40,
        seed in any::<u64>(),
    ) {
        let case = Case::new(rows, negatives, 2 * units, seed);
        for distance in [Distance::Manhattan, Distance::Modulus] {
            for loss in LOSSES {
                let actual = case.gradients(distance, loss, 1);
                let (expected, size) = naive(&case, distance, loss);
                let what = format!("{distance:?} {loss:?}");
                // Costs of the contrastive loss have both signs, and their sum may be next to nothing.
                let error = (actual.value - expected.value).abs();
                prop_assert!(error <= 2e-5 * size.max(1e-3), "{what}: {actual:?}, not {expected:?}");
                assert_close(&format!("{what}: positives"), &actual.positives, &expected.positives);
                assert_close(&format!("{what}: queries"), &actual.queries, &expected.queries);
                assert_close(&format!("{what}: candidates"), &actual.candidates, &expected.candidates);
            }
        }
    }

    #[test]
    fn scores_are_minus_the_distances(
        rows in 1_usize..90,
        candidates in 1_usize..70,
        units in 1_usize..40,
        seed in any::<u64>(),
    ) {
        let case = Case::new(rows, candidates, 2 * units, seed);
        for distance in [Distance::Manhattan, Distance::Modulus] {
            let mut actual = vec![7.0; rows * candidates];
            distance_scores(distance, case.width, &case.queries, &case.candidates, &mut actual, 2)
                .expect("sizes that fit");
            let expected: Vec<f32> = case
                .queries
                .chunks(case.width)
                .flat_map(|query| {
                    case.candidates
                        .chunks(case.width)
                        .map(move |candidate| -distance_of(distance, query, candidate).0 as f32)
                })
                .collect();
            assert_close(&format!("{distance:?}"), &actual, &expected);
        }
    }
}

#[test]
fn many_candidates_are_compared_in_parts() {
    let case = Case::new(9, 2500, 6, 3);
    for distance in [Distance::Manhattan, Distance::Modulus] {
        let (actual, expected) =
            (case.gradients(distance, LOSSES[0], 1), naive(&case, distance, LOSSES[0]).0);
        assert_close("queries", &actual.queries, &expected.queries);
        assert_close("candidates", &actual.candidates, &expected.candidates);
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let case = Case::new(700, 33, 10, 5);
    for distance in [Distance::Manhattan, Distance::Modulus] {
        let one = case.gradients(distance, LOSSES[4], 1);
        for threads in [2, 3, 7] {
            assert_eq!(case.gradients(distance, LOSSES[4], threads), one, "{threads} threads");
        }
    }
}

#[test]
fn losses_of_scores_in_place_are_those_of_the_definition() {
    for loss in LOSSES {
        for negatives in [1, 7, 16, 33, 150] {
            let case = Case::new(130, negatives, 1, 11);
            let scores: Vec<f32> = (0..130 * negatives)
                .map(|place| match place % 6 {
                    5 => f32::NEG_INFINITY,
                    digit => (place as f32 * 0.37).sin() * 10.0_f32.powi(digit as i32 - 2),
                })
                .collect();
            let mut actual = scores.clone();
            let mut positives = vec![7.0; 130];
            let value =
                loss_rows(loss, &case.positives, &case.weights, &mut actual, &mut positives, 2)
                    .expect("sizes that fit");
            let mut expected = 0.0;
            for (row, scores) in scores.chunks(negatives).enumerate() {
                let scores: Vec<f64> = scores.iter().copied().map(f64::from).collect();
                let (positive, weight) = (case.positives[row], case.weights[row]);
                let (cost, to_positive, slopes) =
                    loss_of(loss, f64::from(positive), f64::from(weight), &scores);
                expected += cost;
                let slopes: Vec<f32> = slopes.into_iter().map(|slope| slope as f32).collect();
                assert_close(
                    &format!("{loss:?}"),
                    &actual[row * negatives..][..negatives],
                    &slopes,
                );
                assert_close(&format!("{loss:?}"), &[positives[row]], &[to_positive as f32]);
            }
            assert_close(&format!("{loss:?}"), &[value], &[expected as f32]);
        }
    }
}

#[test]
fn what_is_not_a_number_is_not_hidden() {
    for loss in LOSSES {
        let mut scores = [0.1, f32::NAN, -0.3];
        let value = loss_rows(loss, &[0.0], &[1.0], &mut scores, &mut [0.0], 1).expect("fits");
        let seen = value.is_nan() || scores.iter().any(|score| score.is_nan());
        assert!(seen, "{loss:?}: {value} {scores:?}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let case = Case::new(5, 4, 6, 1);
    let mut to = (vec![0.0; 30], vec![0.0; 5], vec![0.0; 24]);
    let mut refused = |chunk: DistanceChunk<'_>| {
        let to =
            DistanceGradients { queries: &mut to.0, positives: &mut to.1, candidates: &mut to.2 };
        distance_gradients(chunk, to, 1).is_err()
    };
    let whole = case.chunk(Distance::Modulus, LOSSES[0]);
    assert!(!refused(whole));
    assert!(refused(DistanceChunk { width: 5, ..whole }));
    assert!(refused(DistanceChunk { weights: &case.weights[1..], ..whole }));
    assert!(refused(DistanceChunk { candidates: &[], ..whole }));
    assert!(refused(DistanceChunk { masked: (&[0, 5], &[0, 0]), ..whole }));
    assert!(refused(DistanceChunk { masked: (&[1, 0], &[0, 0]), ..whole }));
    assert!(refused(DistanceChunk { masked: (&[0], &[-1]), ..whole }));
}
