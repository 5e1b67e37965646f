//! Measures the rows per second of one thread through a linear map, by precision.
//!
//!     cargo run --release -p outercore-infer --example linear_bench [ROWS]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{Random, Shape};
use outercore_infer::{Precision, Subgraph};

/// Least seconds of a measurement; the fastest of several runs is reported.
const LEAST_SECONDS: f64 = 0.5;

fn main() {
    let rows = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(64);
    for (features, outputs) in [(128, 256), (256, 256), (256, 40)] {
        let mut random = Random(1);
        let shape = Shape { kind: "mlp", features, outputs, ..Shape::default() };
        let draft = shape.random(&mut random);
        let x = random.numbers(rows * features);
        let nodes: Vec<u64> = (0..rows as u64).collect();
        let subgraph = Subgraph {
            nodes: &nodes,
            nodes_per_hop: &[rows as u64],
            edges_per_hop: &[],
            sources: &[],
            picked: &[],
            degrees: None,
        };
        let [float32, int8] = [Precision::Float32, Precision::Int8].map(|precision| {
            let model = draft.open_as(precision);
            let seconds = fastest(&mut || {
                model.forward(&subgraph, &x).expect("a subgraph that fits");
            });
            rows as f64 / seconds
        });
        println!(
            "{features} x {outputs}, {rows} rows: float32 {:.2} M rows/s, int8 {:.2} M rows/s, \
             ratio {:.2}",
            float32 / 1e6,
            int8 / 1e6,
            int8 / float32
        );
    }
}

fn fastest(work: &mut dyn FnMut()) -> f64 {
    let began = Instant::now();
    let mut fastest = f64::INFINITY;
    while began.elapsed().as_secs_f64() < LEAST_SECONDS {
        let run = Instant::now();
        work();
        fastest = fastest.min(run.elapsed().as_secs_f64());
    }
    fastest
}
