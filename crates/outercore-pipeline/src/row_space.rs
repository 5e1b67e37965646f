//! The feature rows of all node types, in one space of row numbers.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_format::keys::Group as KeyGroup;
use outercore_io::{CostModel, PlannedRead, RowLayout, plan_rows};
use outercore_layout::{Places, Precision, choose};
use outercore_store::dataset::DataSet;

use crate::config::{FeatureChoice, LoaderConfig};
use crate::features::RowSource;
use crate::rows::RowArena;

/// The rows of the node types with features. A row's number is its node's global id, so one cache,
/// one policy and one plan serve all types.
#[derive(Clone, Debug)]
pub struct RowSpace {
    parts: Vec<Part>,
}

/// The rows of one node type.
#[derive(Clone, Debug)]
pub struct Part {
    /// The global ids of its nodes.
    pub nodes: Range<u64>,
    /// Index of the node type.
    pub node_type: usize,
    /// Location of the rows.
    pub source: RowSource,
}

/// Position of one node type's rows in their file, for the memory plan.
#[derive(Clone, Debug)]
pub struct PlannedPart {
    /// The global ids of its nodes.
    pub nodes: Range<u64>,
    /// Position of the rows.
    pub layout: RowLayout,
    /// Place of each node's row; `None` if the place is the node's index in its type.
    pub places: Option<Arc<Places>>,
}

impl RowSpace {
    /// The features that a loader delivers; `None` if it delivers none.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for an array that is not a matrix with one row for each node of its
    /// type.
    pub fn chosen(dataset: &DataSet, config: &LoaderConfig) -> Result<Option<Self>> {
        let schema = dataset.schema();
        if !schema.is_typed() {
            let source = match (&config.features, &config.features_path) {
                (Some(key), _) => Some(of_array(dataset, key, dataset.num_nodes(), config)?),
                (None, Some(path)) => Some(of_path(path, dataset.num_nodes(), config)?),
                (None, None) => None,
            };
            return Ok(source.map(Self::of_one));
        }
        let mut parts = Vec::new();
        for (name, choice) in &config.typed_features {
            let node_type = schema.node_type(name)?;
            let nodes = schema.node_types()[node_type].nodes.clone();
            let count = nodes.end - nodes.start;
            let source = match choice {
                FeatureChoice::Array(key) => of_array(dataset, key, count, config)?,
                FeatureChoice::Path(path) => of_path(path, count, config)?,
            };
            parts.push(Part { nodes, node_type, source });
        }
        parts.sort_by_key(|part| part.node_type);
        Ok((!parts.is_empty()).then_some(Self { parts }))
    }

    /// The rows of the nodes of a graph of one type.
    pub fn of_one(source: RowSource) -> Self {
        Self { parts: vec![Part { nodes: 0..source.rows, node_type: 0, source }] }
    }

    /// By node type, in the order of global ids.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The rows of a node type, if it has features.
    pub fn of_type(&self, node_type: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.node_type == node_type)
    }

    /// Number of rows of all types.
    pub fn num_rows(&self) -> u64 {
        self.parts.iter().map(|part| part.source.rows).sum()
    }

    /// Memory of a slot that holds a row of any type.
    pub fn slot_bytes(&self) -> Bytes {
        let of = |part: &Part| RowArena::slot_bytes(part.source.row_bytes() as usize);
        self.parts.iter().map(of).max().unwrap_or_default()
    }

    /// Bytes of the rows of `nodes`, ascending, after conversion to float32.
    pub fn delivered_bytes(&self, nodes: &[u64]) -> u64 {
        let of = |part: &Part| part.source.width * within(nodes, &part.nodes).len();
        4 * self.parts.iter().map(of).sum::<usize>() as u64
    }

    /// Memory of the tables that describe the rows.
    pub fn memory(&self) -> Bytes {
        Bytes(self.parts.iter().map(|part| part.source.memory().0).sum())
    }

    /// The global ids with rows.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        self.parts.iter().map(|part| part.nodes.clone()).collect()
    }

    /// The position of the rows in their files.
    ///
    /// # Errors
    /// A file is missing.
    pub fn planned(&self) -> Result<Vec<PlannedPart>> {
        let planned = self.parts.iter().map(|Part { nodes, source, .. }| {
            let file = std::fs::metadata(&source.path)
                .with_context(|| format!("feature array `{}`", source.path.display()))?;
            let layout = source.layout(file.len());
            Ok(PlannedPart { nodes: nodes.clone(), layout, places: source.places.clone() })
        });
        planned.collect()
    }
}

