//! The predicting thread: takes the waiting questions, samples and reads for all of them together,
//! and computes each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use outercore_core::{Error, ErrorKind, Result};
use outercore_pipeline::Ask;

use crate::arrays::{OpenArrays, Opened};
use crate::asked::Asked;
use crate::compute::{Frontier, Prediction, predict};
use crate::graph::{Graph, View};
use crate::metrics::{Metrics, Stage};
use crate::output::Output;
use crate::question::Question;
use crate::queue::{Job, Order, Orders, Queue, queue};
use crate::refusal::Refusal;
use crate::served::{Served, Versioned};
use crate::states::States;

/// Most errors that are stored for the operator until they are taken.
const MOST_FAILURES: usize = 16;

/// Errors for the operator: the newest [`MOST_FAILURES`].
#[derive(Clone, Default)]
pub struct Failures(Arc<Mutex<Vec<String>>>);

impl Failures {
    /// Stores an error.
    pub fn note(&self, error: &Error) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MOST_FAILURES {
            told.push(error.to_string());
        }
    }

    /// Takes the errors since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The predicting thread. It ends when the last [`Queue`] is dropped.
pub struct Predictor {
    thread: JoinHandle<()>,
    failures: Failures,
}

impl Predictor {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        graph: Arc<Graph>,
        opened: Opened,
        (served, now): (Arc<Served>, Versioned),
        (most, metrics): (usize, &Arc<Metrics>),
    ) -> Result<(Self, Queue)> {
        let (queue, orders) = queue(most);
        let failures = Failures::default();
        let (requests, states) = opened.into_parts();
        let metrics = Arc::clone(metrics);
        let failed = failures.clone();
        let work = Work { graph, requests, served, now, states, failures: failed, metrics };
        let thread = std::thread::Builder::new()
            .name("outercore-predict".into())
            .spawn(move || work.run(&orders))?;
        Ok((Self { thread, failures }, queue))
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Errors so far.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Waits until all questions are answered.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn join(self) -> Result<()> {
        self.thread.join().map_err(|_| Error::internal("the predicting thread panicked"))
    }
}

struct Work {
    graph: Arc<Graph>,
    requests: OpenArrays,
    served: Arc<Served>,
    /// The model that answers now.
    now: Versioned,
    states: States,
    failures: Failures,
    metrics: Arc<Metrics>,
}

impl Work {
    fn run(mut self, orders: &Orders) {
        while let Some(first) = orders.wait() {
            let most = self.requests.window() as usize;
            // A window takes all waiting requests: it grows under load, and a single request never
            // waits.
            let (mut nodes, mut window, mut next) = (0, Vec::new(), Some(first));
            while let Some(Order::Answer(job)) = next {
                nodes += job.question.nodes.len();
                window.push(*job);
                next = if nodes < most { orders.next() } else { None };
            }
            if !window.is_empty() {
                self.answer(window);
            }
            if let Some(Order::Exchange { newer, done }) = next {
                // The version is set here, not where the load was requested, because that client
                // may leave at any moment.
                self.served.set_version(&newer.version);
                self.metrics.version(&newer.version);
                self.now = newer;
                // The states belong to the older model.
                self.states.clear();
                // An error only says that the client has left.
                let _ = done.send(());
            }
        }
    }

    /// Builds the prediction of the served model from the computed outputs.
    fn prediction(now: &Versioned, outputs: Vec<Output>, lsn: u64) -> Prediction {
        Prediction { outputs, lsn, version: Arc::clone(&now.version) }
    }

    /// Answers a window; questions with the same seed share their reads.
    fn answer(&mut self, window: Vec<Job>) {
        let now = Instant::now();
        self.metrics.window(window.len());
        let graph = Arc::clone(&self.graph);
        let view = graph.view();
        let mut by_seed: BTreeMap<u64, Vec<Job>> = BTreeMap::new();
        let most_nodes = self.requests.most_nodes();
        let mut alone = Vec::new();
        for mut job in window {
            self.metrics.stage(Stage::Wait, now - job.asked);
            if job.until <= now {
                drop(job.reply.send(Err(Refusal::late())));
            } else if let Err(refusal) = view.settle(&mut job.question, most_nodes) {
                // The nodes or graphs of the question may have changed while it waited. An error of
                // `send` only says that the client has left.
                drop(job.reply.send(Err(refusal)));
            } else if job.reply.is_closed() {
                // The client has left.
            } else if job.question.inline.is_some() {
                alone.push(job);
            } else {
                by_seed.entry(job.question.seed).or_default().push(job);
            }
        }
        for job in alone {
            // The client may have left, or the deadline passed, while others were answered.
            if job.reply.is_closed() {
                continue;
            }
            let answer = self.answer_alone(&view, job.question);
            drop(job.reply.send(answer));
        }
        for (seed, jobs) in by_seed {
            self.answer_together(&view, seed, jobs);
        }
    }

