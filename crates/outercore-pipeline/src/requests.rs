//! Samples neighbourhoods on request: for any nodes, at any time, instead of the batches of an
//! epoch.

mod follow;

use std::sync::Arc;

use outercore_cache::Policy;
use outercore_core::{
    Bytes, Context, Error, ErrorKind, NodeId, ReadCounters, Result, Stream, hint, mix,
};
use outercore_io::{CostModel, Engine, EngineConfig};
use outercore_layout::{Precision, choose};
use outercore_sample::{SampledBatch, Seeds, sample_unknown_on};
use outercore_store::Topology;
use outercore_store::dataset::DataSet;
use outercore_store::delta::{Delta, Overlay};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::MemoryPlan;
use crate::config::LoaderConfig;
use crate::degrees::in_degrees;
use crate::features::RowSource;
use crate::fetch::Fetcher;
use crate::group::{ELSEWHERE, Group, GroupBatch, Part};
use crate::prepare::{Prepared, prepare};
use crate::room::RowRoom;
use crate::row_cache::RowCache;
use crate::row_space::RowSpace;
use crate::sampling::Sampling;
use crate::seed_list::{Input, SeedList};

/// Read buffers of the pass that counts degrees.
const DEGREE_STAGING: Bytes = Bytes::mib(1);

/// Which in-degrees of nodes to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Degrees {
    /// No in-degrees.
    #[default]
    None,
    /// In-degrees in the whole graph.
    WithLoops,
    /// In-degrees without self-loops.
    WithoutLoops,
}

/// How requests that are answered together share their work (GLIST 4.2.1). Answers do not depend on
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sharing {
    /// Whether to order requests so that overlapping neighbourhoods are adjacent. Otherwise
    /// requests keep the order of arrival.
    pub reorder: bool,
    /// Most requests whose rows are read together; 0 means as many as the plan has room for.
    pub group: usize,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { reorder: true, group: 0 }
    }
}

/// Requests for neighbourhoods, and what the caller already knows.
pub struct Ask<'a> {
    /// The changes since the arrays were written.
    pub delta: Option<&'a Delta>,
    /// Seed of the sampler.
    pub seed: u64,
    /// The nodes of each request.
    pub requests: Vec<Vec<NodeId>>,
    /// Nodes whose state at the last hop the caller already knows: the last hop samples no edges
    /// for them.
    pub is_known: &'a (dyn Fn(NodeId) -> bool + Sync),
}

/// The features of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// The array, by key.
    pub key: String,
    /// Precision of the rows in memory. [`Precision::Int8`] needs an `int8` layout of the array;
    /// requests get the restored values.
    pub precision: Precision,
}

/// Limits and resources of requests.
#[derive(Clone, Debug)]
pub struct RequestConfig {
    /// The features; `None` for models without features.
    pub features: Option<Features>,
    /// Neighbours per node and hop; -1 means all.
    pub fan_outs: Vec<i64>,
    /// Draw neighbours with replacement.
    pub replace: bool,
    /// Most nodes of one request.
    pub most_nodes: u64,
    /// Which in-degrees to deliver.
    pub degrees: Degrees,
    /// Memory budget for topology, rows and intermediate results.
    pub memory: Bytes,
    /// Part of the budget that the caller uses.
    pub reserved: Bytes,
    /// Part of the budget for growth of the graph; see [`Requests::follow`].
    pub growth: Bytes,
    /// Threads; 0 means one per core.
    pub threads: usize,
    /// Work that requests share.
    pub sharing: Sharing,
}

/// A request's neighbourhood, with all inputs of a model.
#[derive(Debug)]
pub struct Neighbourhood<'a> {
    /// The sampled subgraph; its first nodes are the requested ones.
    pub sampled: &'a SampledBatch,
    /// Feature rows of its nodes, nodes x width; empty without features.
    pub x: &'a [f32],
    /// In-degree of each of its nodes, if configured.
    pub degrees: Option<Vec<f32>>,
}

/// Reads and cache hits since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCounters {
    /// Reads of feature rows.
    pub feature_reads: ReadCounters,
    /// Reads of the topology.
    pub topology_reads: ReadCounters,
    /// Feature rows needed; each row counts once per group.
    pub rows: u64,
    /// Needed feature rows that were in memory.
    pub rows_in_memory: u64,
}

/// The in-degrees stored in the arrays.
struct InDegrees {
    of_nodes: Vec<f32>,
    with_loops: bool,
}

