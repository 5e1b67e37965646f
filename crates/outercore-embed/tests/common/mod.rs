//! A small table, a training step whose result depends on the order of everything, and a naive
//! version of the same in memory.
#![allow(dead_code, reason = "every test uses its part")]

use std::path::Path;
use std::sync::Arc;

use outercore_core::{Bytes, Result, Stream};
use outercore_embed::buckets::Source;
use outercore_embed::{
    Bucket, Buckets, Executor, MemoryTriples, Order, OrderConfig, Partitioning, Share, Step,
    SwapMode, TableLayout, TriplePool, Triples, Visit, Visits, WalkConfig, Walks, build_buckets,
    partition_order,
};
use outercore_io::{Disk, EngineConfig, RealDisk};

const RELATIONS: u64 = 3;

/// Sorts triples into buckets, without progress reports.
pub fn build(path: &Path, triples: &mut dyn Triples, source: &Source, memory: Bytes) -> Result<()> {
    build_buckets(&RealDisk, path, triples, source, memory, &mut |_, _, _| Ok(()))
}

pub struct Table {
    pub layout: TableLayout,
    pub order: Order,
    pub walks: WalkConfig,
    pub triples: Vec<[i64; 3]>,
}

impl Table {
    pub fn new(order: &OrderConfig, state_width: usize) -> Self {
        Self::walked(order, WalkConfig::default(), state_width)
    }

    pub fn walked(order: &OrderConfig, walks: WalkConfig, state_width: usize) -> Self {
        Self::shaped(order, walks, 97, 5, state_width, 7)
    }

    pub fn shaped(
        order: &OrderConfig,
        walks: WalkConfig,
        nodes: u64,
        dim: usize,
        state: usize,
        seed: u64,
    ) -> Self {
        let partitions = order.partitions * walks.group as usize;
        let partitioning = Partitioning::new(nodes, partitions, seed).unwrap();
        let draw = |at: u64| {
            let mut draws = Stream::new(seed, 1).uniform(0, 0, at);
            [nodes, RELATIONS, nodes].map(|bound| draws.below(bound) as i64)
        };
        Self {
            layout: TableLayout::new(partitioning, dim, state).unwrap(),
            order: partition_order(order).unwrap(),
            walks,
            triples: (0..400).map(draw).collect(),
        }
    }

    fn fill(&self, partition: usize, embeddings: &mut [f32]) {
        for (row, numbers) in embeddings.chunks_exact_mut(self.layout.dim()).enumerate() {
            let node = self.layout.partitioning().node_at(partition, row as u64);
            let mut draws = Stream::new(3, 3).uniform(0, 0, node);
            numbers.fill_with(|| draws.unit() as f32 - 0.5);
        }
    }

    pub fn create(&self, disk: Arc<dyn Disk>, directory: &Path) -> Result<()> {
        let resident = 1.0f32.to_le_bytes();
        let mut fill = |partition: usize, embeddings: &mut [f32], _: &mut [f32]| {
            self.fill(partition, embeddings);
            Ok(())
        };
        let (layout, order, walks) = (&self.layout, &self.order, self.walks);
        let prepare = &mut || Ok(());
        Executor::create_with(disk, directory, layout, order, walks, &resident, prepare, &mut fill)
    }

    pub fn open(&self, disk: Arc<dyn Disk>, directory: &Path) -> Result<Executor> {
        Executor::open(disk, directory, engine())
    }

    pub fn buckets(&self, directory: &Path) -> Buckets {
        let path = directory.join("buckets.bin");
        let source = Source {
            partitioning: self.layout.partitioning(),
            relations: RELATIONS,
            identity: "test".to_owned(),
        };
        let mut triples = MemoryTriples { triples: &self.triples, weights: &[] };
        build(&path, &mut triples, &source, Bytes::mib(2)).unwrap();
        Buckets::open(&path, engine()).unwrap()
    }

    /// Trains the rest of the epoch. Commits after the steps that end a state for which `commit`
    /// returns true, and at the end.
    pub fn train_epoch(
        &self,
        executor: &mut Executor,
        buckets: &mut Buckets,
        commit: &mut dyn FnMut(&Step) -> bool,
    ) -> Result<()> {
        let mut relation = relation_of(executor);
        while let Some(step) = executor.advance()? {
            train(executor, buckets, &step, &mut relation);
            if step.ends_state && commit(&step) {
                executor.commit(&relation.to_le_bytes())?;
            }
        }
        executor.commit(&relation.to_le_bytes())
    }

