//! Metrics of serving, in the format of Prometheus.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use outercore_core::ReadCounters;
use outercore_infer::Precision;
use outercore_live::LiveStatus;
use outercore_pipeline::RequestCounters;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::gauges::{Level, counts, seconds};
use crate::graph::View;
use crate::live_metrics::LiveMetrics;
use crate::loss::Loss;

/// Content type of the text.
pub use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// Protocol, route and outcome of a request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    /// [`HTTP`] or [`GRPC`].
    protocol: &'static str,
    /// Route or method.
    path: String,
    /// HTTP status or gRPC code; [`GONE`] if the client left before the answer.
    status: String,
}

/// Requests over HTTP.
pub const HTTP: &str = "http";
/// Requests over gRPC.
pub const GRPC: &str = "grpc";
/// In place of a status: the client left before the answer.
const GONE: &str = "gone";

/// A stage of an inference request.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// In the queue.
    Wait,
    /// Sampling and reading of features.
    Read,
    /// Computing the network.
    Compute,
    /// From the first byte of the request to the answer.
    Total,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    stage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Array {
    array: &'static str,
}

/// Labels of the model that answers.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answering {
    model: String,
    version: String,
    precision: &'static str,
}

/// Label with the measure of a loss.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Lost {
    measure: &'static str,
}

/// All metrics of a server.
pub struct Metrics {
    registry: Registry,
    requests: Family<Outcome, Counter>,
    answering: Family<Answering, Level>,
    /// Name and precision of the model; the version may change.
    model: (String, Precision),
    stages: Family<Of, Histogram, fn() -> Histogram>,
    windows: Histogram,
    reads: Family<Array, Counter>,
    read_bytes: Family<Array, Counter>,
    useful_bytes: Family<Array, Counter>,
    rows: Counter,
    rows_in_memory: Counter,
    states: Counter,
    states_in_memory: Counter,
    queue: Level,
    connections: Level,
    nodes: Level,
    removed: Level,
    arcs: Level,
    lsn: Level,
    live: Option<LiveMetrics>,
}

impl Metrics {
    /// All metrics at zero. `model` is the name and version. `precision` comes with its loss.
    /// `live` has the metrics of updates, if the graph takes any.
    pub fn new(
        (name, version): (&str, &str),
        (precision, loss): (Precision, Option<Loss>),
        live: Option<LiveMetrics>,
    ) -> Self {
        let mut new = Self {
            registry: Registry::with_prefix("outercore"),
            requests: Family::default(),
            answering: Family::default(),
            model: (name.to_owned(), precision),
            stages: Family::new_with_constructor(seconds),
            windows: counts(),
            reads: Family::default(),
            read_bytes: Family::default(),
            useful_bytes: Family::default(),
            rows: Counter::default(),
            rows_in_memory: Counter::default(),
            states: Counter::default(),
            states_in_memory: Counter::default(),
            queue: Level::default(),
            connections: Level::default(),
            nodes: Level::default(),
            removed: Level::default(),
            arcs: Level::default(),
            lsn: Level::default(),
            live,
        };
        new.register(loss);
        new.version(version);
        new
    }

    fn register(&mut self, loss: Option<Loss>) {
        let all = &mut self.registry;
        all.register("model_info", "The model that is served", self.answering.clone());
        all.register("requests", "Requests by outcome", self.requests.clone());
        if let Some(Loss { measure, points, .. }) = loss {
            let lost = Family::<Lost, Gauge<f64, AtomicU64>>::default();
            lost.get_or_create(&Lost { measure: measure.name() }).set(points);
            all.register("precision_loss_points", "What int8 lost on a sample", lost);
        }
        let text = "Stages of inference requests";
        all.register_with_unit("infer_stage", text, Unit::Seconds, self.stages.clone());
        all.register("window_requests", "Requests answered together", self.windows.clone());
        all.register("queue_requests", "Requests that wait", self.queue.clone());
        all.register("connections", "Open connections", self.connections.clone());
        all.register("reads", "Reads from the disk", self.reads.clone());
        all.register_with_unit("read", "Bytes read", Unit::Bytes, self.read_bytes.clone());
        let text = "Bytes read that were needed";
        all.register_with_unit("read_useful", text, Unit::Bytes, self.useful_bytes.clone());
        all.register("rows", "Feature rows needed", self.rows.clone());
        let text = "Feature rows found in memory";
        all.register("rows_in_memory", text, self.rows_in_memory.clone());
        let text = "First-layer states needed of nodes found by the last hop but one";
        all.register("states", text, self.states.clone());
        let text = "Those that were kept from earlier requests";
        all.register("states_in_memory", text, self.states_in_memory.clone());
        all.register("graph_nodes", "Nodes, removed ones included", self.nodes.clone());
        all.register("graph_removed_nodes", "Removed nodes", self.removed.clone());
        all.register("graph_arcs", "Arcs", self.arcs.clone());
        all.register("graph_lsn", "Number of the last durable update", self.lsn.clone());
        if let Some(live) = &self.live {
            live.register(all);
        }
    }

