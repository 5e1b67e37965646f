//! The sampler: deciding (which positions) apart from doing (looking them up).

mod choose;

use std::cell::RefCell;
use std::ops::Range;

use outercore_core::{Error, ErrorKind, NodeId, Result, Stream};
use outercore_store::resident::{Announcer, ResidentTopology};
use outercore_store::{Extent, Topology};
use rayon::prelude::*;

use crate::batch::{SampledBatch, Shelf};
use crate::config::{FanOut, SampleConfig, Seeds};
use crate::floyd::{Drawn, Hop};
use crate::locals::{Locals, MOST_PLACES};
use crate::pick::Picker;
use crate::stored::{MOST_NARROW, Stored};

use choose::{choose_each, choose_few, for_each, relabel_all};

/// Edges that a resident topology is asked for at once: everything about them and the next ones
/// stays in the caches.
const BLOCK_EDGES: usize = 2 << 10;

/// Edges to each announcement of an extent; where the fan-out is smaller not all are announced.
const EDGES_PER_EXTENT: usize = 4;

/// Slots up to which a thread's table is sparse: 2 MiB, a second cache. Where many batches have
/// their tables at once they are dense.
const MOST_SPARSE: usize = 1 << 19;

/// Above this degree a draw does not fit into a lane.
const LANE_DEGREES: u64 = u32::MAX as u64;

/// The most room a table starts with; more comes when it is needed.
const MOST_INITIAL_ROOM: u64 = 1 << 14;

/// Samples several batches.
///
/// From a topology on disk all batches take a hop together, so that it sees one large set of
/// positions per hop. From a resident one each batch is sampled by one thread, block by block, which
/// takes no memory beside the answer but a table per thread.
///
/// **Shapes** one [`SampledBatch`] for each [`Seeds`], in their order.
///
/// **Cost** on disk, two rounds of reads per hop (extents, sources), a third with edge ids.
///
/// # Errors
/// `Invalid` for a seed that is no node, naming it and its batch; what the topology reports.
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
/// let seeds = vec![Seeds { batch: 0, nodes: vec![0] }];
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

/// As [`sample_group`], in the memory of batches from `shelf`.
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

/// As [`sample_group_on`], without the last hop's in-edges of nodes that `is_known` accepts: none
/// are picked for them. Seeds always get theirs, and all other nodes the same as without.
///
/// A caller that has the first layer's state of a node does not need these edges.
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
    for seeds in &group {
        check_seeds(seeds, topology.num_nodes())?;
    }
    let sampler = Sampler { shelf, topology, stream, config, is_known };
    pool.install(|| {
        if topology.num_nodes() <= MOST_NARROW {
            sampler.sample::<u32>(group)
        } else {
            sampler.sample::<u64>(group)
        }
    })
}

fn too_many_edges(batch: u64, edges: u64) -> Error {
    let text = format!("batch {batch} has {edges} edges or more, too many for the budget");
    Error::new(ErrorKind::Budget, text)
        .hint("raise --memory, or lower the batch size or the fan-outs")
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

/// What stays the same for all batches.
#[derive(Clone, Copy)]
struct Sampler<'a> {
    shelf: &'a Shelf,
    topology: &'a dyn Topology,
    stream: Stream,
    config: &'a SampleConfig,
    /// Nodes whose in-edges the last hop leaves out.
    is_known: &'a (dyn Fn(NodeId) -> bool + Sync),
}

/// A batch under way.
struct Work<N> {
    /// All but its nodes.
    batch: SampledBatch,
    nodes: Vec<N>,
    locals: Locals,
    drawn: Drawn,
    /// The destinations whose in-edges are sampled next.
    block: Range<usize>,
}

/// The lookups of one step, for all its batches one after the other; kept to spare allocations.
#[derive(Default)]
struct Lookups {
    nodes: Vec<NodeId>,
    extents: Vec<Extent>,
    /// Edges picked for each batch.
    picked: Vec<usize>,
    positions: Vec<u64>,
    answers: Vec<u64>,
}

/// What one thread reuses from batch to batch.
struct Spare {
    locals: Locals,
    drawn: Drawn,
    lookups: [Lookups; 2],
    /// The nodes whose extents the block after the next will ask for.
    upcoming: Vec<NodeId>,
}

thread_local! {
    /// Of each thread of the pool, until the pool ends. A batch of a resident topology is sampled
    /// without handing anything to other threads, so that it is never borrowed twice.
    static SPARE: RefCell<Spare> = RefCell::new(Spare {
        locals: Locals::new(MOST_SPARSE),
        drawn: Drawn::default(),
        lookups: Default::default(),
        upcoming: Vec::new(),
    });
}

