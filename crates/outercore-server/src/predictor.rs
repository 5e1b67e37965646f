//! The thread that answers: takes what waits, samples and reads for all of it, computes each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use outercore_core::{Error, ErrorKind, Result};
use outercore_infer::{Answer, Model, Subgraph};
use outercore_pipeline::{Neighbourhood, RequestConfig, Requests};
use tokio::sync::{mpsc, oneshot};

use crate::graph::{Graph, View};
use crate::metrics::{Metrics, Stage};
use crate::protocol::{Asked, Output, Question};
use crate::refusal::Refusal;

/// Names of the outputs.
pub const PREDICTION: &str = "prediction";
/// Output for classes, labels and edges.
pub const PROBABILITY: &str = "probability";
/// Output for edges.
pub const SCORE: &str = "score";

/// How often arrays are opened that are exchanged meanwhile.
const OPENINGS: usize = 3;

/// Errors that are kept for the operator until they are taken.
const MOST_FAILURES: usize = 16;

/// What a model says of the nodes of a request.
#[derive(Debug)]
pub struct Prediction {
    /// In the order in which they are described.
    pub outputs: Vec<Output>,
    /// Number of the last update that it has seen.
    pub lsn: u64,
}

/// A question on its way through the queue.
struct Job {
    question: Question,
    asked: Instant,
    until: Instant,
    reply: oneshot::Sender<Result<Prediction, Refusal>>,
}

/// Where questions are handed in.
#[derive(Clone)]
pub struct Queue {
    jobs: mpsc::Sender<Job>,
}

