//! The thread that answers: takes what waits, samples and reads for all of it, computes each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use outercore_core::{Error, ErrorKind, Result};
use outercore_pipeline::Ask;
use tokio::sync::{mpsc, oneshot};

use crate::arrays::{OpenArrays, Opened};
use crate::asked::Asked;
use crate::body::Memory;
use crate::compute::{Frontier, Prediction, predict};
use crate::graph::{Graph, View};
use crate::metrics::{Metrics, Stage};
use crate::output::Output;
use crate::question::Question;
use crate::refusal::Refusal;
use crate::served::{Served, Versioned};
use crate::states::States;

/// Errors that are kept for the operator until they are taken.
const MOST_FAILURES: usize = 16;

/// What the thread is asked for.
enum Order {
    /// An answer.
    Answer(Box<Job>),
    /// Newer weights from then on; `done` hears when they answer.
    Exchange { newer: Versioned, done: oneshot::Sender<()> },
}

/// A question on its way through the queue.
struct Job {
    question: Question,
    /// What the question takes: its client may have left, or been refused, before it is dropped.
    _memory: Memory,
    asked: Instant,
    until: Instant,
    reply: oneshot::Sender<Result<Prediction, Refusal>>,
}

/// Where questions are handed in.
#[derive(Clone)]
pub struct Queue {
    orders: mpsc::Sender<Order>,
}

impl Queue {
    /// Waits for the answer; the question takes `memory`.
    ///
    /// # Errors
    /// At once where as many questions wait as may; after `until`; those of the answer.
    pub async fn ask(
        &self,
        question: Question,
        memory: Memory,
        until: Instant,
    ) -> Result<Prediction, Refusal> {
        let (reply, answer) = oneshot::channel();
        let asked = Instant::now();
        let job = Job { question, _memory: memory, asked, until, reply };
        self.orders.try_send(Order::Answer(Box::new(job))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refusal::overloaded(),
            mpsc::error::TrySendError::Closed(_) => Refusal::stopping(),
        })?;
        match tokio::time::timeout_at(until.into(), answer).await {
            Ok(Ok(answer)) => answer,
            // The thread let go of the question: it panicked.
            Ok(Err(_)) => Err(Refusal::failed()),
            Err(_) => Err(Refusal::late()),
        }
    }

    /// Waits until a newer model answers; what was asked before is answered by the older one.
    ///
    /// # Errors
    /// The thread is gone.
    pub async fn exchange(&self, newer: Versioned) -> Result<(), Refusal> {
        let (done, is_done) = oneshot::channel();
        let order = Order::Exchange { newer, done };
        self.orders.send(order).await.map_err(|_| Refusal::stopping())?;
        is_done.await.map_err(|_| Refusal::failed())
    }

    /// Questions that wait.
    pub fn waiting(&self) -> usize {
        self.orders.max_capacity() - self.orders.capacity()
    }

    /// Whether nobody takes questions any more.
    pub fn is_closed(&self) -> bool {
        self.orders.is_closed()
    }
}

/// What went wrong, for the operator; the newest errors, some at most.
#[derive(Clone, Default)]
pub struct Failures(Arc<Mutex<Vec<String>>>);

impl Failures {
    /// Keeps an error.
    pub fn note(&self, error: &Error) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MOST_FAILURES {
            told.push(error.to_string());
        }
    }

    /// Takes those that were noted since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The thread, which ends when the last [`Queue`] is gone.
pub struct Predictor {
    thread: JoinHandle<()>,
    failures: Failures,
}