/// Samples neighbourhoods and gathers features for requested nodes.
///
/// The memory plan is the plan of a loader whose batches are requests. The topology is in memory or
/// paged, the most used rows are in the constant part, and all other rows use an LRU cache.
pub struct Requests {
    sampling: Arc<Sampling>,
    fetcher: Option<Fetcher>,
    plan: MemoryPlan,
    degrees: Option<InDegrees>,
    most_nodes: u64,
    sharing: Sharing,
    /// Key of the features, and the location of their rows.
    features: Option<(String, RowSource)>,
    notice: Option<String>,
    next_group: u64,
    counters: RequestCounters,
    opened: Opened,
}

/// How the arrays were opened; [`Requests::follow`] opens the new arrays in the same way.
struct Opened {
    features: Option<Features>,
    loader: LoaderConfig,
    reading: EngineConfig,
    cost: CostModel,
    /// Most bytes of the parts that grow with the graph.
    most: Bytes,
}

impl Requests {
    /// Makes the plan, and loads the topology and the constant rows.
    ///
    /// Rows come from a layout of the features, if one fits; see [`choose`].
    ///
    /// **Cost** samples trial requests of `most_nodes` nodes; degrees take 4 bytes per node and a
    /// pass over the edges.
    ///
    /// # Errors
    /// `Budget`, with the least sufficient budget; `NotFound` for the features; those of
    /// [`choose`]; failed reads.
    pub fn open(dataset: &DataSet, config: &RequestConfig) -> Result<Self> {
        dataset.require_one_type("serving")?;
        let nodes = dataset.num_nodes();
        let degrees = match config.degrees {
            Degrees::None => None,
            wanted => {
                let reading = EngineConfig { staging: DEGREE_STAGING, ..EngineConfig::default() };
                let mut engine = Engine::open(reading)?;
                let with_loops = wanted == Degrees::WithLoops;
                let of_nodes = in_degrees(dataset, &mut engine, with_loops)?;
                Some(InDegrees { of_nodes, with_loops })
            }
        };
        let degree_bytes = degrees.as_ref().map_or(0, |degrees| 4 * degrees.of_nodes.len() as u64);
        let loader = LoaderConfig {
            fan_outs: config.fan_outs.clone(),
            replace: config.replace,
            batch_size: config.most_nodes,
            // So that trial batches contain nodes of all parts of the graph.
            shuffle: true,
            edge_ids: false,
            features: config.features.as_ref().map(|features| features.key.clone()),
            memory: config.memory,
            reserved: Bytes(degree_bytes + config.reserved.0 + config.growth.0),
            threads: config.threads,
            policy: Policy::Lru,
            ..LoaderConfig::default()
        };
        loader.validate()?;
        let (source, notice) = match &config.features {
            Some(features) => open_features(dataset, features, config.memory)?,
            None => (None, None),
        };
        let input = SeedList::even(Input::All(0..nodes), Vec::new(), &loader)?;
        let rows = source.clone().map(RowSpace::of_one);
        let prepared = prepare(dataset, rows, input, &loader, None, &mut |_, _| Ok(()))?;
        let Prepared { sampling, plan, rows, constant, cost, array_reading, .. } = prepared;
        let mut engine = prepared.engine;
        let fetcher = match rows {
            Some(rows) => {
                let cache = RowCache::new(plan.split, Policy::Lru, None);
                let mut fetcher = Fetcher::open(&mut engine, rows, cost, cache)?;
                fetcher.fill_constant(constant)?;
                Some(fetcher)
            }
            None => None,
        };
        let held = follow::memory(dataset, &loader, &plan, source.as_ref(), degree_bytes)?;
        let opened = Opened {
            features: config.features.clone(),
            reading: array_reading,
            cost,
            most: Bytes(held + config.growth.0),
            loader,
        };
        Ok(Self {
            most_nodes: config.most_nodes,
            sharing: config.sharing,
            sampling,
            fetcher,
            plan,
            degrees,
            features: opened.loader.features.clone().zip(source),
            notice,
            next_group: 0,
            counters: RequestCounters::default(),
            opened,
        })
    }

    /// The memory plan.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// The topology in the arrays.
    pub fn topology(&self) -> &dyn Topology {
        &*self.sampling.topology
    }

    /// Number of features per node.
    pub fn width(&self) -> usize {
        self.features.as_ref().map_or(0, |(_, source)| source.width)
    }

