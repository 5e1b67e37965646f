//! The thread that answers: takes what waits, samples and reads for all of it, computes each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use outercore_core::{Error, Result};
use outercore_infer::{Answer, Model, Subgraph};
use outercore_pipeline::{Neighbourhood, Requests};
use tokio::sync::{mpsc, oneshot};

use crate::protocol::{Output, Question};
use crate::refusal::Refusal;

/// Names of the outputs.
pub const PREDICTION: &str = "prediction";
/// Of classes and labels alone.
pub const PROBABILITY: &str = "probability";

/// What a model says of the nodes of a request.
#[derive(Debug)]
pub struct Prediction {
    /// In the order in which they are described.
    pub outputs: Vec<Output>,
}

/// A question on its way through the queue.
struct Job {
    question: Question,
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
        self.jobs.try_send(Job { question, until, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refusal::overloaded(),
            mpsc::error::TrySendError::Closed(_) => Refusal::stopping(),
        })?;
        match tokio::time::timeout_at(until.into(), answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Refusal::stopping()),
            Err(_) => Err(Refusal::late()),
        }
    }
}

/// The thread, which ends when the last [`Queue`] is gone.
pub struct Predictor {
    thread: JoinHandle<()>,
}

impl Predictor {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(requests: Requests, model: Arc<Model>, queue: usize) -> Result<(Self, Queue)> {
        let (jobs, waiting) = mpsc::channel(queue);
        let thread = std::thread::Builder::new()
            .name("outercore-predict".into())
            .spawn(move || Work { requests, model }.run(waiting))?;
        Ok((Self { thread }, Queue { jobs }))
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
    requests: Requests,
    model: Arc<Model>,
}

impl Work {
    fn run(mut self, mut waiting: mpsc::Receiver<Job>) {
        let most = self.requests.window() as usize;
        while let Some(first) = waiting.blocking_recv() {
            // What came while the last window was answered is the next one: under load windows
            // grow, and nobody waits for them without.
            let mut window = vec![first];
            while window.len() < most
                && let Ok(next) = waiting.try_recv()
            {
                window.push(next);
            }
            self.answer(window);
        }
    }

    /// Answers a window; questions with one seed share their reads.
    fn answer(&mut self, window: Vec<Job>) {
        let now = Instant::now();
        let mut by_seed: BTreeMap<u64, Vec<Job>> = BTreeMap::new();
        for job in window {
            if job.until <= now {
                drop(job.reply.send(Err(Refusal::late())));
            } else if !job.reply.is_closed() {
                // Else its client has gone.
                by_seed.entry(job.question.seed).or_default().push(job);
            }
        }
        for (seed, jobs) in by_seed {
            self.answer_together(seed, jobs);
        }
    }

    fn answer_together(&mut self, seed: u64, jobs: Vec<Job>) {
        let nodes = jobs.iter().map(|job| job.question.nodes.clone()).collect();
        let answers: Mutex<Vec<Option<Result<Prediction>>>> =
            Mutex::new(jobs.iter().map(|_| None).collect());
        let model = &self.model;
        let together = self.requests.answer(seed, nodes, &|place, found| {
            let answer = predict(model, found);
            answers.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(answer);
            Ok(())
        });
        let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        for (job, answer) in jobs.into_iter().zip(answers) {
            match answer {
                // The client may have gone meanwhile.
                Some(answer) => drop(job.reply.send(answer.map_err(Refusal::from))),
                None => left.push(job),
            }
        }
        let Err(error) = together else { return };
        if left.len() == 1
            && let Some(job) = left.pop()
        {
            drop(job.reply.send(Err(Refusal::from(error))));
            return;
        }
        // One of several failed: each on its own, so that the others do not pay for it.
        for job in left {
            self.answer_together(seed, vec![job]);
        }
    }
}

fn predict(model: &Model, found: &Neighbourhood<'_>) -> Result<Prediction> {
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
    let logits = model.forward(&subgraph, found.x)?;
    if logits.iter().any(|logit| !logit.is_finite()) {
        // JSON has no NaN.
        return Err(Error::invalid("the model's outputs are not finite, as are some features")
            .hint("replace NaN in the features, and train again"));
    }
    let seeds = sampled.num_seeds;
    let outputs = match model.read_out(&logits) {
        Answer::Classes { classes, probabilities } => vec![
            Output::whole(PREDICTION, vec![seeds], classes.into_iter().map(i64::from).collect()),
            Output::single(PROBABILITY, vec![seeds, model.outputs()], probabilities),
        ],
        Answer::Labels { labels, probabilities } => vec![
            Output::whole(
                PREDICTION,
                vec![seeds, model.outputs()],
                labels.into_iter().map(i64::from).collect(),
            ),
            Output::single(PROBABILITY, vec![seeds, model.outputs()], probabilities),
        ],
        Answer::Values { values } => {
            vec![Output::single(PREDICTION, vec![seeds, model.outputs()], values)]
        }
    };
    Ok(Prediction { outputs })
}
