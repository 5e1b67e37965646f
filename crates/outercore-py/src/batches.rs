//! Training of whole batches on NumPy's memory.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use outercore_core::{Error, Result, count_pieces};
use outercore_kernels::{
    Anchors, Askers, Batch, Comparisons, Known, Model, Norm, Objective, Occasion, Population,
    Shared, Size, Table, Workspace, alike, in_pool, train_batch,
};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::kernels::{LossOptions, loss, step};
use crate::rows::{rows, rows_mut};

/// Places of triples; the numbers of triples, candidates and kinds of each chunk; candidates, their
/// bias by kind, and the kinds of the triples.
type AskedOf<'py> = (
    Bound<'py, PyArray1<i64>>,
    Vec<(usize, usize, usize)>,
    Bound<'py, PyArray1<i64>>,
    Option<Bound<'py, PyArray1<f32>>>,
    Option<Bound<'py, PyArray1<i64>>>,
);
/// Rows and their optimiser state.
type Rows<'py> = (PyReadwriteArray2<'py, f32>, PyReadwriteArray2<'py, f32>);
/// The weight of each place, and the running sums of these weights.
type Weights<'py> = (PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, f64>);
/// The same, as references to Python's arrays, which are too large to copy.
type HeldWeights = (Py<PyArray1<f64>>, Py<PyArray1<f64>>);
/// Seed, epoch, pool and batch.
type At = (u64, u64, u32, u32);

/// Adds the classes and the function to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BatchTrainer>()?;
    module.add_class::<PoolComparisons>()?;
    module.add_function(wrap_pyfunction!(alike_anchors, module)?)?;
    module.add_function(wrap_pyfunction!(pieces_of, module)?)
}

/// Ranges with answers, and the probability of an answer in each, `[kinds, answers]`.
type AlikeOf<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray2<f64>>);
/// Group and kind of each range `[2, ranges]`, and the groups.
type GroupsOf<'py> = (Bound<'py, PyArray2<i64>>, Vec<AlikeOf<'py>>);

/// Groups the ranges whose anchors are compared with the same entities.
#[pyfunction]
#[pyo3(signature = (likely, *, weighs))]
fn alike_anchors<'py>(
    py: Python<'py>,
    likely: PyReadonlyArray2<'py, f64>,
    weighs: bool,
) -> PyResult<GroupsOf<'py>> {
    let ranges = likely.shape()[0];
    let found = alike(rows(&likely)?, ranges, weighs).map_err(to_python)?;
    let owners = [found.group_of, found.kind_of].concat();
    let groups = found.groups.into_iter().map(|one| {
        let (answers, kinds) = (one.answers.len(), one.shares.len() / one.answers.len());
        let shares = one.shares.into_pyarray(py).reshape([kinds, answers])?;
        Ok((one.answers.into_pyarray(py), shares))
    });
    Ok((owners.into_pyarray(py).reshape([2, ranges])?, groups.collect::<PyResult<_>>()?))
}

/// Number of pieces of about `size` that `count` places are divided into; `count` is at least 1.
#[pyfunction]
#[pyo3(name = "count_pieces")]
fn pieces_of(count: usize, size: usize) -> usize {
    count_pieces(count, size)
}

/// Ranges of rows, the probability of each, weights of all places, and logarithms
/// `[kinds, ranges]`.
type SharedOf<'py> =
    (Vec<(i64, i64)>, Option<Vec<f64>>, Option<HeldWeights>, Option<PyReadonlyArray2<'py, f32>>);
/// First rows of ranges, ascending; group and kind of each, `[2, ranges]`; the draws of each group.
type SideOf<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray2<'py, i64>, Vec<SharedOf<'py>>);

/// The candidates that the triples of a pool are compared with.
#[pyclass(module = "outercore._core", frozen)]
pub struct PoolComparisons {
    sides: [Side; 2],
    chunk: usize,
    counts: (usize, usize),
    every: bool,
    biased: bool,
}

struct Side {
    starts: Vec<i64>,
    groups: Vec<i64>,
    kinds: Vec<i64>,
    shared: Vec<SharedRows>,
}

