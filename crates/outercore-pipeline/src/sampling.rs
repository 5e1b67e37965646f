//! The sampling stage: turns seeds into sampled groups.

use std::ops::Range;
use std::sync::Arc;

use outercore_core::{NodeId, Permutation, Result, Stream};
use outercore_sample::hotness::{HotRows, PresampleConfig, presample};
use outercore_sample::{SampleConfig, Seeds, Shelf, sample_group_on};
use outercore_store::Topology;
use rayon::ThreadPool;
use rayon::prelude::*;

use crate::config::LoaderConfig;
use crate::group::{Group, Part};
use crate::room::RowRoom;
use crate::row_space::covers;
use crate::seed_list::SeedList;

/// The state of the sampling stage; shared and immutable.
pub struct Sampling {
    /// The graph.
    pub topology: Arc<dyn Topology>,
    /// The seeds.
    seeds: SeedList,
    /// Threads for sampling, sorting and assembly.
    pub pool: Arc<ThreadPool>,
    config: SampleConfig,
    shuffle: bool,
    seed: u64,
    /// The nodes whose feature rows are fetched, as ranges; `None` if no rows are fetched.
    rows: Option<Vec<Range<NodeId>>>,
    /// Memory of consumed batches.
    pub shelf: Arc<Shelf>,
}

impl Sampling {
    /// Whether an edge has the lowest cost: in memory, chosen by degrees only.
    pub fn is_fast(&self) -> bool {
        self.topology.resident().is_some() && self.config.rules.are_plain()
    }

    /// Combines a configuration, a graph and its seeds, with seed times if rules need them. `rows`
    /// are the nodes with feature rows; `None` if no rows are fetched.
    pub fn new(
        topology: Arc<dyn Topology>,
        sample: SampleConfig,
        seeds: SeedList,
        rows: Option<Vec<Range<NodeId>>>,
        pool: Arc<ThreadPool>,
        config: &LoaderConfig,
    ) -> Self {
        Self {
            seeds,
            topology,
            pool,
            config: sample,
            shuffle: config.shuffle,
            seed: config.seed,
            shelf: Arc::default(),
            rows,
        }
    }

    /// Replaces the topology. The current one is freed before `open` opens the new one, so both are
    /// never in memory together. The seeds and batches of epochs do not change.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn over(self, open: impl FnOnce() -> Result<Arc<dyn Topology>>) -> Result<Self> {
        let Self { topology, seeds, pool, config, shuffle, seed, mut rows, shelf } = self;
        let before = topology.num_nodes();
        drop(topology);
        let topology = open()?;
        for range in rows.iter_mut().flatten().filter(|range| range.end == before) {
            // Nodes added meanwhile have rows, too.
            range.end = topology.num_nodes();
        }
        Ok(Self { topology, seeds, pool, config, shuffle, seed, rows, shelf })
    }

    /// A copy with other seeds.
    #[must_use]
    pub fn reseeded(&self, seeds: SeedList) -> Self {
        Self {
            topology: Arc::clone(&self.topology),
            seeds,
            pool: Arc::clone(&self.pool),
            config: self.config.clone(),
            shuffle: self.shuffle,
            seed: self.seed,
            rows: self.rows.clone(),
            shelf: Arc::clone(&self.shelf),
        }
    }

    /// The configuration of the sampler.
    pub fn config(&self) -> &SampleConfig {
        &self.config
    }

    /// Batches per epoch.
    pub fn num_batches(&self) -> u64 {
        self.seeds.num_batches()
    }

    /// The random stream of an epoch.
    pub fn stream(&self, epoch: u64) -> Stream {
        Stream::new(self.seed, epoch)
    }

    /// The seeds of one batch and their places in the input.
    pub fn seeds(&self, epoch: u64, batch: u64) -> (Seeds, Vec<u64>) {
        let places = self.seeds.places(batch);
        let places: Vec<u64> = if self.shuffle {
            let order = Permutation::new(self.seeds.count(), self.seed, epoch);
            order.range(places)
        } else {
            places.collect()
        };
        let (nodes, times) = self.seeds.at_places(&places);
        (Seeds { batch: self.seeds.number(batch), nodes, times }, places)
    }

    /// How many groups may be started before the current group is complete.
    ///
    /// With a resident topology, each batch is sampled by one thread, and some threads would be
    /// idle at the end of a group. If rows are fetched, the fetch stage uses the memory of these
    /// groups, and no group is started ahead.
    pub fn begun_ahead(&self, look_ahead: u32) -> u64 {
        let one_by_one = self.topology.resident().is_some();
        if one_by_one && self.rows.is_none() { look_ahead.into() } else { 0 }
    }

    /// Samples consecutive batches together.
    pub fn sample(&self, epoch: u64, batches: Range<u64>) -> Result<Vec<Part>> {
        let (seeds, places): (Vec<Seeds>, Vec<Vec<u64>>) = self
            .pool
            .install(|| batches.into_par_iter().map(|batch| self.seeds(epoch, batch)).unzip());
        let stream = self.stream(epoch);
        let sampled =
            sample_group_on(&self.shelf, &*self.topology, stream, seeds, &self.config, &self.pool)?;
        Ok(sampled.into_iter().zip(places).collect())
    }

    /// Takes back the memory of a consumed group's batches.
    pub fn give_back(&self, group: Group) {
        for batch in group.batches {
            self.shelf.give_back(batch.sampled);
        }
    }

    /// Whether `nodes` are all nodes of the graph.
    fn has_all(&self, nodes: &Range<NodeId>) -> bool {
        *nodes == (0..self.topology.num_nodes())
    }

    /// Whether the feature row of a node is fetched.
    pub fn wants_row(&self, node: NodeId) -> bool {
        self.rows.as_ref().is_some_and(|ranges| covers(ranges, node))
    }

    /// The seeds of an epoch, in the order of the input.
    pub fn all_seeds(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.seeds.nodes()
    }

    /// Counts how many of `batches` of epoch 0 need each node.
    pub fn presample(&self, batches: Range<u64>, group: usize) -> Result<HotRows> {
        let max_batches = batches.end - batches.start;
        presample(
            &*self.topology,
            self.stream(0),
            batches.map(|batch| self.seeds(0, batch).0),
            &self.config,
            &self.pool,
            PresampleConfig { max_batches, group },
        )
    }

    /// Divides `parts` into groups: each group fits into `room`, or has a single batch.
    ///
    /// The fetch stage detects a single batch that does not fit.
    pub fn group(&self, number: &mut u64, parts: Vec<Part>, room: &RowRoom) -> Vec<Group> {
        let Some(ranges) = &self.rows else {
            *number += 1;
            return vec![Group::without_rows(*number - 1, parts)];
        };
        let all_have_rows = matches!(&ranges[..], [one] if self.has_all(one));
        let mut groups = Vec::new();
        let mut todo = vec![parts];
        while let Some(parts) = todo.pop() {
            let mut group = Group::new(*number, parts, &self.pool);
            if !all_have_rows {
                group.leave_out(|row| !covers(ranges, row));
            }
            if group.batches.len() > 1 && !room.holds(&group.rows) {
                let (first, second) = group.halve();
                todo.push(second);
                todo.push(first);
                continue;
            }
            *number += 1;
            groups.push(group);
        }
        groups
    }
}
