//! Measures sampled edges per second from a resident R-MAT graph, for 1, 2, ... threads.
//!
//! `cargo run --release -p outercore-sample --example sample_bench -- [SCALE] [EDGE_FACTOR]` builds
//! 2^SCALE nodes (22) with EDGE_FACTOR (16) edges each, a = 0.57, b = c = 0.19, node ids permuted,
//! all seeded with 0. With the folder of a data set as argument it uses that graph instead. Fan-out
//! 15,10, batches of 1024 shuffled nodes.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Instant;

use outercore_core::{Permutation, Stream};
use outercore_io::{Engine, EngineConfig};
use outercore_sample::{FanOut, SampleConfig, Seeds, Shelf, sample_group_on};
use outercore_store::Topology;
use outercore_store::dataset::DataSet;
use outercore_store::resident::ResidentTopology;
use rayon::prelude::*;

const BATCH_SIZE: u64 = 1024;
const BATCHES: u64 = 2048;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).map(|text| text.parse().expect("a number"));
    let start = Instant::now();
    let graph = match arguments.first() {
        Some(folder) if Path::new(folder).is_dir() => {
            let mut engine = Engine::open(EngineConfig::default()).expect("an engine");
            let data_set = DataSet::open(folder).expect("a data set");
            ResidentTopology::load(&data_set, &mut engine, true).expect("a sound topology")
        }
        _ => r_mat(number(0).unwrap_or(22), number(1).unwrap_or(16).into()),
    };
    eprintln!("there in {:.1} s, {}", start.elapsed().as_secs_f64(), graph.memory());

    let nodes = graph.num_nodes();
    let order = Permutation::new(nodes, 0, 0);
    for edge_ids in [false, true] {
        let fan_outs = vec![FanOut::Take(15), FanOut::Take(10)];
        let config = SampleConfig { fan_outs, edge_ids, ..SampleConfig::full_neighbours() };
        for threads in 1..=std::thread::available_parallelism().map_or(1, usize::from) {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let shelf = Shelf::default();
            // The first round warms up.
            for round in 0..3 {
                let (mut edges, mut found) = (0u64, 0u64);
                let (start, cpu_start) = (Instant::now(), cpu_seconds());
                for group in (0..BATCHES).step_by(16) {
                    let seeds = (group..group + 16).map(|batch| {
                        let first = batch * BATCH_SIZE % nodes;
                        Seeds {
                            batch,
                            nodes: order.range(first..first + BATCH_SIZE),
                            times: vec![],
                        }
                    });
                    let stream = Stream::new(0, round);
                    let batches =
                        sample_group_on(&shelf, &graph, stream, seeds.collect(), &config, &pool)
                            .unwrap();
                    edges += batches.iter().map(|batch| batch.num_edges() as u64).sum::<u64>();
                    found += batches.iter().map(|batch| batch.nodes.len() as u64).sum::<u64>();
                    batches.into_iter().for_each(|batch| shelf.give_back(batch));
                }
                if round == 0 {
                    continue;
                }
                let rate = edges as f64 / start.elapsed().as_secs_f64() / 1e6;
                println!(
                    "edge_ids {edge_ids} threads {threads}: {rate:.1} M edges/s, \
                     {:.1} M edges per CPU second, {} edges and {} nodes a batch",
                    edges as f64 / (cpu_seconds() - cpu_start) / 1e6,
                    edges / BATCHES,
                    found / BATCHES
                );
            }
        }
    }
}

/// Processor time so far, of all threads: a busy machine does not distort it.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("a number of ticks")).sum::<f64>() / 100.0
}

/// Allocates memory in the same way as the store does for a loaded topology.
fn zeros<T: Clone + Default>(count: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(count);
    outercore_io::prefer_huge_pages(values.spare_capacity_mut());
    values.resize(count, T::default());
    values
}

fn r_mat(scale: u32, edge_factor: u64) -> ResidentTopology {
    let nodes = 1u64 << scale;
    let order = Permutation::new(nodes, 1, 0);
    let names: Vec<u32> = (0..nodes).into_par_iter().map(|node| order.at(node) as u32).collect();
    let edges: Vec<(u32, u32)> = (0..nodes * edge_factor)
        .into_par_iter()
        .map(|edge| {
            let mut draws = Stream::new(0, 0).uniform(0, 0, edge);
            let (mut source, mut target, mut bits) = (0usize, 0usize, 0u64);
            for level in 0..scale {
                if level % 4 == 0 {
                    bits = draws.next_u64();
                }
                let quadrant = match bits as u16 {
                    0..37355 => (0, 0),
                    37355..49807 => (0, 1),
                    49807..62259 => (1, 0),
                    _ => (1, 1),
                };
                bits >>= 16;
                source = source << 1 | quadrant.0;
                target = target << 1 | quadrant.1;
            }
            (names[source], names[target])
        })
        .collect();
    let mut offsets = zeros::<u64>(nodes as usize + 1);
    for &(_, target) in &edges {
        offsets[target as usize + 1] += 1;
    }
    for node in 0..nodes as usize {
        offsets[node + 1] += offsets[node];
    }
    let mut next = offsets.clone();
    let mut sources = zeros::<u32>(edges.len());
    for &(source, target) in &edges {
        let place = &mut next[target as usize];
        sources[*place as usize] = source;
        *place += 1;
    }
    for column in offsets.windows(2) {
        sources[column[0] as usize..column[1] as usize].sort_unstable();
    }
    ResidentTopology::from_csc(offsets, sources, None).expect("a valid graph")
}