    /// Why an existing layout of the features is not used; for the operator.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Memory of a cached feature row.
    pub fn row_memory(&self) -> Bytes {
        let slots = u64::from(self.plan.split.constant_slots + self.plan.split.dynamic_slots);
        Bytes(self.plan.slots.0 / slots.max(1))
    }

    /// Most nodes of requests that are answered together, as far as the plan has room.
    pub fn window(&self) -> u64 {
        u64::from(self.plan.split.group) * self.most_nodes
    }

    /// Counters since the start.
    pub fn counters(&self) -> RequestCounters {
        RequestCounters { topology_reads: self.sampling.topology.read_counters(), ..self.counters }
    }

    /// Samples and gathers for several requests together. Calls `each(place, neighbourhood)` for
    /// every request, from several threads, in any order.
    ///
    /// The answer of a request depends only on its nodes, the seed and the graph: not on other
    /// requests, the budget or the number of threads. The graph is the one in the arrays, with the
    /// changes of the delta.
    ///
    /// # Errors
    /// `Invalid` for a node out of range; `Budget` for a request whose rows do not fit; failed
    /// reads; errors of `each`.
    pub fn answer(
        &mut self,
        ask: Ask<'_>,
        each: &(dyn Fn(usize, &Neighbourhood<'_>) -> Result<()> + Sync),
    ) -> Result<()> {
        let Ask { delta, seed, requests, is_known } = ask;
        // All requests are batch 0: with different numbers, answers would depend on the order of
        // requests.
        let seeds = requests
            .into_iter()
            .map(|nodes| Seeds { batch: 0, nodes, times: Vec::new() })
            .collect();
        let sampling = Arc::clone(&self.sampling);
        let base: &dyn Topology = &*sampling.topology;
        let overlay = delta.map(|delta| Overlay::new(base, delta));
        let sampled = sample_unknown_on(
            &sampling.shelf,
            overlay.as_ref().map_or(base, Overlay::topology),
            Stream::new(seed, 0),
            seeds,
            sampling.config(),
            &sampling.pool,
            is_known,
        )?;
        let mut parts: Vec<Part> = sampled
            .into_iter()
            .enumerate()
            .map(|(place, sampled)| (sampled, vec![place as u64]))
            .collect();
        if self.sharing.reorder {
            by_overlap(&mut parts);
        }
        let changes = self.changes(delta);
        for parts in self.groups(parts) {
            let room = self.fetcher.as_ref();
            let room = room.map_or_else(RowRoom::unlimited, Fetcher::room);
            for mut group in sampling.group(&mut self.next_group, parts, &room) {
                group.leave_out(|node| changes.row(node).is_some());
                self.answer_group(group, &changes, each)?;
            }
        }
        Ok(())
    }

    /// Groups of requests whose rows are read together.
    fn groups(&self, parts: Vec<Part>) -> Vec<Vec<Part>> {
        if self.sharing.group == 0 {
            return vec![parts];
        }
        let mut rest = parts.into_iter();
        let mut next = || rest.by_ref().take(self.sharing.group).collect::<Vec<_>>();
        std::iter::from_fn(|| Some(next()).filter(|group| !group.is_empty())).collect()
    }

    fn changes<'d>(&self, delta: Option<&'d Delta>) -> Changes<'d> {
        let features = self.features.as_ref().map(|(key, _)| key.clone());
        // Usually no row has changed, and then no row needs a look-up.
        let rows = features.filter(|key| delta.is_some_and(|delta| delta.changes_rows(key)));
        Changes { delta, rows }
    }

