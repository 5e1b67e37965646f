//! Analyses: algorithms over the whole graph that run in the background, one at a time.
//!
//! **Source** GLIST, table 3: `GraphAnalysis` and `GetAnalysisResult`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use axum::http::StatusCode;
use outercore_analytics::{Algorithm, Inputs, Outcome, ResultFile, RunConfig};
use outercore_core::{Error, ErrorKind, Result};
use outercore_store::dataset::DataSet;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::graph::Graph;
use crate::predictor::Failures;
use crate::refusal::Refusal;

/// Most analyses in the queue; more are refused.
const MOST_WAITING: usize = 8;

/// Most finished analyses that are kept with their results. The oldest are removed.
const MOST_ENDED: usize = 16;

/// State of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In the queue.
    Waiting,
    /// Running.
    Running,
    /// Finished with a result.
    Done,
    /// Finished without a result; `error` says why.
    Failed,
}

/// An analysis, as clients see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Analysis {
    /// Its id.
    id: u64,
    /// The algorithm with all its options.
    #[schema(value_type = Object)]
    request: Algorithm,
    state: State,
    /// LSN of the last update that the result includes.
    #[serde(skip_serializing_if = "Option::is_none")]
    lsn: Option<u64>,
    /// Progress of the phase that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    /// Duration in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Facts about the result, such as the number of iterations or components.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    facts: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Progress of one phase.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Progress {
    phase: String,
    done: u64,
    total: u64,
    unit: String,
}

struct Job {
    shown: Analysis,
    stop: Arc<AtomicBool>,
    values: Option<ResultFile>,
}

#[derive(Default)]
struct Jobs {
    last: u64,
    all: BTreeMap<u64, Job>,
    is_closed: bool,
}

impl Jobs {
    fn count(&self, state: State) -> usize {
        self.all.values().filter(|job| job.shown.state == state).count()
    }

    /// Removes the oldest finished analyses beyond [`MOST_ENDED`].
    fn remove_old(&mut self) {
        let has_ended = |job: &Job| matches!(job.shown.state, State::Done | State::Failed);
        let ended: Vec<u64> =
            self.all.iter().filter(|(_, job)| has_ended(job)).map(|(&id, _)| id).collect();
        for id in ended.iter().take(ended.len().saturating_sub(MOST_ENDED)) {
            self.all.remove(id);
        }
    }
}

/// All analyses of a server.
#[derive(Clone, Default)]
pub struct Analyses {
    jobs: Arc<(Mutex<Jobs>, Condvar)>,
}

/// The thread that computes analyses. It ends when this is dropped, so that a server that fails to
/// start does not hold its data set.
pub struct Analyst {
    analyses: Analyses,
    thread: Option<JoinHandle<()>>,
}

impl Analyst {
    /// Starts the thread; each analysis runs with `config`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(graph: Arc<Graph>, config: RunConfig, failures: Failures) -> Result<Self> {
        if let Graph::Live(_) = &*graph {
            // Files that a killed process left and that cannot be removed only take space, so an
            // error is ignored.
            let _ = outercore_store::remove_left(graph.view().data_set().root());
        }
        let analyses = Analyses::default();
        let own = analyses.clone();
        let thread = std::thread::Builder::new()
            .name("outercore-analyse".into())
            .spawn(move || own.run(&graph, &config, &failures))?;
        Ok(Self { analyses, thread: Some(thread) })
    }

    /// The analyses, for handlers.
    pub fn analyses(&self) -> &Analyses {
        &self.analyses
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Cancels all analyses and waits for the thread.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn join(mut self) -> Result<()> {
        self.analyses.close();
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        ended.map_err(|_| Error::internal("the analysing thread panicked"))
    }
}

impl Drop for Analyst {
    fn drop(&mut self) {
        self.analyses.close();
        // The thread has already printed the panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Analyses {
    /// Computes the analyses one after the other until the queue is closed.
    fn run(&self, graph: &Graph, config: &RunConfig, failures: &Failures) {
        while let Some((id, algorithm, stop)) = self.next() {
            let began = Instant::now();
            let done = compute(graph, &algorithm, config, &mut |phase, done, total, unit| {
                let (phase, unit) = (phase.to_owned(), unit.to_owned());
                self.note(id, Progress { phase, done, total, unit });
                match stop.load(Ordering::Relaxed) {
                    true => Err(Error::new(ErrorKind::Interrupted, "cancelled")),
                    false => Ok(()),
                }
            });
            self.end(id, began, done, failures);
        }
    }

    /// Adds an analysis to the queue and returns it in its waiting state.
    ///
    /// # Errors
    /// The queue is full, or the server is stopping.
    pub fn submit(&self, request: Algorithm) -> Result<Analysis, Refusal> {
        let mut jobs = self.jobs();
        if jobs.is_closed {
            return Err(Refusal::stopping());
        }
        if jobs.count(State::Waiting) >= MOST_WAITING {
            return Err(Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many analyses are waiting; ask again later",
            ));
        }
        jobs.last += 1;
        let shown = Analysis {
            id: jobs.last,
            request,
            state: State::Waiting,
            lsn: None,
            progress: None,
            seconds: None,
            facts: Map::new(),
            error: None,
        };
        let job = Job { shown: shown.clone(), stop: Arc::default(), values: None };
        jobs.all.insert(shown.id, job);
        self.jobs.1.notify_one();
        Ok(shown)
    }

