//! The sampler. Deciding which positions to take is separate from looking them up.

mod choose;
mod hgt;
mod lookups;
mod ruled;
mod work;

use std::cell::RefCell;

use outercore_core::{Error, ErrorKind, NodeId, Result, Stream};
use outercore_store::resident::{Announcer, ResidentTopology};
use outercore_store::{Extent, Topology};
use rayon::prelude::*;

use crate::batch::{SampledBatch, Shelf};
use crate::config::{FanOut, SampleConfig, Step};
use crate::floyd::{Drawn, Hop};
use crate::locals::Locals;
use crate::pick::Picker;
use crate::rules::Choice;
use crate::seeds::Seeds;
use crate::stored::{MOST_NARROW, Stored};

use choose::{choose_each, choose_few, for_each, relabel_all};
use lookups::{Blocks, Lookups};
use work::Work;

/// Edges per block of a resident topology: the data of this block and the next one stay in the
/// caches.
const BLOCK_EDGES: usize = 2 << 10;

/// Edges per announcement of an extent; with a smaller fan-out, not all extents are announced.
const EDGES_PER_EXTENT: usize = 4;

/// Slots up to which a thread's table is sparse: 2 MiB, the size of a second-level cache. Tables of
/// batches that are sampled together are dense.
const MOST_SPARSE: usize = 1 << 19;

/// Number of batches whose nodes have scores at the same time.
const MOST_SCORED: usize = 4;

/// With a greater degree, a draw does not fit into a lane.
const LANE_DEGREES: u64 = u32::MAX as u64;

/// The most room that a table starts with; it grows when needed.
const MOST_INITIAL_ROOM: u64 = 1 << 14;

/// Samples several batches.
///
/// From a topology on disk, all batches sample a hop together, so the topology receives one large
/// set of positions per hop. From a resident topology, one thread samples each batch, block by
/// block. This needs no memory except for the result and a table per thread.
///
/// **Shapes** one [`SampledBatch`] for each [`Seeds`], in their order.
///
/// **Cost** on disk, two rounds of reads per hop (extents, sources), a third with edge ids.
///
/// # Errors
/// `Invalid` for a seed that is not a node, naming the seed and its batch; errors of the topology.
///
/// # Example
/// ```
/// use outercore_core::Stream;
/// use outercore_sample::{SampleConfig, Seeds, sample_group};
/// use outercore_store::resident::ResidentTopology;
/// // 1 -> 0, 2 -> 0, 0 -> 2
/// let graph = ResidentTopology::from_csc(vec![0, 2, 2, 3], vec![1u32, 2, 0], None)?;
/// let config = SampleConfig::full_neighbours();
/// let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
/// let seeds = vec![Seeds { batch: 0, nodes: vec![0], times: vec![] }];
/// let batches = sample_group(&graph, Stream::new(0, 0), seeds, &config, &pool)?;
/// assert!(batches[0].nodes.iter().eq([0, 1, 2]));
/// # Ok::<(), outercore_core::Error>(())
/// ```
pub fn sample_group(
    topology: &dyn Topology,
    stream: Stream,
    group: Vec<Seeds>,
    config: &SampleConfig,
    pool: &rayon::ThreadPool,
) -> Result<Vec<SampledBatch>> {
    sample_group_on(&Shelf::default(), topology, stream, group, config, pool)
}

/// Like [`sample_group`], reusing the memory of batches from `shelf`.
///
/// # Errors
/// As [`sample_group`].
pub fn sample_group_on(
    shelf: &Shelf,
    topology: &dyn Topology,
    stream: Stream,
    group: Vec<Seeds>,
    config: &SampleConfig,
    pool: &rayon::ThreadPool,
) -> Result<Vec<SampledBatch>> {
    sample_unknown_on(shelf, topology, stream, group, config, pool, &|_| false)
}

/// Like [`sample_group_on`], but the last hop picks no in-edges for nodes that `is_known` accepts.
/// Seeds always get their in-edges, and all other nodes get the same in-edges as without
/// `is_known`.
///
/// A caller that knows a node's state after the first layer does not need these edges.
///
/// # Errors
/// As [`sample_group`].
pub fn sample_unknown_on(
    shelf: &Shelf,
    topology: &dyn Topology,
    stream: Stream,
    group: Vec<Seeds>,
    config: &SampleConfig,
    pool: &rayon::ThreadPool,
    is_known: &(dyn Fn(NodeId) -> bool + Sync),
) -> Result<Vec<SampledBatch>> {
    config.rules.validate(config.replace)?;
    for seeds in &group {
        check_seeds(seeds, topology.num_nodes())?;
        config.rules.check_seeds(seeds)?;
        if config.rules.is_disjoint() {
            check_forest(seeds, topology)?;
        }
    }
    let sampler = Sampler { shelf, topology, stream, config, is_known };
    pool.install(|| {
        if topology.num_nodes() <= MOST_NARROW && !config.rules.is_disjoint() {
            sampler.sample::<u32>(group)
        } else {
            sampler.sample::<u64>(group)
        }
    })
}

