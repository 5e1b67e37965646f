//! Keeps an existing grid if it matches the options.

use outercore_core::{Error, Result};
use outercore_store::dataset::DataSet;

use super::encode::Written;
use super::input::Input;
use super::summary::summary;
use super::{BuildOptions, BuildSummary};
use crate::header::rebuild_command;
use crate::open::Grid;
use crate::shape::Order;

/// The summary of the existing grid.
///
/// # Errors
/// `Invalid` if it is stale or was built with other options.
pub(super) fn keep(data_set: &DataSet, options: &BuildOptions) -> Result<BuildSummary> {
    let grid = Grid::open(data_set)?;
    let (header, shape) = (grid.header(), grid.shape());
    let (root, relation) = (data_set.root(), options.relation.as_deref());
    grid.check_relation(data_set, relation)?;
    let other = |what: &str, found: &str, wanted: &str| {
        let text = format!("{what} {found}, expected {wanted}");
        Error::invalid(format!("the grid of `{}` has {text}", root.display()))
            .hint(format!("rebuild: `{}`", rebuild_command(data_set, relation, None)))
    };
    if let Some(wanted) = options.weights_name()
        && header.weights.as_deref() != Some(wanted)
    {
        let found = header.weights.as_deref().unwrap_or("none");
        return Err(other("weights", found, wanted));
    }
    if let Some(wanted) = options.order
        && shape.order != wanted
    {
        let name = |order: Order| format!("{order:?}").to_lowercase();
        return Err(other("order", &name(shape.order), &name(wanted)));
    }
    if let Some(wanted) = options.partition_log2
        && shape.partition_log2 != wanted
    {
        let found = shape.partition_log2.to_string();
        return Err(other("partition_log2", &found, &wanted.to_string()));
    }
    let input = Input::open(data_set, grid.source().clone(), header.weights.is_some())?;
    let blocks =
        grid.pieces().chunk_by(|a, b| (a.row_part, a.col_part) == (b.row_part, b.col_part));
    let written = Written {
        bytes: header.codec_bytes,
        edges: shape.edges,
        pieces: grid.pieces().len() as u64,
        blocks: blocks.count() as u64,
        least_weight: header.least_weight,
    };
    let weights = match header.weights.as_deref() {
        Some(name) => data_set.array(&grid.source().edge_array(name)?)?.data_len(),
        None => 0,
    };
    Ok(summary(shape, &written, input.bytes() + weights, 0))
}