    /// All analyses, oldest first.
    pub fn all(&self) -> Vec<Analysis> {
        self.jobs().all.values().map(|job| job.shown.clone()).collect()
    }

    /// One analysis.
    ///
    /// # Errors
    /// No analysis has this id.
    pub fn one(&self, id: u64) -> Result<Analysis, Refusal> {
        self.jobs().all.get(&id).map(|job| job.shown.clone()).ok_or_else(|| unknown(id))
    }

    /// The result of an analysis.
    ///
    /// # Errors
    /// No analysis has this id, or it has no result.
    pub fn values(&self, id: u64) -> Result<ResultFile, Refusal> {
        let jobs = self.jobs();
        let job = jobs.all.get(&id).ok_or_else(|| unknown(id))?;
        job.values.clone().ok_or_else(|| {
            let text = match job.shown.state {
                State::Failed => format!("analysis {id} has failed"),
                _ => format!("analysis {id} has not ended"),
            };
            Refusal::new(StatusCode::CONFLICT, text)
        })
    }

    /// Cancels and removes an analysis.
    ///
    /// # Errors
    /// No analysis has this id.
    pub fn remove(&self, id: u64) -> Result<(), Refusal> {
        let job = self.jobs().all.remove(&id).ok_or_else(|| unknown(id))?;
        job.stop.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Cancels all analyses and refuses new ones.
    fn close(&self) {
        let mut jobs = self.jobs();
        jobs.is_closed = true;
        for job in jobs.all.values() {
            job.stop.store(true, Ordering::Relaxed);
        }
        self.jobs.1.notify_all();
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next analysis; `None` after `close`.
    fn next(&self) -> Option<(u64, Algorithm, Arc<AtomicBool>)> {
        let mut jobs = self.jobs();
        loop {
            if jobs.is_closed {
                return None;
            }
            let next = jobs.all.values_mut().find(|job| job.shown.state == State::Waiting);
            if let Some(job) = next {
                job.shown.state = State::Running;
                return Some((job.shown.id, job.shown.request.clone(), Arc::clone(&job.stop)));
            }
            jobs = self.jobs.1.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn note(&self, id: u64, progress: Progress) {
        if let Some(job) = self.jobs().all.get_mut(&id) {
            job.shown.progress = Some(progress);
        }
    }

    fn end(&self, id: u64, began: Instant, done: Result<Computed>, failures: &Failures) {
        let mut jobs = self.jobs();
        // A cancelled analysis was already removed.
        let Some(job) = jobs.all.get_mut(&id) else { return };
        let shown = &mut job.shown;
        shown.progress = None;
        shown.seconds = Some(began.elapsed().as_secs_f64());
        match done {
            Ok(Computed { lsn, values, facts }) => {
                (shown.state, shown.lsn, shown.facts) = (State::Done, Some(lsn), facts);
                job.values = Some(values);
            }
            Err(error) => {
                shown.state = State::Failed;
                shown.error = Some(told(&error, failures));
            }
        }
        jobs.remove_old();
    }
}

/// The error text for the client. Failures that only the operator can repair are also logged for
/// the operator.
fn told(error: &Error, failures: &Failures) -> String {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Unsupported => error.one_line(),
        ErrorKind::Interrupted => "the server is stopping".into(),
        kind => {
            failures.note(error);
            match kind {
                ErrorKind::Budget => "the server's `analyses` is too small for it",
                ErrorKind::NoSpace => "the server's disk is full",
                _ => "the server failed; it has told its operator why",
            }
            .into()
        }
    }
}

fn unknown(id: u64) -> Refusal {
    Refusal::unknown(format!("no analysis {id}; see `/graph/analyses`"))
}

/// The result of an analysis.
struct Computed {
    lsn: u64,
    values: ResultFile,
    facts: Map<String, Value>,
}

fn compute(
    graph: &Graph,
    algorithm: &Algorithm,
    config: &RunConfig,
    on_progress: &mut dyn FnMut(&str, u64, u64, &str) -> Result<()>,
) -> Result<Computed> {
    on_progress("snapshot", 0, 0, "")?;
    let mut run = |data_set: &DataSet| {
        let inputs = Inputs::default();
        let outcome =
            outercore_analytics::run(data_set, algorithm, inputs, config, &mut *on_progress)?;
        let Outcome { values, facts, .. } = outcome;
        // The values go to a file, so that the next analysis has the whole budget.
        let values = values.into_file(data_set.root())?;
        Ok(Computed { lsn: data_set.manifest().lsn(), values, facts })
    };
    match graph {
        Graph::Fixed(_) => run(graph.view().data_set()),
        Graph::Live(live) => {
            live.fold()?;
            run(&DataSet::open(live.snapshot().data_set.root())?)
        }
    }
}