impl Predictor {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(
        graph: Arc<Graph>,
        opened: Opened,
        (served, now): (Arc<Served>, Versioned),
        (queue, metrics): (usize, &Arc<Metrics>),
    ) -> Result<(Self, Queue)> {
        let (orders, waiting) = mpsc::channel(queue);
        let failures = Failures::default();
        let (requests, states) = opened.into_parts();
        let metrics = Arc::clone(metrics);
        let failed = failures.clone();
        let work = Work { graph, requests, served, now, states, failures: failed, metrics };
        let thread = std::thread::Builder::new()
            .name("outercore-predict".into())
            .spawn(move || work.run(waiting))?;
        Ok((Self { thread, failures }, Queue { orders }))
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// What went wrong so far.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Waits until all that was asked is answered.
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
    /// The model that answers.
    now: Versioned,
    states: States,
    failures: Failures,
    metrics: Arc<Metrics>,
}

impl Work {
    fn run(mut self, mut waiting: mpsc::Receiver<Order>) {
        while let Some(first) = waiting.blocking_recv() {
            let most = self.requests.window() as usize;
            // Windows grow under load; without load no request waits for one.
            let (mut nodes, mut window, mut next) = (0, Vec::new(), Some(first));
            while let Some(Order::Answer(job)) = next {
                nodes += job.question.nodes.len();
                window.push(*job);
                next = if nodes < most { waiting.try_recv().ok() } else { None };
            }
            if !window.is_empty() {
                self.answer(window);
            }
            if let Some(Order::Exchange { newer, done }) = next {
                // Here and not where it was asked for: that client may go at any moment.
                self.served.set_version(&newer.version);
                self.metrics.version(&newer.version);
                self.now = newer;
                // They are those of the older model.
                self.states.clear();
                // Its client may have gone.
                let _ = done.send(());
            }
        }
    }

    /// What was computed, as an answer of the model that is served.
    fn prediction(now: &Versioned, outputs: Vec<Output>, lsn: u64) -> Prediction {
        Prediction { outputs, lsn, version: Arc::clone(&now.version) }
    }

    /// Answers a window; questions with one seed share their reads.
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
                // What it is about may have changed while it waited.
                drop(job.reply.send(Err(refusal)));
            } else if job.reply.is_closed() {
                // Its client has gone.
            } else if job.question.inline.is_some() {
                alone.push(job);
            } else {
                by_seed.entry(job.question.seed).or_default().push(job);
            }
        }
        for job in alone {
            // Its client may have gone, or the deadline passed, while others were answered.
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

    /// Answers an inline question. Its graph differs from all others, so it shares no reads or states.
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
        // Some clients may have gone while others were answered.
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
                // The client may have gone meanwhile.
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
        // One of several failed: each on its own, so that the others do not pay for it.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::body::Bodies;

    #[test]
    fn a_question_keeps_its_memory_until_it_is_dropped() {
        let (orders, mut waiting) = mpsc::channel(1);
        let queue = Queue { orders };
        let bodies = Bodies::new(Duration::from_secs(60), 1);
        let take_most = || {
            let mut memory = bodies.memory();
            memory.take(15 << 20).map(|()| memory)
        };
        let asked = queue.ask(Question::default(), take_most().unwrap(), Instant::now());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(asked).unwrap_err(), Refusal::late());
        assert_eq!(take_most().err(), Some(Refusal::overloaded()));
        drop(waiting.try_recv());
        assert!(take_most().is_ok());
    }

    #[test]
    fn a_full_queue_refuses_at_once_and_an_unanswered_question_is_late() {
        let (orders, waiting) = mpsc::channel(1);
        let queue = Queue { orders };
        let question = Question { nodes: vec![0], ..Question::default() };
        let ask = || {
            let until = Instant::now() + Duration::from_millis(5);
            queue.ask(question.clone(), Memory::unlimited(), until)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            assert_eq!(ask().await.unwrap_err(), Refusal::late());
            assert_eq!(ask().await.unwrap_err(), Refusal::overloaded());
            assert!(!queue.is_closed());
            drop(waiting);
            assert_eq!(ask().await.unwrap_err(), Refusal::stopping());
            assert!(queue.is_closed());
        });
    }

    #[test]
    fn a_question_whose_thread_is_gone_failed() {
        let (orders, mut waiting) = mpsc::channel(1);
        let queue = Queue { orders };
        let question = Question { nodes: vec![0], ..Question::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let asked =
            queue.ask(question, Memory::unlimited(), Instant::now() + Duration::from_secs(60));
        let answered = runtime.block_on(async {
            let gone = async { drop(waiting.recv().await) };
            futures_join(asked, gone).await
        });
        assert_eq!(answered.unwrap_err(), Refusal::failed());
    }

    async fn futures_join<A>(asked: impl Future<Output = A>, gone: impl Future<Output = ()>) -> A {
        let mut asked = std::pin::pin!(asked);
        let mut gone = std::pin::pin!(gone);
        tokio::select! {
            biased;
            answer = &mut asked => return answer,
            () = &mut gone => {}
        }
        asked.await
    }
}
