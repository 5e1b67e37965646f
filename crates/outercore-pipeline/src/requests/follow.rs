//! Going on with arrays that were exchanged, without what was learnt of those before being lost.

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

impl Requests {
    /// Goes on with the arrays of `dataset`, which differ from those before by what is `replaced`.
    ///
    /// The plan stays, and so do the rows in memory and the in-degrees, but for those that were
    /// replaced. `None` where the graph has grown beyond its part of the budget, or its features lie
    /// in another way: then the arrays have to be opened anew.
    ///
    /// **Cost** loads the topology where it is in memory, or its offsets; reads the replaced rows that
    /// are in memory. The topology before is let go first.
    ///
    /// # Errors
    /// `NotFound`: the arrays were replaced once more. Failed reads.
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
        // Where all rows are in memory there is no slot for another one.
        let is_full = source.is_some() && self.plan.holds_all_rows();
        let has_slots = !is_full || nodes == self.plan.num_rows;
        if held > most.0 || !has_slots || !lie_alike(before, source.as_ref()) {
            return Ok(None);
        }
        let mut plan = self.plan;
        plan.num_rows = source.as_ref().map_or(0, |source| source.rows);
        let fetcher = match (self.fetcher, &source) {
            (Some(fetcher), Some(source)) => {
                let key = loader.features.as_deref().unwrap_or_default();
                let rows = replaced.rows.get(key).map_or(&[][..], Vec::as_slice);
                // Those of nodes that were added after the exchange are not in the arrays.
                let rows = &rows[..rows.partition_point(|&node| node < nodes)];
                Some(fetcher.follow(|| Engine::open(reading.clone()), source.clone(), rows)?)
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

/// Memory of what grows with a graph, kept as `plan` says.
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

/// Whether a slot that was filled from one source holds what the other would put there.
fn lie_alike(before: Option<&RowSource>, now: Option<&RowSource>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return before.is_none() == now.is_none() };
    let scales = |source: &RowSource| {
        source.scales.as_ref().map(|scales| (scales.scale().to_vec(), scales.offset().to_vec()))
    };
    before.dtype == now.dtype
        && before.array_dtype == now.array_dtype
        && before.width == now.width
        && scales(before) == scales(now)
}