struct SharedRows {
    ranges: Vec<(i64, i64)>,
    shares: Option<Vec<f64>>,
    weights: Option<HeldWeights>,
    logs: Option<Vec<f32>>,
}

#[pymethods]
impl PoolComparisons {
    #[new]
    #[pyo3(signature = (tails, heads, chunk, counts, *, every, biased))]
    fn new(
        tails: SideOf<'_>,
        heads: SideOf<'_>,
        chunk: usize,
        counts: (usize, usize),
        every: bool,
        biased: bool,
    ) -> PyResult<Self> {
        let sides = [side(tails).map_err(to_python)?, side(heads).map_err(to_python)?];
        Ok(Self { sides, chunk, counts, every, biased })
    }

    /// Divides the triples at `places` into chunks and draws negatives for each, for tails and for
    /// heads.
    fn ask<'py>(
        &self,
        py: Python<'py>,
        triples: PyReadonlyArray2<'py, i64>,
        places: PyReadonlyArray1<'py, i64>,
        at: At,
        threads: usize,
    ) -> PyResult<(AskedOf<'py>, AskedOf<'py>)> {
        let (triples, places) = (of_triples(&triples)?, places.as_slice()?);
        let asked = self.with(py, |comparisons| {
            py.detach(|| comparisons.ask(triples, places, occasion(at), threads)).map_err(to_python)
        })?;
        let [tails, heads] = asked.map(|asked| {
            let sizes = asked.chunks.iter().map(|one| (one.triples, one.candidates, one.kinds));
            (
                asked.places.into_pyarray(py),
                sizes.collect(),
                asked.candidates.into_pyarray(py),
                asked.bias.map(|bias| bias.into_pyarray(py)),
                asked.kinds.map(|kinds| kinds.into_pyarray(py)),
            )
        });
        Ok((tails, heads))
    }
}

impl PoolComparisons {
    /// Calls a function with the data of this object and the weights that Python holds.
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Comparisons<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let held = [0, 1].map(|side: usize| {
            let weights = self.sides[side].shared.iter().map(|shared| shared.weights.as_ref());
            let read =
                |both: &HeldWeights| (both.0.bind(py).readonly(), both.1.bind(py).readonly());
            weights.map(|both| both.map(read)).collect::<Vec<_>>()
        });
        let weights = [slices(&held[0])?, slices(&held[1])?];
        let (even, weighted) = self.counts;
        let sides = [0, 1].map(|number| {
            let Side { starts, groups, kinds, shared } = &self.sides[number];
            let shared = shared.iter().zip(&weights[number]).map(|(shared, &weights)| Shared {
                from: Population {
                    ranges: &shared.ranges,
                    shares: shared.shares.as_deref(),
                    weights,
                    even,
                    weighted,
                },
                logs: shared.logs.as_deref(),
            });
            Anchors { askers: Askers { starts, groups, kinds }, shared: shared.collect() }
        });
        let (every, biased) = (self.every, self.biased);
        work(&Comparisons { sides, chunk: self.chunk, every, biased })
    }
}

/// Weights and their running sums, if there are any.
type Slices<'a> = Option<(&'a [f64], &'a [f64])>;

