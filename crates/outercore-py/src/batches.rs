//! Whole batches of models whose scores come from products on NumPy's memory.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use outercore_core::{Error, Result};
use outercore_kernels::{
    Askers, Batch, Chunk, Model, Objective, Occasion, Population, Questions, Size, Table,
    Workspace, divide, draw, train_batch,
};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::kernels::{LossOptions, loss, step};

/// Places of triples; triples, candidates and kinds of each chunk; candidates, their bias by kind,
/// and the kinds of the triples.
type Asked<'py> = (
    PyReadonlyArray1<'py, i64>,
    Vec<(usize, usize, usize)>,
    PyReadonlyArray1<'py, i64>,
    Option<PyReadonlyArray1<'py, f32>>,
    Option<PyReadonlyArray1<'py, i64>>,
);
/// Rows and the state of their optimiser.
type Rows<'py> = (PyReadwriteArray2<'py, f32>, PyReadwriteArray2<'py, f32>);
/// Rows and their bias by kind.
type Negatives<'py> = (Bound<'py, PyArray1<i64>>, Option<Bound<'py, PyArray2<f32>>>);
/// Numbers of some triples, and numbers of their kinds.
type Divided<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);
/// How much each place counts, and the sums of these.
type Weights<'py> = (PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, f64>);

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BatchTrainer>()?;
    module.add_function(wrap_pyfunction!(divide_triples, module)?)?;
    module.add_function(wrap_pyfunction!(draw_negatives, module)?)
}

/// The triples [triples, 3] at some places by who draws negatives for their anchors, which are in
/// `column`; `starts` [ranges] ascend, `owners` [2, ranges] are the group of each and its kind there.
#[pyfunction]
fn divide_triples<'py>(
    py: Python<'py>,
    triples: PyReadonlyArray2<'py, i64>,
    column: usize,
    places: PyReadonlyArray1<'py, i64>,
    starts: PyReadonlyArray1<'py, i64>,
    owners: PyReadonlyArray2<'py, i64>,
    groups: usize,
) -> PyResult<Vec<Divided<'py>>> {
    let (width, of_owners) = (triples.shape()[1], owners.shape().to_vec());
    let (starts, owners) = (starts.as_slice()?, owners.as_slice()?);
    if width != 3 || of_owners != [2, starts.len()] {
        let what =
            format!("negatives: triples of {width}, owners {of_owners:?} of {}", starts.len());
        return Err(to_python(Error::invalid(what)));
    }
    let (of_range, kinds) = owners.split_at(starts.len());
    let askers = Askers { starts, groups: of_range, kinds };
    let (triples, places) = (triples.as_slice()?, places.as_slice()?);
    let found = py.detach(|| divide(triples, column, places, askers, groups));
    let found = found.map_err(to_python)?.into_iter();
    Ok(found.map(|(some, kinds)| (some.into_pyarray(py), kinds.into_pyarray(py))).collect())
}

/// Draws rows of some ranges, `counts` evenly (but for the `shares` of the ranges) and by weight;
/// `(seed, epoch, pool, batch, number)` says for what. `logs` [kinds, ranges] are added to the bias
/// of each kind.
#[pyfunction]
#[pyo3(signature = (ranges, shares, weights, counts, occasion, logs, *, biased))]
#[allow(clippy::too_many_arguments)]
fn draw_negatives<'py>(
    py: Python<'py>,
    ranges: Vec<(i64, i64)>,
    shares: Option<Vec<f64>>,
    weights: Option<Weights<'py>>,
    counts: (usize, usize),
    occasion: (u64, u64, u32, u32, u32),
    logs: Option<PyReadonlyArray2<'py, f32>>,
    biased: bool,
) -> PyResult<Negatives<'py>> {
    let weights = match &weights {
        Some((each, sums)) => Some((each.as_slice()?, sums.as_slice()?)),
        None => None,
    };
    let (even, weighted) = counts;
    let from = Population { ranges: &ranges, shares: shares.as_deref(), weights, even, weighted };
    let (seed, epoch, pool, batch, number) = occasion;
    let occasion = Occasion { seed, epoch, pool, batch, number };
    let kinds = logs.as_ref().map_or(1, |logs| logs.shape()[0]);
    let logs = match &logs {
        Some(logs) if logs.shape()[1] != ranges.len() => {
            let (shape, count) = (logs.shape(), ranges.len());
            let what = format!("negatives: logarithms {shape:?} of {count} ranges");
            return Err(to_python(Error::invalid(what)));
        }
        Some(logs) => Some(logs.as_slice()?),
        None => None,
    };
    let drawn = || -> Result<(Vec<i64>, Option<Vec<f32>>)> {
        let found = draw(from, occasion)?;
        let bias = match logs {
            Some(logs) => Some(found.bias_by_kind(logs, ranges.len(), biased)?),
            None => biased.then_some(found.bias),
        };
        Ok((found.rows, bias))
    };
    let (rows, bias) = py.detach(drawn).map_err(to_python)?;
    let shape = [kinds, rows.len()];
    let bias = bias.map(|bias| bias.into_pyarray(py).reshape(shape)).transpose()?;
    Ok((rows.into_pyarray(py), bias))
}

