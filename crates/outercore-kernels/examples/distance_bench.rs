//! Triples per second of one thread, both sides: distances, self-adversarial loss, gradients.
//!
//!     cargo run --release -p outercore-kernels --example distance_bench [ROWS NEGATIVES WIDTH]

use std::fs;

use outercore_kernels::{
    Distance, DistanceChunk, DistanceGradients, Loss, distance_gradients, distance_scores,
};

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [rows, negatives, width] = sizes.try_into().unwrap_or([1000, 1000, 100]);
    let mut state = 1_u32;
    let mut numbers = |count: usize| -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    };
    let (queries, candidates) = (numbers(rows * width), numbers(negatives * width));
    let (positives, weights) = (numbers(rows), vec![1.0; rows]);
    let mut to_queries = vec![0.0; queries.len()];
    let mut to_positives = vec![0.0; rows];
    let mut to_candidates = vec![0.0; candidates.len()];
    let mut scores = vec![0.0; rows * negatives];
    for distance in [Distance::Manhattan, Distance::Modulus] {
        let mut gradients = || {
            let chunk = DistanceChunk {
                distance,
                loss: Loss::SelfAdversarial { margin: 9.0, temperature: 1.0 },
                width,
                queries: &queries,
                candidates: &candidates,
                positives: &positives,
                weights: &weights,
                masked: (&[], &[]),
                bias: None,
            };
            let to = DistanceGradients {
                queries: &mut to_queries,
                positives: &mut to_positives,
                candidates: &mut to_candidates,
            };
            distance_gradients(chunk, to, 1).expect("sizes that fit");
        };
        let seconds = least(&mut gradients);
        let forward = least(&mut || {
            distance_scores(distance, width, &queries, &candidates, &mut scores, 1)
                .expect("sizes that fit");
        });
        println!(
            "{distance:?}: {:.0} triples/s, of which scores take {:.0} %",
            rows as f64 / seconds / 2.0,
            100.0 * forward / seconds
        );
    }
}

/// Seconds of processor time of the fastest of several calls.
fn least(call: &mut impl FnMut()) -> f64 {
    let time = |_| {
        let started = processor_seconds();
        call();
        processor_seconds() - started
    };
    (0..15).map(time).fold(f64::INFINITY, f64::min)
}

/// What this thread has spent on a processor: others may use the machine meanwhile.
fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux's statistics");
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    nanoseconds.expect("a number of nanoseconds") * 1e-9
}