impl Sampler<'_> {
    fn sample<N: Stored>(&self, group: Vec<Seeds>) -> Result<Vec<SampledBatch>> {
        let Some(resident) = self.topology.resident() else {
            return self.sample_together::<N>(group);
        };
        let one =
            |seeds| SPARE.with_borrow_mut(|spare| self.sample_one::<N>(resident, seeds, spare));
        group.into_par_iter().with_max_len(1).map(one).collect()
    }

    /// Samples a batch block by block.
    ///
    /// Each block is decided before the one ahead of it is looked up. So the processor can be told
    /// meanwhile what the next look-up will read, and the waits for memory hide behind other work.
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
            let block = match self.config.fan_outs[hop] {
                FanOut::All => BLOCK_EDGES / 64,
                FanOut::Take(count) => BLOCK_EDGES / (count as usize).clamp(1, BLOCK_EDGES),
            };
            let frontier = work[0].frontier();
            let mut blocks = Blocks { rest: frontier.clone(), len: block };
            work[0].block = blocks.take();
            self.decide(hop, &mut work, now, announcer)?;
            while !now.nodes.is_empty() {
                work[0].block = blocks.take();
                self.decide(hop, &mut work, next, announcer)?;
                upcoming.clear();
                upcoming.extend(work[0].nodes[blocks.first()].iter().map(|&node| node.into()));
                let (positions, nodes) = (&next.positions[..], &upcoming[..]);
                self.look_up(&mut work, now, move |i| {
                    if let Some(&position) = positions.get(i) {
                        announcer.source(position);
                    }
                    if i % EDGES_PER_EXTENT == 0
                        && let Some(&node) = nodes.get(i / EDGES_PER_EXTENT)
                    {
                        announcer.extent(node);
                    }
                })?;
                std::mem::swap(now, next);
            }
            work[0].end_hop(frontier.end);
        }
        let [work] = work;
        let batch;
        (batch, *locals, *drawn) = work.finish();
        Ok(batch)
    }

    fn sample_together<N: Stored>(&self, group: Vec<Seeds>) -> Result<Vec<SampledBatch>> {
        let start = |seeds| self.start(seeds, Locals::new(0), Drawn::default());
        let mut works: Vec<Work<N>> = group.into_par_iter().map(start).collect();
        let mut lookups = Lookups::default();
        for hop in 0..self.config.fan_outs.len() {
            for work in &mut works {
                work.block = work.frontier();
            }
            self.decide(hop, &mut works, &mut lookups, Announcer::default())?;
            self.look_up(&mut works, &mut lookups, |_| ())?;
            for work in &mut works {
                work.end_hop(work.block.end);
            }
        }
        Ok(works.into_iter().map(|work| work.finish().0).collect())
    }

    fn start<N: Stored>(&self, seeds: Seeds, mut locals: Locals, drawn: Drawn) -> Work<N> {
        let num_seeds = seeds.nodes.len();
        let graph_nodes = self.topology.num_nodes();
        let room = self.config.most_nodes(num_seeds as u64, graph_nodes).min(MOST_INITIAL_ROOM);
        let mut batch = self.shelf.take();
        let mut nodes = N::memory(std::mem::take(&mut batch.nodes)).unwrap_or_default();
        nodes.extend(seeds.nodes.into_iter().map(N::of));
        locals.reset(room as usize);
        locals.enter_seeds(&nodes);
        (batch.batch, batch.num_seeds) = (seeds.batch, num_seeds);
        batch.nodes_per_hop.push(num_seeds as u64);
        Work { batch, nodes, locals, drawn, block: 0..0 }
    }

    /// Chooses the in-edges of every batch's block; announces some of their positions.
    fn decide(
        &self,
        hop: usize,
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
        announcer: Announcer<'_>,
    ) -> Result<()> {
        lookups.clear();
        let Lookups { nodes, extents, picked, positions, .. } = lookups;
        for work in &*works {
            nodes.extend(work.nodes[work.block.clone()].iter().map(|&node| node.into()));
        }
        extents.resize(nodes.len(), Extent::default());
        self.topology.extents(nodes, extents)?;
        if hop > 0 && hop + 1 == self.config.fan_outs.len() {
            for (extent, &node) in extents.iter_mut().zip(&*nodes) {
                if (self.is_known)(node) {
                    extent.degree = 0;
                }
            }
        }

        let picker = Picker::of_hop(self.config, hop);
        let mut rest = &extents[..];
        for work in &mut *works {
            let own = rest.split_off(..work.block.len()).expect("an extent for each node");
            picked.push(work.count(picker, own, self.config.most_edges)?);
        }
        positions.resize(picked.iter().sum(), 0);
        self.choose(hop, works, lookups, announcer);
        Ok(())
    }

    /// Enters what was chosen into the batches; calls `meanwhile` with each edge of a batch.
    fn look_up(
        &self,
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
        meanwhile: impl Fn(usize) + Copy + Sync + Send,
    ) -> Result<()> {
        let Lookups { picked, positions, answers, .. } = lookups;
        answers.resize(positions.len(), 0);
        self.topology.sources(positions, answers)?;
        relabel_all(works, picked, answers, meanwhile)?;
        if self.config.edge_ids {
            self.topology.edge_ids(positions, answers)?;
            let mut rest = &answers[..];
            for (work, &picked) in works.iter_mut().zip(&*picked) {
                let own = rest.split_off(..picked).expect("an id for each edge");
                work.batch.edge_ids.extend_from_slice(own);
            }
        }
        Ok(())
    }

    /// Fills the positions with the picks of all blocks.
    fn choose(
        &self,
        hop: usize,
        works: &mut [Work<impl Stored>],
        lookups: &mut Lookups,
        announcer: Announcer<'_>,
    ) {
        let Lookups { nodes, extents, picked, positions, .. } = lookups;
        let (mut nodes, mut extents, mut positions) =
            (&nodes[..], &extents[..], &mut positions[..]);
        let shares: Vec<_> = works
            .iter_mut()
            .zip(picked)
            .map(|(work, &mut picked)| {
                let nodes = nodes.split_off(..work.block.len()).expect("those of its block");
                let extents = extents.split_off(..work.block.len()).expect("one for each node");
                let positions = positions.split_off_mut(..picked).expect("counted before");
                (work, nodes, extents, positions)
            })
            .collect();
        let picker = Picker::of_hop(self.config, hop);
        for_each(shares, |(work, nodes, extents, positions)| {
            let Work { batch, drawn, .. } = work;
            let (stream, batch, hop) = (self.stream, batch.batch, hop as u32);
            match picker.few_distinct() {
                Some(count) if extents.iter().all(|extent| extent.degree <= LANE_DEGREES) => {
                    let hop = Hop { stream, batch, hop, count };
                    choose_few(hop, nodes, extents, drawn, positions, announcer);
                }
                _ => {
                    let draws = |node| stream.uniform(batch, hop, node);
                    choose_each(picker, nodes, extents, draws, positions);
                }
            }
            Ok(())
        })
        .expect("choosing cannot fail");
    }
}