/// Whether one of `ranges`, ascending, contains `row`.
pub fn covers(ranges: &[Range<u64>], row: u64) -> bool {
    ranges[..ranges.partition_point(|range| range.start <= row)]
        .last()
        .is_some_and(|range| row < range.end)
}

/// Where the elements of `rows`, ascending, that are in `range` begin and end.
pub fn within(rows: &[u64], range: &Range<u64>) -> Range<usize> {
    let start = rows.partition_point(|&row| row < range.start);
    start..start + rows[start..].partition_point(|&row| row < range.end)
}

impl PlannedPart {
    /// The reads for those of the rows `missed`, ascending, that belong to this part, and their
    /// device time in seconds.
    pub fn reads(
        &self,
        missed: &[u64],
        cost: &CostModel,
        max_read: Bytes,
    ) -> (Vec<PlannedRead>, f64) {
        let own = &missed[within(missed, &self.nodes)];
        let mut rows: Vec<u64> = own.iter().map(|row| row - self.nodes.start).collect();
        if let Some(places) = &self.places {
            rows.iter_mut().for_each(|row| *row = places.of(*row));
            rows.sort_unstable();
        }
        let plan = plan_rows(&rows, self.layout, cost, max_read);
        let seconds = cost.seconds_of(&plan.reads, self.layout.file_len);
        (plan.reads, seconds)
    }
}

fn of_path(path: &Path, nodes: u64, config: &LoaderConfig) -> Result<RowSource> {
    if config.precision == Precision::Int8 {
        let text = format!("features `{}`: a file has no int8 layout", path.display());
        return Err(Error::invalid(text).hint("name an array of the data set, or no precision"));
    }
    RowSource::of_npy(path, nodes)
}

/// The rows of an array, or of one of its layouts if one fits.
///
/// A memory server has only the rows of the array, not of layouts.
fn of_array(dataset: &DataSet, key: &str, nodes: u64, config: &LoaderConfig) -> Result<RowSource> {
    let array = dataset.array(key)?;
    if !matches!(KeyGroup::of(&array.key), KeyGroup::Node { .. }) {
        return Err(Error::invalid(format!("feature array `{key}`: expected an array of nodes")));
    }
    let context = || format!("feature array `{key}`");
    let source = RowSource::of_array(&array, nodes).with_context(context)?;
    if config.far.is_some() {
        return match config.precision {
            Precision::Exact => Ok(source),
            Precision::Int8 => Err(Error::new(
                ErrorKind::Unsupported,
                "a memory server has no int8 rows".to_owned(),
            )
            .hint("leave out the memory server, or the precision")),
        };
    }
    let free = Bytes(config.memory.0.saturating_sub(config.reserved.0));
    match choose(dataset, key, config.precision, free).with_context(context)?.layout {
        Some(layout) => RowSource::of_layout(dataset, &layout).with_context(context),
        None => Ok(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_covered_by_the_range_that_has_it() {
        let ranges = [2..5, 7..7, 9..10];
        let covered: Vec<u64> = (0..12).filter(|&row| covers(&ranges, row)).collect();
        assert_eq!(covered, [2, 3, 4, 9]);
        assert!(!covers(&[], 0));
    }

    #[test]
    fn rows_within_a_range_are_one_run() {
        let rows = [1, 4, 5, 9];
        assert_eq!(within(&rows, &(2..6)), 1..3);
        assert_eq!(within(&rows, &(6..9)), 3..3);
        assert_eq!(within(&rows, &(0..10)), 0..4);
    }
}