fn check_seeds(seeds: &Seeds, nodes: u64) -> Result<()> {
    match seeds.nodes.iter().find(|&&seed| seed >= nodes) {
        None => Ok(()),
        Some(seed) => Err(Error::invalid(format!(
            "seed {seed} of batch {} is out of range: the graph has {nodes} nodes",
            seeds.batch
        ))),
    }
}

/// Checks that all pairs of tree and node, or tree and column, have different numbers.
fn check_forest(seeds: &Seeds, topology: &dyn Topology) -> Result<()> {
    let of_tree = topology.num_nodes().max(topology.num_columns());
    let trees = seeds.nodes.len() as u64;
    if trees.checked_mul(of_tree).is_some_and(|all| all < 1 << 63) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "batch {}: {trees} disjoint neighbourhoods in a graph of {of_tree} nodes are more than 2^63",
        seeds.batch
    ))
    .hint("lower the batch size"))
}

/// Inputs shared by all batches.
#[derive(Clone, Copy)]
struct Sampler<'a> {
    shelf: &'a Shelf,
    topology: &'a dyn Topology,
    stream: Stream,
    config: &'a SampleConfig,
    /// Nodes whose in-edges are left out in the last hop.
    is_known: &'a (dyn Fn(NodeId) -> bool + Sync),
}

/// Memory that a thread reuses from batch to batch.
struct Spare {
    locals: Locals,
    drawn: Drawn,
    lookups: [Lookups; 2],
    /// The columns of the block after the next one, whose extents will be looked up.
    upcoming: Vec<NodeId>,
}

thread_local! {
    /// One per thread of the pool, until the pool ends. A thread samples a batch of a resident
    /// topology without passing work to other threads, so this is never borrowed twice.
    static SPARE: RefCell<Spare> = RefCell::new(Spare {
        locals: Locals::new(MOST_SPARSE),
        drawn: Drawn::default(),
        lookups: Default::default(),
        upcoming: Vec::new(),
    });
}