    /// Bits of all embeddings, in the order of the nodes.
    pub fn numbers(&self, executor: &mut Executor) -> Vec<u32> {
        let dealt = self.layout.partitioning();
        let mut found = vec![0; (dealt.nodes() * self.layout.dim() as u64) as usize];
        for partition in 0..dealt.partitions() {
            let rows = executor.read_rows(partition, 0, dealt.rows(partition)).unwrap();
            self.scatter(partition, &rows, &mut found);
        }
        found
    }

    fn scatter(&self, partition: usize, rows: &[f32], found: &mut [u32]) {
        let dim = self.layout.dim();
        for (row, numbers) in rows.chunks_exact(dim).enumerate() {
            let node = self.layout.partitioning().node_at(partition, row as u64) as usize;
            for (to, number) in found[node * dim..].iter_mut().zip(numbers) {
                *to = number.to_bits();
            }
        }
    }
}

pub fn engine() -> EngineConfig {
    EngineConfig { staging: Bytes::kib(256), depth: 8, ..EngineConfig::default() }
}

/// The caller's resident state: one number.
pub fn relation_of(executor: &Executor) -> f32 {
    f32::from_le_bytes(executor.resident_state().unwrap().try_into().unwrap())
}

/// Trains a step of the executor.
pub fn train(executor: &mut Executor, buckets: &mut Buckets, step: &Step, relation: &mut f32) {
    let layout = *executor.layout();
    let mut pool = TriplePool::default();
    buckets.read(step, layout.slot_rows(), &mut pool).unwrap();
    let place = |row: u32| {
        let slot = (u64::from(row) / layout.slot_rows()) as usize;
        let found = step.resident.iter().position(|resident| resident.slot == slot);
        (found.expect("a slot of the step"), (u64::from(row) % layout.slot_rows()) as usize)
    };
    let triples: Vec<Ends> =
        pool.triples.iter().map(|t| (place(t[0]), t[1], place(t[2]))).collect();
    let mut rows = executor.partitions_mut();
    let mut rows: Vec<Rows<'_>> = rows.iter_mut().map(|(_, e, s)| (&mut **e, &mut **s)).collect();
    update(&layout, &mut rows, &triples, (step.epoch, step.number), relation);
}

/// Embeddings and state of a partition.
type Rows<'a> = (&'a mut [f32], &'a mut [f32]);
/// Index among the partitions in memory and row, for head and tail; the relation is in between.
type Ends = ((usize, usize), u32, (usize, usize));

