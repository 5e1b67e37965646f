//! Benchmark: trains dot products on random edges, in partitions and with everything in memory.
//!
//! ```text
//! cargo run --release -p outercore-embed --example executor_bench -- DIRECTORY \
//!     [NODES [EDGES [DIM [PARTITIONS [SLOTS [in-place | spare-slot]]]]]]
//! ```
//! Prints one JSON object: the seconds of the second epoch for both ways, the moved bytes, and how
//! much of the I/O was hidden by computing. It removes its files at the end.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use outercore_core::{Bytes, Error, Result, Stream};
use outercore_embed::buckets::Source;
use outercore_embed::{
    Buckets, Executor, ExecutorCounters, MemoryTriples, OrderConfig, OrderKind, Partitioning, Step,
    SwapMode, TableLayout, TriplePool, build_buckets, partition_order,
};
use outercore_io::{EngineConfig, RealDisk};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u64| -> Result<u64> {
        let text = arguments.get(place);
        let wrong = |_| Error::invalid("expected: executor_bench DIRECTORY [NODES [EDGES ...]]");
        text.map_or(Ok(default), |text| text.parse().map_err(wrong))
    };
    let root = arguments.first().ok_or_else(|| Error::invalid("expected a directory"))?;
    let (nodes, edges) = (number(1, 200_000)?, number(2, 4_000_000)?);
    let dim = number(3, 64)? as usize;
    let (partitions, slots) = (number(4, 8)? as usize, number(5, 3)? as usize);
    let mode = match arguments.get(6).map(String::as_str) {
        None | Some("in-place") => SwapMode::InPlace,
        Some("spare-slot") => SwapMode::SpareSlot,
        Some(other) => return Err(Error::invalid(format!("`{other}` is no way to swap"))),
    };
    let draw = |edge: u64| {
        let mut draws = Stream::new(1, 0).uniform(0, 0, edge);
        [draws.below(nodes) as i64, 0, draws.below(nodes) as i64]
    };
    let triples: Vec<[i64; 3]> = (0..edges).map(draw).collect();
    let config = |partitions, slots| OrderConfig {
        mode,
        ..OrderConfig::new(OrderKind::Optimal, partitions, slots)
    };
    let run = |order| run(&Path::new(root).join("bench"), &triples, nodes, dim, order);
    let memory = run(config(1, 1))?;
    let disk = run(config(partitions, slots))?;
    let report = serde_json::json!({
        "nodes": nodes, "edges": edges, "dim": dim, "partitions": partitions, "slots": slots,
        "mode": mode, "in_memory": memory, "in_partitions": disk,
        "ratio": disk["epoch_s"].as_f64().zip(memory["epoch_s"].as_f64()).map(|(a, b)| a / b),
    });
    println!("{report:#}");
    Ok(())
}

fn run(
    directory: &Path,
    triples: &[[i64; 3]],
    nodes: u64,
    dim: usize,
    order: OrderConfig,
) -> Result<serde_json::Value> {
    let disk = Arc::new(RealDisk);
    let layout = TableLayout::new(Partitioning::new(nodes, order.partitions, 0)?, dim, dim)?;
    let order = partition_order(&order)?;
    let begun = Instant::now();
    Executor::create(disk.clone(), directory, &layout, &order, b"", &mut |_, rows, _| {
        let mut draws = Stream::new(2, 0).uniform(0, 0, 0);
        rows.fill_with(|| draws.unit() as f32 - 0.5);
        Ok(())
    })?;
    let create_s = begun.elapsed().as_secs_f64();
    let path = directory.join("buckets.bin");
    let source =
        Source { partitioning: layout.partitioning(), relations: 1, identity: "random".to_owned() };
    let begun = Instant::now();
    let mut triples = MemoryTriples { triples, weights: &[] };
    build_buckets(&RealDisk, &path, &mut triples, &source, Bytes::mib(64), &mut |_, _, _| Ok(()))?;
    let buckets_s = begun.elapsed().as_secs_f64();
    let mut buckets = Buckets::open(&path, EngineConfig::default())?;
    let mut executor = Executor::open(disk, directory, EngineConfig::default())?;
    let mut pool = TriplePool::default();
    let mut epochs = Vec::new();
    for _ in 0..2 {
        let (begun, before) = (Instant::now(), executor.counters());
        let mut loss = 0.0;
        while let Some(step) = executor.advance()? {
            buckets.read(&step, layout.slot_rows(), &mut pool)?;
            loss += train(&mut executor, &step, &pool);
        }
        epochs.push((begun.elapsed().as_secs_f64(), loss, before, executor.counters()));
    }
    let begun = Instant::now();
    executor.commit(b"")?;
    let commit_s = begun.elapsed().as_secs_f64();
    drop(executor);
    std::fs::remove_dir_all(directory)?;
    let &(epoch_s, loss, before, after) = &epochs[1];
    let moved = |of: fn(&ExecutorCounters) -> u64| Bytes(of(&after) - of(&before)).to_string();
    let (swap_s, waited_s) = (after.swap_s - before.swap_s, after.waited_s - before.waited_s);
    Ok(serde_json::json!({
        "partition": layout.partition_bytes().to_string(), "create_s": create_s,
        "buckets_s": buckets_s, "epoch_s": epoch_s, "loss": loss, "commit_s": commit_s,
        "swaps": after.loads - before.loads, "read": moved(|c| c.bytes_read),
        "written": moved(|c| c.bytes_written), "swap_s": swap_s, "waited_s": waited_s,
    }))
}

/// One pass over a pool: Adagrad on the squared error between the dot product and 1.
fn train(executor: &mut Executor, step: &Step, pool: &TriplePool) -> f64 {
    let layout = *executor.layout();
    let (dim, slot_rows) = (layout.dim(), layout.slot_rows());
    let mut rows = executor.partitions_mut();
    let place = |row: u32| {
        let slot = (u64::from(row) / slot_rows) as usize;
        let among = step.resident.iter().position(|resident| resident.slot == slot);
        (among.unwrap_or_default(), (u64::from(row) % slot_rows) as usize * dim)
    };
    let mut loss = 0.0;
    let mut ends = [vec![0.0; dim], vec![0.0; dim]];
    for &[head, _, tail] in &pool.triples {
        let places = [place(head), place(tail)];
        for (end, (partition, at)) in ends.iter_mut().zip(places) {
            end.copy_from_slice(&rows[partition].1[at..at + dim]);
        }
        let error = ends[0].iter().zip(&ends[1]).map(|(a, b)| a * b).sum::<f32>() - 1.0;
        loss += f64::from(error * error);
        for ((partition, at), other) in places.into_iter().zip([&ends[1], &ends[0]]) {
            let (_, embeddings, state) = &mut rows[partition];
            let state = &mut state[at..at + dim];
            for ((number, sum), other) in embeddings[at..at + dim].iter_mut().zip(state).zip(other)
            {
                let gradient = error * other;
                *sum += gradient * gradient;
                *number -= 0.1 * gradient / (sum.sqrt() + 1e-6);
            }
        }
    }
    loss
}
