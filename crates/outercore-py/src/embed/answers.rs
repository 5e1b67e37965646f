//! True answers to questions.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use outercore_core::Result;
use outercore_embed::{Asked, KnownAnswers as Known};
use pyo3::prelude::*;

use crate::errors::to_python;

/// Columns of triples, int64 [n, 3]: the two known parts and the answer. Without the second part,
/// it does not count.
type Columns = (usize, Option<usize>, usize);

/// For each of a set of questions, the entities that complete it to a true triple; see
/// `outercore_embed::KnownAnswers`.
#[pyclass(module = "outercore._core", frozen)]
pub struct KnownAnswers {
    known: Mutex<Known>,
    columns: Columns,
}

type Pairs<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

#[pymethods]
impl KnownAnswers {
    /// No answers yet, for the questions of the triples. Their parts are below `first` and
    /// `second`.
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

    /// Counts the answers in a batch of triples.
    fn count(&self, triples: PyReadonlyArray2<'_, i64>) {
        self.lock().count(asked(&triples, self.columns));
    }

    /// Number of counted answers; repeated ones count each time.
    #[getter]
    fn counted(&self) -> u64 {
        self.lock().counted()
    }

    /// Stores the answers in a batch of triples, after all triples were counted.
    fn add(&self, triples: PyReadonlyArray2<'_, i64>) {
        self.lock().add(asked(&triples, self.columns));
    }

    /// Sorts the answers and removes duplicates.
    fn finish(&self) {
        self.lock().finish();
    }

    /// Pairs of question and answer, where a question is the index of its triple.
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

    /// Pairs of a question, starting with triple `first`, and the index of a candidate that answers
    /// it; also returns the index of the next question. Stops after the question that reaches
    /// `most` pairs. `candidates` must ascend.
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

/// Converts triples to questions.
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
