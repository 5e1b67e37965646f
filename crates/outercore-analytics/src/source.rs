//! The grid of a data set, with the weights asked for.

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::keys;
use outercore_grid::{BuildOptions, Grid};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;

use crate::config::RunConfig;
use crate::stream_run::OnProgress;

/// Whether there are edges at all.
pub(crate) fn check_graph(data_set: &DataSet) -> Result<()> {
    data_set.require_one_type("a graph algorithm")?;
    if data_set.manifest().edge_types.contains_key(keys::EDGE) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "data set `{}` has no edge type `{}`",
        data_set.root().display(),
        keys::EDGE
    )))
}

/// The grid of a data set with the weights asked for, built if it may be; and the data set as it is
/// then.
pub(crate) fn open_grid(
    data_set: &DataSet,
    algorithm: &str,
    weights: Option<&str>,
    config: &RunConfig,
    on_progress: OnProgress<'_>,
) -> Result<(DataSet, Grid)> {
    if let Some(name) = weights {
        data_set
            .array(&format!("edges/{}/{name}", keys::EDGE))
            .map_err(|_| no_weights(data_set, name))?;
    }
    let refused = match Grid::open(data_set) {
        Ok(grid) => {
            let checked = check_weights(data_set, &grid, algorithm, weights);
            // Weights that are negative stay so, however often the grid is built.
            let as_asked = weights.is_none() || grid.header().weights.as_deref() == weights;
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
        weights: weights.map(str::to_owned),
        overwrite: true,
        ..BuildOptions::default()
    };
    outercore_grid::build(&RealDisk, data_set, &options, on_progress)?;
    let data_set = DataSet::open(data_set.root())?;
    let grid = Grid::open(&data_set)?;
    check_weights(&data_set, &grid, algorithm, weights)?;
    Ok((data_set, grid))
}

fn no_weights(data_set: &DataSet, name: &str) -> Error {
    let prefix = format!("edges/{}/", keys::EDGE);
    let own = [keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS];
    let arrays = data_set.manifest().arrays.keys().filter(|key| !own.contains(&key.as_str()));
    let there: Vec<&str> = arrays.filter_map(|key| key.strip_prefix(&prefix)).collect();
    let error =
        Error::new(ErrorKind::NotFound, format!("edge array `{name}` is not in the data set"));
    if there.is_empty() {
        error.hint("add one with `Graph.add_edge_array` or `outercore import --weight`")
    } else {
        error.hint(format!("it has {}", there.join(", ")))
    }
}

/// Whether the grid has the weights asked for, and whether they can be used.
pub(crate) fn check_weights(
    data_set: &DataSet,
    grid: &Grid,
    algorithm: &str,
    weights: Option<&str>,
) -> Result<()> {
    let Some(name) = weights else { return Ok(()) };
    if grid.header().weights.as_deref() != Some(name) {
        let root = data_set.root().display();
        return Err(Error::invalid(format!(
            "the grid of `{root}` is without the weights `{name}`"
        ))
        .hint(format!("run `outercore grid {root} --weights {name} --overwrite`")));
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

/// A weight for people.
fn shown(weight: f64) -> String {
    if weight.abs() < 1e-4 { format!("{weight:e}") } else { weight.to_string() }
}