/// The blocks of a hop that are still to be decided.
struct Blocks {
    /// Their destinations.
    rest: Range<usize>,
    /// Destinations of a block.
    len: usize,
}

impl Blocks {
    /// The first of them; empty once there is none.
    fn first(&self) -> Range<usize> {
        self.rest.start..(self.rest.start + self.len).min(self.rest.end)
    }

    fn take(&mut self) -> Range<usize> {
        let block = self.first();
        self.rest.start = block.end;
        block
    }
}

impl Lookups {
    /// Makes ready for other nodes; extents, positions and answers are overwritten as they are.
    fn clear(&mut self) {
        self.nodes.clear();
        self.picked.clear();
    }
}

impl<N: Stored> Work<N> {
    /// The nodes that the last hop found; before the first, the seeds.
    fn frontier(&self) -> Range<usize> {
        self.batch.picked.len()..self.nodes.len()
    }

    /// Writes down how many edges of each destination of the block are picked; returns their sum.
    ///
    /// `most` is what the batch may have in all.
    fn count(&mut self, picker: Picker, extents: &[Extent], most: Option<u64>) -> Result<usize> {
        let (before, mut picked) = (self.batch.sources.len() as u64, 0usize);
        self.batch.picked.reserve(extents.len());
        for extent in extents {
            let count = picker.count(extent.degree);
            let Ok(narrow) = u32::try_from(count) else {
                return Err(Error::invalid(format!(
                    "a node of batch {} has {count} in-edges, more than a batch can hold",
                    self.batch.batch
                ))
                .hint("give a fan-out instead of taking all neighbours"));
            };
            self.batch.picked.push(narrow);
            picked += narrow as usize;
        }
        let edges = before + picked as u64;
        if most.is_some_and(|most| edges > most) {
            return Err(too_many_edges(self.batch.batch, edges));
        }
        Ok(picked)
    }

    /// Appends edges from `sources`, which get places of their own where they are new.
    fn relabel(&mut self, sources: &[NodeId], meanwhile: impl Fn(usize) + Copy) -> Result<()> {
        let SampledBatch { sources: places, batch, .. } = &mut self.batch;
        let most = self.nodes.len() + sources.len();
        if most > MOST_PLACES {
            return Err(Error::invalid(format!(
                "batch {batch} may reach {most} nodes, more than the 2^31 that local ids tell apart"
            ))
            .hint("lower the batch size or the fan-outs"));
        }
        self.locals.relabel(sources, &mut self.nodes, places, meanwhile);
        Ok(())
    }

    /// Closes the hop whose frontier ended at `frontier_end`.
    fn end_hop(&mut self, frontier_end: usize) {
        let edges_before: u64 = self.batch.edges_per_hop.iter().sum();
        self.batch.nodes_per_hop.push((self.nodes.len() - frontier_end) as u64);
        self.batch.edges_per_hop.push(self.batch.sources.len() as u64 - edges_before);
    }

    /// The batch, and what the next one may use again.
    fn finish(self) -> (SampledBatch, Locals, Drawn) {
        let Self { mut batch, nodes, locals, drawn, .. } = self;
        batch.nodes = N::ids(nodes);
        (batch, locals, drawn)
    }
}