    /// Answers an inline question. Its graph differs from all others, so it shares no reads or
    /// states.
    fn answer_alone(
        &mut self,
        view: &View<'_>,
        mut question: Question,
    ) -> Result<Prediction, Refusal> {
        let began = Instant::now();
        let features = self.requests.features().map(str::to_owned);
        let requests = self.requests.of(view);
        let requests = requests.map_err(|error| refuse(&self.failures, &error))?;
        let inline = question.inline.take().unwrap_or_default();
        let with = view
            .changes()
            .and_then(|delta| {
                let (base, features) = (requests.topology(), features.as_deref());
                let Question { nodes, asked, .. } = &mut question;
                inline.enter(delta, base, features, (nodes, asked))
            })
            .map_err(|error| match error.kind() {
                ErrorKind::Invalid | ErrorKind::NotFound => Refusal::of_lookup(&error),
                ErrorKind::Unsupported => Refusal::wrong(error.one_line()),
                _ => refuse(&self.failures, &error),
            })?;
        let answer = Mutex::new(None);
        let (now, metrics) = (&self.now, &self.metrics);
        let before = requests.counters();
        let nodes = vec![question.nodes];
        let ask =
            Ask { delta: Some(&with), seed: question.seed, requests: nodes, is_known: &|_| false };
        let answered = requests.answer(ask, &|_, found| {
            let read = Instant::now();
            let frontier = Frontier::default();
            let (outputs, _) = predict(&now.model, found, &frontier, &question.asked)?;
            metrics.stage(Stage::Read, read - began);
            metrics.stage(Stage::Compute, read.elapsed());
            *answer.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Self::prediction(now, outputs, view.lsn()));
            Ok(())
        });
        metrics.reads(&before, &requests.counters());
        answered.map_err(|error| refuse(&self.failures, &error))?;
        let answer = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        answer.ok_or_else(Refusal::failed)
    }

    fn answer_together(&mut self, view: &View<'_>, seed: u64, mut jobs: Vec<Job>) {
        // Some clients may have left while others were answered.
        jobs.retain(|job| !job.reply.is_closed());
        if jobs.is_empty() {
            return;
        }
        let nodes = jobs.iter().map(|job| job.question.nodes.clone()).collect();
        let asked: Vec<&Asked> = jobs.iter().map(|job| &job.question.asked).collect();
        let answers: Mutex<Vec<Option<Result<Prediction>>>> =
            Mutex::new(jobs.iter().map(|_| None).collect());
        let (now, metrics, states) = (&self.now, &self.metrics, &self.states);
        let delta = view.delta();
        let is_known = |node| states.get(seed, node, delta).is_some();
        let new = Mutex::new(Vec::new());
        let together = self.requests.of(view).and_then(|requests| {
            let (before, began) = (requests.counters(), Instant::now());
            let ask = Ask { delta, seed, requests: nodes, is_known: &is_known };
            let answered = requests.answer(ask, &|place, found| {
                let read = Instant::now();
                let frontier = Frontier::of(found, states, |node| states.get(seed, node, delta));
                let answer = predict(&now.model, found, &frontier, asked[place]);
                metrics.stage(Stage::Read, read - began);
                metrics.stage(Stage::Compute, read.elapsed());
                metrics.states(frontier.known.len(), frontier.known.iter().flatten().count());
                let answer = answer.map(|(outputs, first)| {
                    let computed = frontier.computed(found, &first, states);
                    new.lock().unwrap_or_else(PoisonError::into_inner).extend(computed);
                    Self::prediction(now, outputs, view.lsn())
                });
                answers.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(answer);
                Ok(())
            });
            metrics.reads(&before, &requests.counters());
            answered
        });
        let new = new.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.states.keep(seed, delta, new);
        let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        for (job, answer) in jobs.into_iter().zip(answers) {
            match answer {
                // An error of `send` only says that the client has left.
                Some(answer) => {
                    drop(job.reply.send(answer.map_err(|error| refuse(&self.failures, &error))))
                }
                None => left.push(job),
            }
        }
        let Err(error) = together else { return };
        if left.len() == 1
            && let Some(job) = left.pop()
        {
            drop(job.reply.send(Err(refuse(&self.failures, &error))));
            return;
        }
        // One of several questions failed. Answer each separately, so that the others still
        // succeed.
        for job in left {
            self.answer_together(view, seed, vec![job]);
        }
    }
}

/// Logs an error for the operator, and returns its text for the client.
fn refuse(failures: &Failures, error: &Error) -> Refusal {
    failures.note(error);
    Refusal::of(error)
}