    fn answer_group(
        &mut self,
        group: Group,
        changes: &Changes<'_>,
        each: &(dyn Fn(usize, &Neighbourhood<'_>) -> Result<()> + Sync),
    ) -> Result<()> {
        let sampling = Arc::clone(&self.sampling);
        let all_degrees = self.degrees.as_ref();
        let (Some(fetcher), Some((_, source))) = (&mut self.fetcher, &self.features) else {
            let answered = sampling.pool.install(|| {
                group.batches.par_iter().try_for_each(|batch| {
                    let degrees = changes.degrees(all_degrees, &batch.sampled);
                    let found = Neighbourhood { sampled: &batch.sampled, x: &[], degrees };
                    each(batch.input_ids[0] as usize, &found)
                })
            });
            sampling.give_back(group);
            return answered;
        };
        let number = group.number;
        // The plan has room for two batches of the greatest size; smaller ones share this room.
        let room = self.plan.delivered_rows().0;
        let announced = fetcher.announce(group);
        let ready = match fetcher.fetch(announced) {
            Ok(Ok(ready)) => ready,
            Ok(Err(_)) => {
                // The rows in the cache stay.
                fetcher.withdraw();
                let text = "the rows of one request do not fit the budget";
                return Err(Error::new(ErrorKind::Budget, text)
                    .hint(hint!("ask for fewer nodes at a time, or raise " {memory})));
            }
            Err(error) => {
                fetcher.reset();
                return Err(error);
            }
        };
        let arena = fetcher.arena();
        let answer_one = |batch: &GroupBatch| {
            let mut x = vec![0.0; batch.row_index.len() * source.width];
            let rows = x.chunks_exact_mut(source.width).zip(&batch.row_index);
            for ((row, &place), node) in rows.zip(batch.sampled.nodes.iter()) {
                let loaded = match (place, changes.row(node)) {
                    (ELSEWHERE, Some(changed)) => source.deliver_changed(changed, row),
                    _ => source.deliver(&arena, ready.slots[place as usize], row),
                };
                loaded.with_context(|| format!("features of node {node}"))?;
            }
            let degrees = changes.degrees(all_degrees, &batch.sampled);
            let found = Neighbourhood { sampled: &batch.sampled, x: &x, degrees };
            each(batch.input_ids[0] as usize, &found)
        };
        let mut rest = &ready.group.batches[..];
        let mut answered = Ok(());
        while answered.is_ok() && !rest.is_empty() {
            let (now, later) = rest.split_at(fitting(rest, source.width, room));
            rest = later;
            answered = sampling.pool.install(|| now.par_iter().try_for_each(answer_one));
        }
        fetcher.release(number);
        let (reads, cache) = fetcher.take_counters();
        self.counters.feature_reads += reads;
        self.counters.rows += cache.distinct;
        self.counters.rows_in_memory += cache.constant_hits + cache.dynamic_hits;
        sampling.give_back(ready.group);
        answered
    }
}

/// Orders requests so that those with common nodes are adjacent.
///
/// Sorts by the node with the least hash in each neighbourhood. Two requests share this node with a
/// probability equal to their Jaccard similarity (min-hash). GLIST 4.2.1 orders by the least
/// distance from the previous request, which would compare all pairs.
fn by_overlap(parts: &mut [Part]) {
    parts.sort_by_cached_key(|(sampled, _)| sampled.nodes.iter().map(mix).min());
}

/// The location of the feature rows, and the reason if an existing layout is not used.
fn open_features(
    dataset: &DataSet,
    features: &Features,
    memory: Bytes,
) -> Result<(Option<RowSource>, Option<String>)> {
    let Features { key, precision } = features;
    let chosen = choose(dataset, key, *precision, memory)?;
    let source = match &chosen.layout {
        Some(layout) => RowSource::of_layout(dataset, layout),
        None => RowSource::of_array(&dataset.array(key)?, dataset.num_nodes()),
    };
    Ok((Some(source.with_context(|| format!("feature array `{key}`"))?), chosen.notice))
}

/// How many of `batches` may have their rows in memory at the same time; at least one.
fn fitting(batches: &[GroupBatch], width: usize, room: u64) -> usize {
    let mut bytes = 0;
    let fits = batches.iter().take_while(|batch| {
        bytes += (batch.row_index.len() * width * size_of::<f32>()) as u64;
        bytes <= room
    });
    fits.count().max(1)
}

/// The changes that a delta makes to gathered values.
struct Changes<'a> {
    delta: Option<&'a Delta>,
    /// Key of the features, if some of their rows have changed.
    rows: Option<String>,
}

impl Changes<'_> {
    /// The features of a node, if they have changed.
    fn row(&self, node: NodeId) -> Option<&[u8]> {
        self.delta?.node_row(self.rows.as_deref()?, node)
    }

    /// The in-degree of each node of a batch, if configured.
    fn degrees(&self, degrees: Option<&InDegrees>, sampled: &SampledBatch) -> Option<Vec<f32>> {
        let InDegrees { of_nodes, with_loops } = degrees?;
        let degree = |node: NodeId| match self.delta.and_then(|d| d.in_degree(node, *with_loops)) {
            Some(changed) => changed as f32,
            None => of_nodes[node as usize],
        };
        Some(sampled.nodes.iter().map(degree).collect())
    }
}