impl Sampler<'_> {
    fn sample<N: Stored>(&self, group: Vec<Seeds>) -> Result<Vec<SampledBatch>> {
        let one_by_one = |_: &_| self.config.rules.are_plain();
        let Some(resident) = self.topology.resident().filter(one_by_one) else {
            return self.sample_together::<N>(group);
        };
        let one =
            |seeds| SPARE.with_borrow_mut(|spare| self.sample_one::<N>(resident, seeds, spare));
        group.into_par_iter().with_max_len(1).map(one).collect()
    }

    /// Samples a batch block by block.
    ///
    /// Each block is decided before the previous block is looked up. During that look-up, the
    /// processor is told which memory the next look-up will read, so the waits for memory overlap
    /// with work.
    fn sample_one<N: Stored>(
        &self,
        topology: &ResidentTopology,
        seeds: Seeds,
        spare: &mut Spare,
    ) -> Result<SampledBatch> {
        let announcer = topology.announcer();
        let Spare { locals, drawn, lookups: [now, next], upcoming } = spare;
        let kept = std::mem::replace(locals, Locals::new(MOST_SPARSE));
        let mut work = [self.start::<N>(seeds, kept, std::mem::take(drawn))];
        for hop in 0..self.config.fan_outs.len() {
            work[0].begin_hop(self.config);
            for step in self.config.steps(hop) {
                let block = match step.fan_out {
                    FanOut::All => BLOCK_EDGES / 64,
                    FanOut::Take(count) => BLOCK_EDGES / (count as usize).clamp(1, BLOCK_EDGES),
                };
                let steps = [step];
                let mut blocks = Blocks { rest: work[0].begin_step(self.config, step), len: block };
                let before = work[0].edges;
                now.ask(&work[0], blocks.take());
                self.decide(hop, &steps, &mut work, now, announcer)?;
                while !now.columns.is_empty() {
                    next.ask(&work[0], blocks.take());
                    self.decide(hop, &steps, &mut work, next, announcer)?;
                    upcoming.clear();
                    work[0].columns(blocks.first(), upcoming);
                    let (positions, columns) = (&next.positions[..], &upcoming[..]);
                    self.look_up(&mut work, now, move |i| {
                        if let Some(&position) = positions.get(i) {
                            announcer.source(position);
                        }
                        if i % EDGES_PER_EXTENT == 0
                            && let Some(&column) = columns.get(i / EDGES_PER_EXTENT)
                        {
                            announcer.extent(column);
                        }
                    })?;
                    std::mem::swap(now, next);
                }
                let picked = work[0].edges - before;
                work[0].batch.edges_per_hop.push(picked);
            }
            work[0].end_hop(false);
        }
        let [work] = work;
        let batch;
        (batch, *locals, *drawn) = work.finish();
        Ok(batch)
    }

    fn sample_together<N: Stored>(&self, group: Vec<Seeds>) -> Result<Vec<SampledBatch>> {
        let start = |seeds| self.start(seeds, Locals::new(0), Drawn::default());
        let scored = matches!(self.config.rules.choice, Choice::Hgt);
        let seeds = if scored { group.clone() } else { Vec::new() };
        let mut works: Vec<Work<N>> = group.into_par_iter().map(start).collect();
        let mut lookups = Lookups::default();
        if scored {
            // The memory for scores of all batches of a group is not in the memory plan. Draw for a
            // few batches at a time, or for one if the scores of a few take too much.
            for (few, seeds) in works.chunks_mut(MOST_SCORED).zip(seeds.chunks(MOST_SCORED)) {
                match self.draw_nodes(few, &mut lookups) {
                    Err(error) if error.kind() == ErrorKind::Budget && few.len() > 1 => {
                        for (work, seeds) in few.iter_mut().zip(seeds) {
                            *work = start(seeds.clone());
                            self.draw_nodes(std::slice::from_mut(work), &mut lookups)?;
                        }
                    }
                    drawn => drawn?,
                }
            }
        } else {
            self.sample_hops(&mut works, &mut lookups)?;
        }
        if self.config.rules.is_induced() {
            self.induce(&mut works, &mut lookups)?;
        }
        Ok(works.into_iter().map(|work| work.finish().0).collect())
    }

    fn sample_hops<N: Stored>(&self, works: &mut [Work<N>], lookups: &mut Lookups) -> Result<()> {
        let layers = matches!(self.config.rules.choice, Choice::Ladies);
        for hop in 0..self.config.fan_outs.len() {
            let steps = self.config.steps(hop);
            self.ask(&steps, works, lookups);
            self.decide(hop, &steps, works, lookups, Announcer::default())?;
            self.look_up(works, lookups, |_| ())?;
            note_edges(works, &lookups.picked);
            works.iter_mut().for_each(|work| work.end_hop(layers));
        }
        Ok(())
    }

    /// Prepares the columns of a hop's steps for the look-up.
    fn ask<N: Stored>(&self, steps: &[Step], works: &mut [Work<N>], lookups: &mut Lookups) {
        lookups.clear();
        works.iter_mut().for_each(|work| work.begin_hop(self.config));
        for &step in steps {
            for work in works.iter_mut() {
                let all = work.begin_step(self.config, step);
                lookups.add(work, all, self.topology.num_columns());
            }
        }
    }

    fn start<N: Stored>(&self, seeds: Seeds, mut locals: Locals, drawn: Drawn) -> Work<N> {
        let num_seeds = seeds.nodes.len();
        let graph_nodes = self.topology.num_nodes();
        let room = self.config.most_nodes(num_seeds as u64, graph_nodes).min(MOST_INITIAL_ROOM);
        let mut batch = self.shelf.take();
        let mut nodes = N::memory(std::mem::take(&mut batch.nodes)).unwrap_or_default();
        let forest = self.config.rules.is_disjoint().then_some(graph_nodes.max(1));
        match forest {
            None => nodes.extend(seeds.nodes.into_iter().map(N::of)),
            Some(of_tree) => {
                let keys =
                    (0..).zip(seeds.nodes).map(|(tree, seed): (u64, _)| tree * of_tree + seed);
                nodes.extend(keys.map(N::of));
            }
        }
        locals.reset(room as usize);
        locals.enter_seeds(&nodes);
        (batch.batch, batch.num_seeds) = (seeds.batch, num_seeds);
        batch.nodes_per_hop.push(num_seeds as u64);
        let columns = (self.config.types.is_some() || forest.is_some()).then(Vec::new);
        let (frontier, seed_times) = (0..num_seeds, seeds.times);
        let (trees, by_type) = (Vec::new(), Vec::new());
        Work {
            batch,
            nodes,
            locals,
            drawn,
            frontier,
            by_type,
            columns,
            forest,
            trees,
            seed_times,
            edges: 0,
        }
    }

    /// Chooses the in-edges of the columns of each share, and announces some of their positions.
    fn decide(
        &self,
        hop: usize,
        steps: &[Step],
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
        announcer: Announcer<'_>,
    ) -> Result<()> {
        let Lookups { columns, shares, extents, picked, counts, positions, .. } = &mut *lookups;
        extents.resize(columns.len(), Extent::default());
        self.topology.extents(columns, extents)?;
        // Known nodes exist only with one edge type, where a column equals its node.
        if hop > 0 && hop + 1 == self.config.fan_outs.len() {
            for (extent, &node) in extents.iter_mut().zip(&*columns) {
                if (self.is_known)(node) {
                    extent.degree = 0;
                }
            }
        }

        if self.config.rules.look_at_edges() {
            return self.decide_by_rules(hop, steps, works, lookups, false);
        }
        let mut rest = &extents[..];
        picked.clear();
        counts.clear();
        for (&step, shares) in steps.iter().zip(shares.chunks(works.len().max(1))) {
            let picker = Picker::of_step(self.config, step);
            for (work, &share) in works.iter_mut().zip(shares) {
                if step.fan_out == FanOut::Take(0) {
                    work.skip(self.config, step);
                }
                let own = rest.split_off(..share).expect("an extent for each column");
                let of_columns = own.iter().map(|extent| picker.count(extent.degree));
                picked.push(work.count(of_columns, self.config.most_edges)?);
                if work.forest.is_some() {
                    let of_batch = &work.batch.picked;
                    counts.extend_from_slice(&of_batch[of_batch.len() - share..]);
                }
            }
        }
        positions.resize(picked.iter().sum(), 0);
        self.choose(hop, steps, works, lookups, announcer);
        Ok(())
    }

    /// Adds the chosen edges to the batches, and calls `meanwhile` with the index of each edge of a
    /// batch.
    fn look_up(
        &self,
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
        meanwhile: impl Fn(usize) + Copy + Sync + Send,
    ) -> Result<()> {
        let Lookups { shares, counts, trees, picked, positions, answers, .. } = lookups;
        let of_step = works.len().max(1);
        answers.resize(positions.len(), 0);
        self.topology.sources(positions, answers)?;
        if self.config.rules.is_disjoint() {
            let (mut rest, mut counts, mut trees) = (&mut answers[..], &counts[..], &trees[..]);
            for (share, &picked) in picked.iter().enumerate() {
                let columns = shares[share];
                let own = rest.split_off_mut(..picked).expect("a source for each edge");
                let counts = counts.split_off(..columns).expect("a count for each column");
                let trees = trees.split_off(..columns).expect("a tree for each column");
                works[share % of_step].in_trees(own, counts, trees);
            }
        }
        let mut rest = &answers[..];
        for picked in picked.chunks(of_step) {
            relabel_all(works, picked, &mut rest, meanwhile)?;
        }
        if self.config.edge_ids {
            self.topology.edge_ids(positions, answers)?;
            let mut rest = &answers[..];
            for picked in picked.chunks(of_step) {
                for (work, &picked) in works.iter_mut().zip(picked) {
                    let own = rest.split_off(..picked).expect("an id for each edge");
                    work.batch.edge_ids.extend_from_slice(own);
                }
            }
        }
        Ok(())
    }

    /// Fills the positions with the picks of all shares.
    fn choose(
        &self,
        hop: usize,
        steps: &[Step],
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
        announcer: Announcer<'_>,
    ) {
        let Lookups { columns, coordinates, shares, extents, picked, positions, .. } = lookups;
        // The coordinate of a draw is a column, or a column within a tree.
        let columns = if coordinates.is_empty() { columns } else { coordinates };
        let (mut columns, mut extents, mut positions) =
            (&columns[..], &extents[..], &mut positions[..]);
        let of_step = works.len().max(1);
        let counts = shares.chunks(of_step).zip(picked.chunks(of_step));
        for (&step, (shares, picked)) in steps.iter().zip(counts) {
            let shares: Vec<_> = works
                .iter_mut()
                .zip(shares.iter().zip(picked))
                .map(|(work, (&share, &picked))| {
                    let columns = columns.split_off(..share).expect("those of the share");
                    let extents = extents.split_off(..share).expect("one for each column");
                    let positions = positions.split_off_mut(..picked).expect("counted before");
                    (work, columns, extents, positions)
                })
                .collect();
            let picker = Picker::of_step(self.config, step);
            for_each(shares, |(work, columns, extents, positions)| {
                let Work { batch, drawn, .. } = work;
                let (stream, batch, hop) = (self.stream, batch.batch, hop as u32);
                match picker.few_distinct() {
                    Some(count) if extents.iter().all(|extent| extent.degree <= LANE_DEGREES) => {
                        let hop = Hop { stream, batch, hop, count };
                        choose_few(hop, columns, extents, drawn, positions, announcer);
                    }
                    _ => {
                        let draws = |column| stream.uniform(batch, hop, column);
                        choose_each(picker, columns, extents, draws, positions);
                    }
                }
                Ok(())
            })
            .expect("choosing cannot fail");
        }
    }
}

/// Records in each batch the number of edges that each step of a hop picked.
fn note_edges<N>(works: &mut [Work<N>], picked: &[usize]) {
    for picked in picked.chunks(works.len().max(1)) {
        for (work, &picked) in works.iter_mut().zip(picked) {
            work.batch.edges_per_hop.push(picked as u64);
        }
    }
}