/// Trains batches of one model; keeps memory from one to the next.
#[pyclass(module = "outercore._core")]
pub struct BatchTrainer {
    objective: Objective,
    workspace: Workspace,
}

#[pymethods]
impl BatchTrainer {
    #[new]
    #[pyo3(signature = (model, objective, size, strengths, reverse, steps, *, hides_own))]
    fn new(
        model: &str,
        objective: LossOptions<'_>,
        size: Option<&str>,
        strengths: (f32, f32),
        reverse: Option<usize>,
        steps: (&str, &str),
        hides_own: bool,
    ) -> PyResult<Self> {
        let objective = || {
            Ok(Objective {
                model: known(model)?,
                loss: loss(objective)?,
                size: size.map(of_size).transpose()?,
                strengths,
                reverse,
                hides_own,
                steps: (step(steps.0)?, step(steps.1)?),
            })
        };
        Ok(Self { objective: objective().map_err(to_python)?, workspace: Workspace::default() })
    }

    /// The loss of a batch, whose rows have moved; `None` where something is not finite.
    #[pyo3(signature = (
        entities, relations, triples, weights, unit, tails, heads, rates, threads
    ))]
    #[allow(clippy::too_many_arguments)]
    fn train(
        &mut self,
        py: Python<'_>,
        entities: Rows<'_>,
        relations: Rows<'_>,
        triples: PyReadonlyArray2<'_, i64>,
        weights: Option<PyReadonlyArray1<'_, f32>>,
        unit: f32,
        tails: Asked<'_>,
        heads: Asked<'_>,
        rates: (f32, f32),
        threads: usize,
    ) -> PyResult<Option<f32>> {
        let (mut entities, mut relations) = (entities, relations);
        let chunks = [chunks(&tails.1), chunks(&heads.1)];
        let batch = Batch {
            triples: triples.as_slice()?,
            weights: weights.as_ref().map(|weights| weights.as_slice()).transpose()?,
            unit,
            questions: [questions(&tails, &chunks[0])?, questions(&heads, &chunks[1])?],
            rates,
        };
        let (entities, relations) = (table(&mut entities)?, table(&mut relations)?);
        let (objective, workspace) = (&self.objective, &mut self.workspace);
        py.detach(|| train_batch(objective, entities, relations, &batch, workspace, threads))
            .map_err(to_python)
    }
}

fn known(name: &str) -> Result<Model> {
    match name {
        "dot" => Ok(Model::Dot),
        "distmult" => Ok(Model::DistMult),
        "complex" => Ok(Model::ComplEx),
        "simple" => Ok(Model::SimplE),
        "transe" => Ok(Model::TransE),
        _ => Err(Error::invalid(format!("the core trains no model called `{name}`"))),
    }
}

fn of_size(name: &str) -> Result<Size> {
    match name {
        "cubes" => Ok(Size::Cubes),
        "cubes-of-moduli" => Ok(Size::CubesOfModuli),
        "squares" => Ok(Size::Squares),
        _ => Err(Error::invalid(format!("no size is called `{name}`"))),
    }
}

fn chunks(sizes: &[(usize, usize, usize)]) -> Vec<Chunk> {
    let chunk = |&(triples, candidates, kinds)| Chunk { triples, candidates, kinds };
    sizes.iter().map(chunk).collect()
}

fn questions<'a>(asked: &'a Asked<'_>, chunks: &'a [Chunk]) -> PyResult<Questions<'a>> {
    let (places, _, candidates, bias, kinds) = asked;
    Ok(Questions {
        places: places.as_slice()?,
        chunks,
        candidates: candidates.as_slice()?,
        bias: bias.as_ref().map(|bias| bias.as_slice()).transpose()?,
        kinds: kinds.as_ref().map(|kinds| kinds.as_slice()).transpose()?,
    })
}

fn table<'a>((rows, state): &'a mut Rows<'_>) -> PyResult<Table<'a>> {
    let width = rows.shape()[1];
    Ok(Table { rows: rows.as_slice_mut()?, state: state.as_slice_mut()?, width })
}