/// A stand-in for training: shuffled, with negatives from everything in memory, and with sums that
/// depend on their order.
fn update(
    layout: &TableLayout,
    rows: &mut [Rows<'_>],
    triples: &[Ends],
    at: (u64, u64),
    relation: &mut f32,
) {
    let (dim, width) = (layout.dim(), layout.state_width());
    let mut draws = Stream::new(11, at.0).uniform(at.1, 0, 0);
    let mut order: Vec<usize> = (0..triples.len()).collect();
    for place in (1..order.len()).rev() {
        order.swap(place, draws.below(place as u64 + 1) as usize);
    }
    for place in order {
        let (head, kind, tail) = triples[place];
        let partition = draws.below(rows.len() as u64) as usize;
        let negative = draws.below((rows[partition].0.len() / dim) as u64) as usize;
        let other: Vec<f32> = row(rows, tail, dim).to_vec();
        let against: Vec<f32> = row(rows, (partition, negative), dim).to_vec();
        let step = 0.1 + kind as f32 * 0.01 + *relation * 0.001;
        for (target, sign) in [(head, 1.0f32), (tail, 0.5), ((partition, negative), -0.7)] {
            let (embeddings, state) = &mut rows[target.0];
            let numbers = &mut embeddings[target.1 * dim..][..dim];
            let state = &mut state[target.1 * width..][..width];
            for (at, number) in numbers.iter_mut().enumerate() {
                let gradient = sign * (other[at] - against[at] * 0.3 + *number * 0.01);
                let scale = state.first().map_or(1.0, |sum| 1.0 / (1.0 + sum));
                *number += step * scale * gradient;
            }
            for number in state {
                *number += numbers[0] * numbers[0] * 0.1;
            }
        }
        *relation = *relation * 0.99 + other[0] * 0.01;
    }
}

fn row<'a>(rows: &'a [Rows<'_>], (partition, row): (usize, usize), dim: usize) -> &'a [f32] {
    &rows[partition].0[row * dim..][..dim]
}

/// A naive version with everything in memory, which follows the states of the order.
pub struct Naive {
    partitions: Vec<(Vec<f32>, Vec<f32>)>,
    pub relation: f32,
}

impl Naive {
    pub fn new(table: &Table) -> Self {
        let dealt = table.layout.partitioning();
        let partition = |partition| {
            let rows = dealt.rows(partition) as usize;
            let mut embeddings = vec![0.0; rows * table.layout.dim()];
            table.fill(partition, &mut embeddings);
            (embeddings, vec![0.0; rows * table.layout.state_width()])
        };
        Self { partitions: (0..dealt.partitions()).map(partition).collect(), relation: 1.0 }
    }

    pub fn train_epoch(&mut self, table: &Table, epoch: u64) {
        if table.walks == WalkConfig::default() {
            let order =
                if epoch.is_multiple_of(2) { table.order.clone() } else { table.order.reversed() };
            let whole = |buckets: &[Bucket]| buckets.iter().map(|&b| (b, Share::WHOLE)).collect();
            for (index, state) in order.states.iter().enumerate() {
                let visits = Visits {
                    before_swap: whole(state.before_swap()),
                    during_swap: whole(state.during_swap()),
                };
                let next = order.states.get(index + 1).and_then(|next| next.swap);
                let leave: Vec<usize> = next.iter().map(|next| next.evicted).collect();
                self.state(table, order.mode, &state.resident, &leave, visits, (epoch, index));
            }
            return;
        }
        let mut walks = Walks::new(table.order.clone(), table.walks).unwrap();
        let mut visits = walks.epoch(epoch);
        for index in 0..walks.states() {
            let (number, state) = walks.place_of(epoch, index);
            let walk = walks.walk(number).clone();
            let leave: Vec<usize> =
                walk.swaps_after(state).iter().map(|next| next.evicted).collect();
            let found = visits.state(&walk, state);
            let resident = &walk.states[state].resident;
            self.state(table, walk.mode, resident, &leave, found, (epoch, index));
        }
    }

    /// Trains a buffer state, by its number in the epoch: one or two steps, then some partitions
    /// leave.
    fn state(
        &mut self,
        table: &Table,
        mode: SwapMode,
        resident: &[usize],
        leave: &[usize],
        mut visits: Visits,
        (epoch, index): (u64, usize),
    ) {
        let number = 2 * index as u64;
        if mode == SwapMode::SpareSlot {
            visits.before_swap.append(&mut visits.during_swap);
            self.train(table, resident, &visits.before_swap, (epoch, number + 1));
            return;
        }
        self.train(table, resident, &visits.before_swap, (epoch, number));
        let stay: Vec<usize> =
            resident.iter().copied().filter(|partition| !leave.contains(partition)).collect();
        self.train(table, &stay, &visits.during_swap, (epoch, number + 1));
    }

    fn train(&mut self, table: &Table, there: &[usize], visits: &[Visit], at: (u64, u64)) {
        let dealt = table.layout.partitioning();
        let mut triples: Vec<Ends> = Vec::new();
        for (bucket, share) in visits {
            let mut all: Vec<Ends> = Vec::new();
            for &[head, relation, tail] in &table.triples {
                let [head, tail] = [head, tail].map(|node| dealt.place_of(node as u64));
                if (head.partition, tail.partition) == (bucket.source, bucket.target) {
                    let [head, tail] = [head, tail].map(|place| {
                        let among = there.iter().position(|&p| p == place.partition).unwrap();
                        (among, place.row as usize)
                    });
                    all.push((head, relation as u32, tail));
                }
            }
            triples.extend(share.places(all.len() as u64).map(|place| all[place as usize]));
        }
        let mut taken: Vec<_> =
            there.iter().map(|&p| (p, std::mem::take(&mut self.partitions[p]))).collect();
        let mut rows: Vec<Rows<'_>> =
            taken.iter_mut().map(|(_, (e, s))| (&mut e[..], &mut s[..])).collect();
        update(&table.layout, &mut rows, &triples, at, &mut self.relation);
        for (partition, numbers) in taken {
            self.partitions[partition] = numbers;
        }
    }

    pub fn embeddings(&self, table: &Table) -> Vec<u32> {
        let dealt = table.layout.partitioning();
        let mut found = vec![0; (dealt.nodes() * table.layout.dim() as u64) as usize];
        for (partition, (rows, _)) in self.partitions.iter().enumerate() {
            table.scatter(partition, rows, &mut found);
        }
        found
    }
}
