//! Exchanges the arrays of a reader without losing its caches.

use std::sync::Arc;

use outercore_core::{Error, Result};
use outercore_io::{Engine, EngineConfig};
use outercore_store::dataset::DataSet;
use outercore_store::delta::Replaced;

use super::{DEGREE_STAGING, InDegrees, Opened, Requests, open_features};
use crate::MemoryPlan;
use crate::config::LoaderConfig;
use crate::features::RowSource;
use crate::prepare::{open_topology, topology_size};
use crate::row_space::RowSpace;

impl Requests {
    /// Reads from the arrays of `dataset` from now on. They may differ from the current arrays only
    /// in `replaced`.
    ///
    /// Keeps the memory plan, the cached rows and the in-degrees, and updates replaced ones.
    /// Returns `None` if the graph has outgrown [`RequestConfig::growth`](super::RequestConfig), or
    /// if the storage of the features has changed. The caller must then open the arrays again.
    ///
    /// **Cost** Reads the topology, or its offsets, if they are in memory; reads replaced rows that
    /// are cached. The current topology is freed first.
    ///
    /// # Errors
    /// `NotFound`: the arrays were replaced again. Failed reads.
    pub fn follow(self, dataset: &DataSet, replaced: &Replaced) -> Result<Option<Self>> {
        let Opened { features, loader, reading, cost, most } = &self.opened;
        let (source, notice) = match features {
            Some(features) => open_features(dataset, features, loader.memory)?,
            None => (None, None),
        };
        let before = self.features.as_ref().map(|(_, source)| source);
        let nodes = dataset.num_nodes();
        let degree_bytes = self.degrees.as_ref().map_or(0, |_| 4 * nodes);
        let held = memory(dataset, loader, &self.plan, source.as_ref(), degree_bytes)?;
        // If all rows are cached, a new node has no slot.
        let is_full = source.is_some() && self.plan.holds_all_rows();
        let has_slots = !is_full || nodes == self.plan.num_rows;
        if held > most.0 || !has_slots || !stores_alike(before, source.as_ref()) {
            return Ok(None);
        }
        let mut plan = self.plan;
        plan.num_rows = source.as_ref().map_or(0, |source| source.rows);
        let fetcher = match (self.fetcher, &source) {
            (Some(fetcher), Some(source)) => {
                let key = loader.features.as_deref().unwrap_or_default();
                let rows = replaced.rows.get(key).map_or(&[][..], Vec::as_slice);
                // Nodes added after the exchange are not in the arrays.
                let rows = &rows[..rows.partition_point(|&node| node < nodes)];
                let rows_now = RowSpace::of_one(source.clone());
                Some(fetcher.follow(|| Engine::open(reading.clone()), rows_now, rows)?)
            }
            _ => None,
        };
        let sampling = Arc::into_inner(self.sampling)
            .ok_or_else(|| Error::internal("arrays are exchanged while they are read"))?;
        let sampling = sampling.over(|| {
            let loading = EngineConfig { staging: DEGREE_STAGING, ..reading.clone() };
            let mut engine = Engine::open(loading)?;
            open_topology(dataset, loader, plan.topology, &mut engine, reading.clone(), *cost)
        })?;
        let mut degrees = self.degrees;
        if let Some(InDegrees { of_nodes, with_loops }) = &mut degrees {
            of_nodes.resize(nodes as usize, 0.0);
            for list in &replaced.lists {
                if let Some(degree) = of_nodes.get_mut(list.node as usize) {
                    *degree = (list.degree - if *with_loops { 0 } else { list.loops }) as f32;
                }
            }
        }
        Ok(Some(Self {
            sampling: Arc::new(sampling),
            fetcher,
            plan,
            degrees,
            features: loader.features.clone().zip(source),
            notice,
            ..self
        }))
    }
}

/// Bytes of the parts of a reader that grow with the graph.
pub fn memory(
    dataset: &DataSet,
    loader: &LoaderConfig,
    plan: &MemoryPlan,
    source: Option<&RowSource>,
    degree_bytes: u64,
) -> Result<u64> {
    let size = topology_size(dataset, loader)?;
    let topology = match (plan.topology.resident, plan.topology.offsets_resident) {
        (true, _) => size.offsets.0 + size.sources.0 + size.edge_ids.0,
        (false, true) => size.offsets.0,
        (false, false) => 0,
    };
    Ok(topology + source.map_or(0, |source| source.memory().0) + degree_bytes)
}

/// Whether both sources store rows in the same way, so that cached rows stay valid.
fn stores_alike(before: Option<&RowSource>, now: Option<&RowSource>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return before.is_none() == now.is_none() };
    let scales = |source: &RowSource| {
        source.scales.as_ref().map(|scales| (scales.scale().to_vec(), scales.offset().to_vec()))
    };
    before.dtype == now.dtype
        && before.array_dtype == now.array_dtype
        && before.width == now.width
        && scales(before) == scales(now)
}
