//! True answers to questions.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use outercore_core::Result;
use outercore_embed::{Asked, KnownAnswers as Known};
use pyo3::prelude::*;

use crate::errors::to_python;

/// Columns of triples, int64 [n, 3]: two that are asked with, and the answer. Without the second,
/// it does not count.
type Columns = (usize, Option<usize>, usize);

/// The entities that complete each of some questions to a triple; `outercore_embed::KnownAnswers`
/// says how.
#[pyclass(module = "outercore._core", frozen)]
pub struct KnownAnswers {
    known: Mutex<Known>,
    columns: Columns,
}

type Pairs<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

#[pymethods]
impl KnownAnswers {
    /// None yet, to the questions that the triples ask, whose parts are below `first` and `second`.
    #[new]
    fn new(
        triples: PyReadonlyArray2<'_, i64>,
        columns: Columns,
        first: u64,
        second: u64,
    ) -> PyResult<Self> {
        let asked = asked(&triples, columns);
        let known = Known::new(asked.map(|[one, other, _]| [one, other]), first, second);
        Ok(Self { known: Mutex::new(known.map_err(to_python)?), columns })
    }

    /// Counts the answers among some triples.
    fn count(&self, triples: PyReadonlyArray2<'_, i64>) {
        self.lock().count(asked(&triples, self.columns));
    }

    /// How many answers were counted; one that stands twice is two.
    #[getter]
    fn counted(&self) -> u64 {
        self.lock().counted()
    }

    /// Keeps the answers among some triples, once all of them are counted.
    fn add(&self, triples: PyReadonlyArray2<'_, i64>) {
        self.lock().add(asked(&triples, self.columns));
    }

    /// Puts the answers in order, and those that stand twice once.
    fn finish(&self) {
        self.lock().finish();
    }

    /// Pairs of a question of these triples, by number, and an answer.
    fn of<'py>(&self, py: Python<'py>, triples: PyReadonlyArray2<'py, i64>) -> Pairs<'py> {
        let known = self.lock();
        let (mut questions, mut answers) = (Vec::new(), Vec::new());
        for (number, [one, other, _]) in asked(&triples, self.columns).enumerate() {
            let found = known.of(one, other);
            questions.resize(questions.len() + found.len(), number as i64);
            answers.extend(found);
        }
        (questions.into_pyarray(py), answers.into_pyarray(py))
    }

    /// Pairs of a question of these triples from number `first` on and a place of a candidate that
    /// answers it, and the number of the next question. Ends once it has `most` pairs, with the last
    /// question's all included. `candidates` ascend.
    fn among<'py>(
        &self,
        py: Python<'py>,
        triples: PyReadonlyArray2<'py, i64>,
        candidates: PyReadonlyArray1<'py, i64>,
        first: usize,
        most: usize,
    ) -> PyResult<(Pairs<'py>, usize)> {
        let found = self.find(&triples, candidates.as_slice()?, first, most);
        let (pairs, next) = found.map_err(to_python)?;
        let (rows, places): (Vec<i64>, Vec<i64>) =
            pairs.into_iter().map(|[row, place]| (row + first as i64, place)).unzip();
        Ok(((rows.into_pyarray(py), places.into_pyarray(py)), next))
    }
}

impl KnownAnswers {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(
        &self,
        triples: &PyReadonlyArray2<'_, i64>,
        candidates: &[i64],
        first: usize,
        most: usize,
    ) -> Result<(Vec<[i64; 2]>, usize)> {
        let mut pairs = Vec::new();
        let questions =
            asked(triples, self.columns).skip(first).map(|[one, other, _]| [one, other]);
        let count = self.lock().among(questions, candidates, most, &mut pairs);
        Ok((pairs, first + count))
    }
}

/// Triples as questions.
fn asked<'a>(
    triples: &'a PyReadonlyArray2<'_, i64>,
    (first, second, answer): Columns,
) -> impl Iterator<Item = Asked> + 'a {
    let rows = triples.as_array();
    (0..rows.nrows()).map(move |row| {
        let of = |column: usize| rows[[row, column]];
        [of(first), second.map_or(0, of), of(answer)]
    })
}