impl Queue {
    /// Waits for the answer.
    ///
    /// # Errors
    /// At once where as many questions wait as may; after `until`; those of the answer.
    pub async fn ask(&self, question: Question, until: Instant) -> Result<Prediction, Refusal> {
        let (reply, answer) = oneshot::channel();
        let asked = Instant::now();
        self.jobs.try_send(Job { question, asked, until, reply }).map_err(|error| match error {
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

    /// Questions that wait.
    pub fn waiting(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity()
    }

    /// Whether nobody takes questions any more.
    pub fn is_closed(&self) -> bool {
        self.jobs.is_closed()
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
        (requests, wanted): (Requests, RequestConfig),
        model: Arc<Model>,
        (queue, metrics): (usize, &Arc<Metrics>),
    ) -> Result<(Self, Queue)> {
        let (jobs, waiting) = mpsc::channel(queue);
        let failures = Failures::default();
        let requests = OpenArrays { requests: Some(requests), generation: 0, wanted };
        let metrics = Arc::clone(metrics);
        let work = Work { graph, requests, model, failures: failures.clone(), metrics };
        let thread = std::thread::Builder::new()
            .name("outercore-predict".into())
            .spawn(move || work.run(waiting))?;
        Ok((Self { thread, failures }, Queue { jobs }))
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

/// What reads neighbourhoods, from the arrays that the graph stands on now.
struct OpenArrays {
    /// `None`: the arrays could not be opened the last time.
    requests: Option<Requests>,
    /// That of the arrays.
    generation: u64,
    wanted: RequestConfig,
}

impl OpenArrays {
    /// The reader of the arrays of `view`. Others are let go before they are opened, so that both
    /// are never in memory together.
    ///
    /// # Errors
    /// As [`Requests::open`].
    fn of(&mut self, view: &View<'_>) -> Result<&mut Requests> {
        if self.generation != view.generation() {
            self.requests = None;
        }
        if self.requests.is_none() {
            self.requests = Some(Requests::open(view.data_set(), &self.wanted)?);
            self.generation = view.generation();
        }
        self.requests.as_mut().ok_or_else(|| Error::internal("a reader that was just opened"))
    }
}

struct Work {
    graph: Arc<Graph>,
    requests: OpenArrays,
    model: Arc<Model>,
    failures: Failures,
    metrics: Arc<Metrics>,
}

impl Work {
    fn run(mut self, mut waiting: mpsc::Receiver<Job>) {
        while let Some(first) = waiting.blocking_recv() {
            let most = self.requests.requests.as_ref().map_or(1, Requests::window) as usize;
            // Windows grow under load; without load no request waits for one.
            let mut nodes = first.question.nodes.len();
            let mut window = vec![first];
            while nodes < most
                && let Ok(next) = waiting.try_recv()
            {
                nodes += next.question.nodes.len();
                window.push(next);
            }
            self.answer(window);
        }
    }

    /// Answers a window; questions with one seed share their reads.
    fn answer(&mut self, window: Vec<Job>) {
        let now = Instant::now();
        self.metrics.window(window.len());
        let graph = Arc::clone(&self.graph);
        let view = self.view(&graph);
        let mut by_seed: BTreeMap<u64, Vec<Job>> = BTreeMap::new();
        let most_nodes = self.requests.wanted.most_nodes;
        for mut job in window {
            self.metrics.stage(Stage::Wait, now - job.asked);
            if job.until <= now {
                drop(job.reply.send(Err(Refusal::late())));
            } else if let Err(refusal) = view.settle(&mut job.question, most_nodes) {
                // What it is about may have changed while it waited.
                drop(job.reply.send(Err(refusal)));
            } else if !job.reply.is_closed() {
                // Else its client has gone.
                by_seed.entry(job.question.seed).or_default().push(job);
            }
        }
        for (seed, jobs) in by_seed {
            self.answer_together(&view, seed, jobs);
        }
    }

    /// The graph as it is now, with its arrays open. Where they cannot be opened the answers say so.
    fn view<'g>(&mut self, graph: &'g Graph) -> View<'g> {
        let mut view = graph.view();
        for _ in 0..OPENINGS {
            match (self.requests.of(&view), graph) {
                (Err(error), Graph::Live(live)) if error.kind() == ErrorKind::NotFound => {
                    // They were folded into newer ones before they were opened here.
                    if let Err(error) = live.refresh() {
                        self.failures.note(&error);
                    }
                    view = graph.view();
                }
                _ => break,
            }
        }
        view
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
        let (model, metrics) = (&self.model, &self.metrics);
        let together = self.requests.of(view).and_then(|requests| {
            let (before, began) = (requests.counters(), Instant::now());
            let answered = requests.answer(view.delta(), seed, nodes, &|place, found| {
                let read = Instant::now();
                let answer = predict(model, found, asked[place], view.lsn());
                metrics.stage(Stage::Read, read - began);
                metrics.stage(Stage::Compute, read.elapsed());
                answers.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(answer);
                Ok(())
            });
            metrics.reads(&before, &requests.counters());
            answered
        });
        let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        for (job, answer) in jobs.into_iter().zip(answers) {
            match answer {
                // The client may have gone meanwhile.
                Some(answer) => drop(job.reply.send(answer.map_err(|error| self.refuse(&error)))),
                None => left.push(job),
            }
        }
        let Err(error) = together else { return };
        if left.len() == 1
            && let Some(job) = left.pop()
        {
            drop(job.reply.send(Err(self.refuse(&error))));
            return;
        }
        // One of several failed: each on its own, so that the others do not pay for it.
        for job in left {
            self.answer_together(view, seed, vec![job]);
        }
    }
}

impl Work {
    fn refuse(&self, error: &Error) -> Refusal {
        self.failures.note(error);
        Refusal::of(error)
    }
}

fn predict(
    model: &Model,
    found: &Neighbourhood<'_>,
    asked: &Asked,
    lsn: u64,
) -> Result<Prediction> {
    let sampled = found.sampled;
    let nodes: Vec<u64> = sampled.nodes.iter().collect();
    let subgraph = Subgraph {
        nodes: &nodes,
        nodes_per_hop: &sampled.nodes_per_hop,
        edges_per_hop: &sampled.edges_per_hop,
        sources: &sampled.sources,
        picked: &sampled.picked,
        degrees: found.degrees.as_deref(),
    };
    let states = model.forward(&subgraph, found.x)?;
    // The embedding phase ends here, and the prediction phase begins.
    let (logits, rows) = match asked {
        Asked::Nodes => (states, sampled.num_seeds),
        Asked::Edges(pairs) => (model.score(&states, pairs)?, pairs.len()),
        Asked::Graphs { sizes, .. } => (model.of_graphs(&states, sizes)?, sizes.len()),
    };
    let answer = model.read_out(&logits);
    let numbers = match &answer {
        Answer::Classes { probabilities, .. } | Answer::Labels { probabilities, .. } => {
            probabilities
        }
        Answer::Links { scores, .. } => scores,
        Answer::Values { values } => values,
    };
    if numbers.iter().any(|number| !number.is_finite()) {
        // JSON has no NaN.
        return Err(Error::internal("the model's outputs for these nodes are not finite")
            .hint("look for NaN in the features of the nodes and of their neighbours"));
    }
    let outputs = match answer {
        Answer::Classes { classes, probabilities } => vec![
            Output::whole(PREDICTION, vec![rows], classes.into_iter().map(i64::from).collect()),
            Output::single(PROBABILITY, vec![rows, model.outputs()], probabilities),
        ],
        Answer::Labels { labels, probabilities } => vec![
            Output::whole(
                PREDICTION,
                vec![rows, model.outputs()],
                labels.into_iter().map(i64::from).collect(),
            ),
            Output::single(PROBABILITY, vec![rows, model.outputs()], probabilities),
        ],
        Answer::Links { scores, probabilities } => vec![
            Output::single(SCORE, vec![rows], scores),
            Output::single(PROBABILITY, vec![rows], probabilities),
        ],
        Answer::Values { values } => {
            vec![Output::single(PREDICTION, vec![rows, model.outputs()], values)]
        }
    };
    Ok(Prediction { outputs, lsn })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_full_queue_refuses_at_once_and_an_unanswered_question_is_late() {
        let (jobs, waiting) = mpsc::channel(1);
        let queue = Queue { jobs };
        let question = Question { nodes: vec![0], ..Question::default() };
        let ask = || queue.ask(question.clone(), Instant::now() + Duration::from_millis(5));
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
        let (jobs, mut waiting) = mpsc::channel(1);
        let queue = Queue { jobs };
        let question = Question { nodes: vec![0], ..Question::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let asked = queue.ask(question, Instant::now() + Duration::from_secs(60));
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