fn slices<'a>(held: &'a [Option<Weights<'_>>]) -> PyResult<Vec<Slices<'a>>> {
    let slices = held.iter().map(|held| match held {
        Some((each, sums)) => Ok(Some((each.as_slice()?, sums.as_slice()?))),
        None => Ok(None),
    });
    slices.collect()
}

fn side((starts, owners, shared): SideOf<'_>) -> Result<Side> {
    let starts: Vec<i64> = starts.as_array().to_vec();
    let owners = owners.as_array();
    if owners.shape() != [2, starts.len()] {
        let (found, count) = (owners.shape(), starts.len());
        return Err(Error::invalid(format!("negatives: owners {found:?} of {count} ranges")));
    }
    let shared = shared.into_iter().map(|(ranges, shares, weights, logs)| {
        if let Some(logs) = &logs
            && logs.shape()[1] != ranges.len()
        {
            let (found, count) = (logs.shape(), ranges.len());
            let text = format!("negatives: logarithms {found:?} of {count} ranges");
            return Err(Error::invalid(text));
        }
        let logs = logs.map(|logs| logs.as_array().iter().copied().collect());
        Ok(SharedRows { ranges, shares, weights, logs })
    });
    Ok(Side {
        groups: owners.row(0).to_vec(),
        kinds: owners.row(1).to_vec(),
        shared: shared.collect::<Result<_>>()?,
        starts,
    })
}

/// The triples as one slice.
fn of_triples<'a>(triples: &'a PyReadonlyArray2<'_, i64>) -> PyResult<&'a [i64]> {
    if triples.shape()[1] != 3 {
        let found = triples.shape();
        let text = format!("triples: expected [triples, 3], found {found:?}");
        return Err(to_python(Error::invalid(text)));
    }
    rows(triples)
}

fn occasion((seed, epoch, pool, batch): At) -> Occasion {
    Occasion { seed, epoch, pool, batch, number: 0 }
}

/// Trains batches of one model; reuses its memory between batches.
#[pyclass(module = "outercore._core")]
pub struct BatchTrainer {
    objective: Objective,
    workspace: Workspace,
    /// The known triples of the current pool, if they are to be ignored as negatives.
    known: Option<Known>,
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
        let objective = objective().map_err(to_python)?;
        Ok(Self { objective, workspace: Workspace::default(), known: None })
    }

    /// From now on, candidates that form one of `triples` do not count; give the triples of the
    /// next pool.
    fn know(
        &mut self,
        py: Python<'_>,
        triples: PyReadonlyArray2<'_, i64>,
        undirected: bool,
        threads: usize,
    ) -> PyResult<()> {
        // Free the old ones before the new ones are built.
        self.known = None;
        let triples = of_triples(&triples)?;
        let known = py.detach(|| in_pool(threads, || Known::new(triples, undirected, threads)));
        self.known = Some(known.map_err(to_python)?);
        Ok(())
    }

    /// Frees the memory of `know`.
    fn forget(&mut self) {
        self.known = None;
    }

    /// Trains the triples at `places` as a batch and updates their rows; returns the loss, or
    /// `None` if a value is not finite.
    #[pyo3(signature = (
        entities, relations, triples, weights, places, comparisons, at, unit, rates, threads
    ))]
    #[allow(clippy::too_many_arguments)]
    fn train(
        &mut self,
        py: Python<'_>,
        entities: Rows<'_>,
        relations: Rows<'_>,
        triples: PyReadonlyArray2<'_, i64>,
        weights: Option<PyReadonlyArray1<'_, f32>>,
        places: PyReadonlyArray1<'_, i64>,
        comparisons: &PoolComparisons,
        at: At,
        unit: f32,
        rates: (f32, f32),
        threads: usize,
    ) -> PyResult<Option<f32>> {
        let (mut entities, mut relations) = (entities, relations);
        let triples = of_triples(&triples)?;
        let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
        let places = places.as_slice()?;
        let (entities, relations) = (table(&mut entities)?, table(&mut relations)?);
        let Self { objective, workspace, known } = self;
        let known = known.as_ref();
        comparisons.with(py, |comparisons| {
            let step = || {
                let asked = comparisons.ask(triples, places, occasion(at), threads)?;
                let questions = [asked[0].questions(), asked[1].questions()];
                let batch = Batch { triples, weights, known, unit, questions, rates };
                train_batch(objective, entities, relations, &batch, workspace, threads)
            };
            py.detach(|| in_pool(threads, step)).map_err(to_python)
        })
    }
}

fn known(name: &str) -> Result<Model> {
    match name {
        "dot" => Ok(Model::Dot),
        "distmult" => Ok(Model::DistMult),
        "complex" => Ok(Model::ComplEx),
        "simple" => Ok(Model::SimplE),
        "transe-manhattan" => Ok(Model::TransE(Norm::Manhattan)),
        "transe-euclidean" => Ok(Model::TransE(Norm::Euclidean)),
        "rotate" => Ok(Model::RotatE),
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

fn table<'a>((table, state): &'a mut Rows<'_>) -> PyResult<Table<'a>> {
    let width = table.shape()[1];
    Ok(Table { rows: rows_mut(table)?, state: rows_mut(state)?, width })
}