    /// Sets the version of the model that answers.
    pub fn version(&self, version: &str) {
        let (model, precision) = &self.model;
        let answering = Answering {
            model: model.clone(),
            version: version.to_owned(),
            precision: precision.name(),
        };
        self.answering.clear();
        self.answering.get_or_create(&answering).set(1);
    }

    /// Adds the time of a stage.
    pub fn stage(&self, stage: Stage, took: Duration) {
        let stage = match stage {
            Stage::Wait => "wait",
            Stage::Read => "read",
            Stage::Compute => "compute",
            Stage::Total => "total",
        };
        self.stages.get_or_create(&Of { stage }).observe(took.as_secs_f64());
    }

    /// Adds a window of requests that are answered together.
    pub fn window(&self, requests: usize) {
        self.windows.observe(requests as f64);
    }

    /// Adds the difference between two readings of the counters.
    pub fn reads(&self, before: &RequestCounters, after: &RequestCounters) {
        self.read("features", &before.feature_reads, &after.feature_reads);
        self.read("topology", &before.topology_reads, &after.topology_reads);
        self.rows.inc_by(after.rows - before.rows);
        self.rows_in_memory.inc_by(after.rows_in_memory - before.rows_in_memory);
    }

    /// Adds `needed` first-layer states, of which `kept` came from the cache.
    pub fn states(&self, needed: usize, kept: usize) {
        self.states.inc_by(needed as u64);
        self.states_in_memory.inc_by(kept as u64);
    }

    fn read(&self, array: &'static str, before: &ReadCounters, after: &ReadCounters) {
        let array = Array { array };
        let read = after.since(before);
        self.reads.get_or_create(&array).inc_by(read.requests);
        self.read_bytes.get_or_create(&array).inc_by(read.bytes);
        self.useful_bytes.get_or_create(&array).inc_by(read.useful_bytes);
    }

    /// Open connections.
    pub fn connections(&self) -> &Level {
        &self.connections
    }

    /// Metrics of updates, if the graph takes any.
    pub fn live(&self) -> Option<&LiveMetrics> {
        self.live.as_ref()
    }

    /// All metrics as text, with the current state of the queue and the graph.
    ///
    /// # Errors
    /// Only if a string cannot be written to, which does not occur.
    pub fn text(
        &self,
        waiting: usize,
        view: &View<'_>,
        status: Option<&LiveStatus>,
    ) -> Result<String, std::fmt::Error> {
        self.queue.set(waiting as u64);
        self.nodes.set(view.num_nodes());
        self.removed.set(view.num_removed());
        self.arcs.set(view.num_edges());
        self.lsn.set(view.lsn());
        if let (Some(live), Some(status)) = (&self.live, status) {
            live.note(status);
        }
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Counts a request once: by its status, or as gone if the client left.
pub struct Counted<'a> {
    metrics: &'a Metrics,
    outcome: Outcome,
}

impl<'a> Counted<'a> {
    /// Starts the count; the client counts as gone until `ended` is called.
    pub fn new(metrics: &'a Metrics, protocol: &'static str, path: &str) -> Self {
        let outcome = Outcome { protocol, path: path.to_owned(), status: GONE.to_owned() };
        Self { metrics, outcome }
    }

    /// Counts the request with this status.
    pub fn ended(&mut self, status: &str) {
        status.clone_into(&mut self.outcome.status);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.metrics.requests.get_or_create(&self.outcome).inc();
    }
}
