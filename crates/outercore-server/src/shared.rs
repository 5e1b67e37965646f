//! The state of the server that the handlers of all protocols share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use outercore_format::DType;
use outercore_infer::{Precision, TaskKind};
use outercore_store::delta::{ArrayShape, Graphs};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

use crate::access::{Access, Tokens};
use crate::analyses::Analyses;
use crate::asked::{Scope, Subject};
use crate::body::{Bodies, MOST_BODY, Memory};
use crate::compute::{PREDICTION, PROBABILITY, SCORE};
use crate::directions::EDGES;
use crate::graph::Graph;
use crate::inline::{self, most_edges};
use crate::limits::Limits;
use crate::loss::Loss;
use crate::metrics::{Metrics, Stage};
use crate::predictor::Failures;
use crate::protocol::{self, InferRequest};
use crate::question::Question;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::served::Served;
use crate::turns::Client;

/// Longest body without its ids and numbers.
const WITHOUT_IDS: u64 = 64 << 10;

/// Bytes of an id in a body, including commas, brackets and blanks. An edge takes two ids.
const ID_BYTES: u64 = 32;

/// Bytes of a number in a body.
const NUMBER_BYTES: u64 = 24;

/// The state that all handlers share.
pub struct Shared {
    /// Name of the model in paths.
    pub name: String,
    /// The served model: its directory, and the version that answers.
    pub served: Arc<Served>,
    /// Held while a newer version is loaded.
    pub loading: Arc<Mutex<()>>,
    /// Held while updates are written into the arrays for a client.
    pub compacting: Arc<Mutex<()>>,
    /// Number format in which the model is computed.
    pub precision: Precision,
    /// Loss of int8 against float32; `None` for float32.
    pub loss: Option<Loss>,
    /// Columns of the outputs.
    pub outputs: usize,
    /// Task of the model; for classes the output `prediction` has one column.
    pub task: TaskKind,
    /// The kind of object that the model predicts.
    pub subject: Subject,
    /// Shape of the feature rows that the model reads; `None` if it reads none.
    pub features: Option<ArrayShape>,
    /// The graph.
    pub graph: Arc<Graph>,
    /// Most nodes of a request.
    pub most_nodes: u64,
    /// Longest time for a request.
    pub deadline: Duration,
    /// Analyses of the graph, if the server takes any.
    pub analyses: Option<Analyses>,
    /// Queue of questions.
    pub queue: Queue,
    /// Errors for the operator.
    pub failures: Failures,
    /// Bodies of requests.
    pub bodies: Bodies,
    /// Whether the server is stopping.
    pub stopping: watch::Receiver<bool>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Limits of connections and time.
    pub limits: Limits,
    /// Tokens and their scopes; `None` allows every client everything.
    pub tokens: Option<Tokens>,
}

