//! Features and topology in far memory.

use std::fs;
use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Context, Result};
use outercore_far::{FarTier, OnProgress};
use outercore_format::keys::{EDGE_IDS, OFFSETS, SOURCES};
use outercore_io::{Engine, EngineConfig};
use outercore_store::dataset::{ArrayRef, DataSet};

use crate::config::{FeatureChoice, LoaderConfig};
use crate::plan::{FarPlan, TopologyPlan};
use crate::row_space::RowSpace;

/// A file that the loader reads during epochs.
struct Wanted {
    path: PathBuf,
    content_name: Option<String>,
    /// Whether it is read often enough to copy it if the server does not have it.
    copy: bool,
}

/// Looks up the files of an epoch on the server, and copies missing ones. Features come first,
/// because they are read most; then the topology, as far as the server has room.
///
/// Files that are read only once, because they fit in memory, are looked up but not copied.
pub fn bring(
    tier: &FarTier,
    dataset: &DataSet,
    config: &LoaderConfig,
    topology: TopologyPlan,
    rows_fit: bool,
    reading: &EngineConfig,
    on_progress: OnProgress<'_>,
) -> Result<FarPlan> {
    let mut wanted = Vec::new();
    wanted.extend(features(dataset, config, rows_fit)?);
    let edge_ids = config.needs_edge_ids().then_some(EDGE_IDS);
    // Ordered by number of reads: every picked position, then every frontier.
    for key in [SOURCES, OFFSETS].into_iter().chain(edge_ids) {
        if !config.fan_outs.is_empty() && dataset.has_array(key) {
            let resident = topology.resident || key == OFFSETS && topology.offsets_resident;
            wanted.push(Wanted::array(dataset.array(key)?, !resident));
        }
    }
    let mut plan = FarPlan::default();
    let mut missing = Vec::new();
    for file in wanted {
        let len = file.len()?;
        let found = match &file.content_name {
            Some(name) => tier.find(&file.path, name)?,
            None => false,
        };
        if found {
            plan.found.0 += len;
        } else if file.copy {
            missing.push((file, len));
        }
    }
    if missing.is_empty() {
        return Ok(plan);
    }
    let total = missing.iter().map(|(_, len)| len).sum();
    let mut before = 0;
    let mut disk = Engine::open(EngineConfig { tier: None, ..reading.clone() })?;
    for (file, len) in missing {
        let whole = 0..len;
        let whole = std::slice::from_ref(&whole);
        let mut on_bytes = |done: u64, _: u64| on_progress(before + done, total);
        plan.add(tier.place(&file.path, whole, &mut disk, &mut on_bytes)?);
        before += len;
    }
    on_progress(total, total)?;
    Ok(plan)
}

fn features(dataset: &DataSet, config: &LoaderConfig, fit: bool) -> Result<Vec<Wanted>> {
    let arrays = config.features.iter().cloned().map(FeatureChoice::Array);
    let paths = config.features_path.iter().cloned().map(FeatureChoice::Path);
    let chosen = arrays.chain(paths).chain(config.typed_features.values().cloned());
    let wanted = chosen.map(|choice| match choice {
        FeatureChoice::Array(key) => Ok(Wanted::array(dataset.array(&key)?, !fit)),
        FeatureChoice::Path(path) => Ok(Wanted { path, content_name: None, copy: !fit }),
    });
    wanted.collect()
}

/// Whether all rows will probably stay in memory after they are first read.
pub fn rows_fit(rows: Option<&RowSpace>, free: Bytes, slot_bytes: Bytes) -> bool {
    rows.is_some_and(|rows| rows.num_rows().saturating_mul(slot_bytes.0) <= free.0)
}

impl Wanted {
    fn array(array: ArrayRef, copy: bool) -> Self {
        Self { content_name: Some(array.content_name()), path: array.path, copy }
    }

    fn len(&self) -> Result<u64> {
        let path: &Path = &self.path;
        let found = fs::metadata(path).with_context(|| format!("file `{}`", path.display()))?;
        Ok(found.len())
    }
}
