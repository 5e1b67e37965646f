//! The grid of a data set, with the requested edge types and weights.

use outercore_core::{Error, ErrorKind, Result};
use outercore_grid::{BuildOptions, Grid, GridSource, rebuild_command};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_store::editor::is_served;

use crate::config::RunConfig;
use crate::stream_run::OnProgress;

/// The grid of a data set with the requested arcs and weights, built if allowed; and the data set
/// in the state that the grid belongs to.
pub(crate) fn open_grid(
    data_set: &DataSet,
    algorithm: &str,
    weights: Option<&str>,
    config: &RunConfig,
    on_progress: OnProgress<'_>,
) -> Result<(DataSet, Grid)> {
    let source = GridSource::of(data_set, config.relation.as_deref())?;
    if let Some(name) = weights
        && !data_set.has_array(&source.edge_array(name)?)
    {
        return Err(source.no_array(data_set, name));
    }
    let refused = match Grid::open(data_set) {
        Ok(grid) => {
            let checked = check_grid(data_set, &grid, algorithm, weights, config);
            // Negative weights stay negative however often the grid is built, so building again
            // does not help.
            let as_asked = grid.source().relation() == source.relation()
                && (weights.is_none() || grid.header().weights.as_deref() == weights);
            match checked {
                Ok(()) => return Ok((data_set.clone(), grid)),
                Err(error) if as_asked => return Err(error),
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    if !config.build || !matches!(refused.kind(), ErrorKind::NotFound | ErrorKind::Invalid) {
        return Err(refused);
    }
    let options = BuildOptions {
        memory: config.memory,
        threads: config.threads,
        relation: config.relation.clone(),
        weights: weights.map(str::to_owned),
        overwrite: true,
        ..BuildOptions::default()
    };
    let now = match outercore_grid::build(&RealDisk, data_set, &options, on_progress) {
        Ok(_) => Some(data_set.reopen()?),
        // Only the server may change the data set.
        Err(_) if is_served(data_set)? => None,
        Err(error) => return Err(error),
    };
    let data_set = match now {
        Some(now) if data_set.is_extended_by(&now) => now,
        // The opened data set is no longer the current state: build its grid in a private copy.
        _ => {
            let copy = data_set.linked()?;
            outercore_grid::build(&RealDisk, &copy, &options, on_progress)?;
            copy.reopen()?
        }
    };
    let grid = Grid::open(&data_set)?;
    check_grid(&data_set, &grid, algorithm, weights, config)?;
    Ok((data_set, grid))
}

/// Checks that the grid has the requested arcs and weights, and that they can be used.
pub(crate) fn check_grid(
    data_set: &DataSet,
    grid: &Grid,
    algorithm: &str,
    weights: Option<&str>,
    config: &RunConfig,
) -> Result<()> {
    grid.check_relation(data_set, config.relation.as_deref())?;
    check_weights(data_set, grid, algorithm, weights)
}

/// Checks that the grid has the requested weights, and that they can be used.
fn check_weights(
    data_set: &DataSet,
    grid: &Grid,
    algorithm: &str,
    weights: Option<&str>,
) -> Result<()> {
    let Some(name) = weights else { return Ok(()) };
    if grid.header().weights.as_deref() != Some(name) {
        let root = data_set.root();
        let command = rebuild_command(data_set, grid.source().relation(), Some(name));
        let text = format!("the grid of `{}` is without the weights `{name}`", root.display());
        return Err(Error::invalid(text).hint(format!("run `{command}`")));
    }
    match grid.header().least_weight {
        Some(least) if least < 0.0 && algorithm != "a stream" => Err(Error::invalid(format!(
            "{algorithm}: weights go down to {}, expected 0 or more",
            shown(least)
        ))),
        Some(0.0) if algorithm == "betweenness" => Err(Error::invalid(
            "betweenness: weights go down to 0, expected above 0: ways in circles of length 0 are \
             without number",
        )),
        _ => Ok(()),
    }
}

/// A weight as text for messages.
fn shown(weight: f64) -> String {
    if weight.abs() < 1e-4 { format!("{weight:e}") } else { weight.to_string() }
}