impl Shared {
    fn outputs(&self) -> &'static [&'static str] {
        match self.task {
            TaskKind::Classes | TaskKind::Labels => &[PREDICTION, PROBABILITY],
            TaskKind::Links => &[SCORE, PROBABILITY],
            _ => &[PREDICTION],
        }
    }

    /// Longest body of an inference request.
    pub fn most_body(&self) -> usize {
        let columns = self.features.map_or(0, |features| features.columns);
        let a_node = ID_BYTES + NUMBER_BYTES * columns;
        let needed =
            WITHOUT_IDS + a_node * self.most_nodes + ID_BYTES * most_edges(self.most_nodes);
        MOST_BODY.min(needed as usize)
    }

    /// Checks that the token of a request allows `needed`.
    ///
    /// # Errors
    /// As [`Tokens::require`].
    pub fn require_access(&self, headers: &HeaderMap, needed: Access) -> Result<(), Refusal> {
        self.tokens.as_ref().map_or(Ok(()), |tokens| tokens.require(headers, needed))
    }

    /// Checks the name and version of the model in a request.
    ///
    /// # Errors
    /// No such model, or no such version of it.
    pub fn require(&self, name: &str, version: Option<&str>) -> Result<(), Refusal> {
        if name != self.name {
            return Err(Refusal::unknown(format!("no model `{name}`; there is `{}`", self.name)));
        }
        match version {
            Some(version) => self.require_version(version, &self.served.version()),
            None => Ok(()),
        }
    }

    fn require_version(&self, wanted: &str, version: &str) -> Result<(), Refusal> {
        if wanted == version {
            return Ok(());
        }
        let name = &self.name;
        let text = format!("model `{name}` has no version `{wanted}`; there is `{version}`");
        Err(Refusal::unknown(text))
    }

    /// Describes the model: its name, inputs and outputs.
    pub fn described(&self) -> Value {
        let columns = self.outputs;
        let prediction = match self.task {
            TaskKind::Classes => json!({"name": PREDICTION, "datatype": "INT64", "shape": [-1]}),
            TaskKind::Labels => {
                json!({"name": PREDICTION, "datatype": "INT64", "shape": [-1, columns]})
            }
            _ => json!({"name": PREDICTION, "datatype": "FP32", "shape": [-1, columns]}),
        };
        let probability = json!({"name": PROBABILITY, "datatype": "FP32", "shape": [-1, columns]});
        let of_edges = |name: &str| json!({"name": name, "datatype": "FP32", "shape": [-1]});
        let outputs = match self.task {
            TaskKind::Classes | TaskKind::Labels => vec![prediction, probability],
            TaskKind::Links => vec![of_edges(SCORE), of_edges(PROBABILITY)],
            _ => vec![prediction],
        };
        let mut parameters = json!({
            "precision": self.precision,
            "loss": self.loss,
            "inline": self.inline(),
            "lsn": self.graph.view().lsn(),
        });
        if let Some(age) = self.graph.age() {
            parameters["age_ms"] = json!(age.as_millis() as u64);
        }
        json!({
            "name": self.name,
            "versions": [&*self.served.version()],
            "platform": "outercore",
            "parameters": parameters,
            "inputs": [{
                "name": self.subject.input(),
                "datatype": "INT64",
                "shape": self.subject.shape(),
            }],
            "outputs": outputs,
        })
    }

    /// Describes the tensors of inline requests.
    fn inline(&self) -> Value {
        let mut tensors = Vec::new();
        if let Some(features) = self.features {
            let datatype = match features.dtype {
                DType::Bool => "BOOL",
                dtype if dtype.is_float() => "FP32",
                _ => "INT64",
            };
            let shape = [-1, features.columns as i64];
            tensors.push(json!({"name": inline::FEATURES, "datatype": datatype, "shape": shape}));
        }
        tensors.push(json!({"name": EDGES, "datatype": "INT64", "shape": [2, -1]}));
        if self.subject == Subject::Graphs {
            tensors.push(json!({"name": inline::GRAPHS, "datatype": "INT64", "shape": [-1]}));
        }
        Value::Array(tensors)
    }

    /// Whether the server takes requests. It still predicts while updates fail.
    pub fn is_ready(&self) -> bool {
        !*self.stopping.borrow() && !self.queue.is_closed()
    }

    /// Whether the last update could not be written.
    pub fn writes_fail(&self) -> bool {
        self.graph.status().is_some_and(|status| status.failure.is_some())
    }

    /// Reads the model again, and answers with its newer weights from then on.
    ///
    /// # Errors
    /// The model is damaged or cannot replace the served one; the server is stopping.
    pub async fn load(&self) -> Result<(), Refusal> {
        let one = Arc::clone(&self.loading).lock_owned().await;
        let served = Arc::clone(&self.served);
        // The reading thread continues if the client leaves. It holds the lock, so the next load
        // waits for it.
        let read = tokio::task::spawn_blocking(move || (served.read(), one)).await;
        let (read, _one) = read.map_err(|_| Refusal::failed())?;
        let newer = read.map_err(|error| {
            self.failures.note(&error);
            Refusal::of_load(&error)
        })?;
        self.queue.exchange(newer).await
    }

    /// Converts a request of any protocol to a question.
    ///
    /// # Errors
    /// The request is wrong or comes too early; no memory is free for it.
    pub fn question(
        &self,
        request: &InferRequest<'_>,
        memory: &mut Memory,
    ) -> Result<Question, Refusal> {
        let view = self.graph.view();
        let scope = Scope {
            subject: self.subject,
            num_nodes: view.num_nodes(),
            is_undirected: view.is_undirected(),
            num_graphs: view.graphs().map_or(0, Graphs::count),
            most_nodes: self.most_nodes,
            features: self.features,
            outputs: self.outputs(),
        };
        let mut question = request.question(&scope, memory)?;
        view.settle(&mut question, self.most_nodes)?;
        if question.min_lsn > view.lsn() {
            return Err(Refusal::too_early(question.min_lsn, view.lsn()));
        }
        Ok(question)
    }

    /// Answers a question of `client`. `memory` belongs to the question, and the request `began` at
    /// that time.
    ///
    /// # Errors
    /// It is too late, or the named version no longer answers. The server is busy, stopping, or
    /// failed.
    pub async fn infer(
        &self,
        client: Client,
        (mut question, memory): (Question, Memory),
        version: Option<&str>,
        began: Instant,
    ) -> Result<Value, Refusal> {
        let limit = question.deadline_ms.map_or(self.deadline, Duration::from_millis);
        let until = began + limit.min(self.deadline);
        let (id, seed, wanted) = (question.id.take(), question.seed, question.outputs.clone());
        let prediction = self.queue.ask(client, (question, memory), until).await?;
        self.metrics.stage(Stage::Total, began.elapsed());
        // A newer version may have been loaded while the question waited.
        version.map_or(Ok(()), |version| self.require_version(version, &prediction.version))?;
        let (asked, age) = ((seed, &wanted[..]), self.graph.age());
        Ok(protocol::answer(&self.name, id.as_deref(), asked, age, prediction))
    }
}
