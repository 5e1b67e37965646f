//! A server from the opened data set to the last answer.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use outercore_core::{Bytes, Context, Error, Result};
use outercore_format::{DType, keys};
use outercore_infer::{Head, Manifest, Model};
use outercore_pipeline::{Degrees, MemoryPlan, RequestConfig, Requests};
use outercore_store::dataset::DataSet;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, Semaphore};

use crate::config::ServerConfig;
use crate::graph::Graph;
use crate::http::{Shared, router};
use crate::predictor::{Predictor, Queue};
use crate::protocol::Subject;

/// Threads that read and write connections; the others compute.
const CONNECTION_THREADS: usize = 1;

/// How long connections have to end after the last deadline.
const DRAIN: Duration = Duration::from_secs(5);

/// Name that stands for the array with the role of features.
const FEATURES: &str = "x";

/// Bodies that are read and understood at once; others wait.
const BODIES: usize = 16;

/// The weights of a model, beside its manifest.
const WEIGHTS: &str = "model.safetensors";

/// Digits of a version.
const VERSION_DIGITS: usize = 12;

/// Ends a server from any thread.
#[derive(Clone, Default)]
struct Stop(Arc<Notify>);

impl Stop {
    /// No new requests are taken; those that wait are answered.
    fn stop(&self) {
        self.0.notify_one();
    }
}

/// Stops the server when it is dropped.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A server that answers until it is stopped, or dropped.
pub struct Server {
    address: SocketAddr,
    plan: MemoryPlan,
    stop: StopOnDrop,
    connections: JoinHandle<Result<()>>,
    predictor: Predictor,
}

impl Server {
    /// Opens the data set in the directory `data_set` and the exported model in `model`, and begins to
    /// listen.
    ///
    /// `name` is what the model is called in paths.
    ///
    /// # Errors
    /// `Invalid` for a configuration out of range or a model that does not fit the data set;
    /// `Budget` with the least that would do; `Io` where the port is taken.
    pub fn start(data_set: &Path, model: &Path, name: &str, config: &ServerConfig) -> Result<Self> {
        config.validate()?;
        let weights = Bytes(std::fs::metadata(model.join(WEIGHTS)).map_or(0, |file| file.len()));
        let model = Arc::new(Model::open(model)?);
        let manifest = model.manifest();
        let graph = Arc::new(Graph::open(data_set, config)?);
        let view = graph.view();
        let dataset = view.data_set();
        let subject = match manifest.head {
            None => Subject::Nodes,
            Some(Head::Pairs { .. }) => Subject::Edges,
            Some(_) => Subject::Graphs,
        };
        let graphs = if subject == Subject::Graphs { graphs_of(dataset)? } else { Vec::new() };
        let largest = graphs.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        // Any one graph can be asked for.
        let most_nodes = config.most_nodes.max(largest);
        let wanted = RequestConfig {
            features: match model.features() {
                0 => None,
                columns => Some(features_of(dataset, manifest, columns)?),
            },
            fan_outs: manifest.input.fanout.clone(),
            replace: manifest.input.replace,
            most_nodes,
            degrees: match (model.needs_degrees(), model.counts_loops()) {
                (false, _) => Degrees::None,
                (true, true) => Degrees::WithLoops,
                (true, false) => Degrees::WithoutLoops,
            },
            memory: config.memory,
            reserved: Bytes(weights.0 + Graph::reserved(config).0),
            threads: config.threads,
        };
        let requests = Requests::open(dataset, &wanted)?;
        drop(view);
        let plan = requests.plan().clone();
        let (task, outputs) = (manifest.task.kind, model.outputs());
        let version = version_of(model.version());
        let requests = (requests, wanted);
        let (predictor, queue) =
            Predictor::start(Arc::clone(&graph), requests, model, config.queue)?;
        let failures = predictor.failures().clone();
        let shared = |queue: Queue| Shared {
            name: name.to_owned(),
            version,
            outputs,
            task,
            subject,
            graphs,
            graph,
            most_nodes,
            deadline: Duration::from_millis(config.deadline_ms),
            queue,
            failures,
            bodies: Semaphore::new(BODIES),
            stopping: AtomicBool::new(false),
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(CONNECTION_THREADS)
            .thread_name("outercore-http")
            .enable_all()
            .build()?;
        let wanted = SocketAddr::new(config.host, config.port);
        let listener = runtime
            .block_on(TcpListener::bind(wanted))
            .map_err(Error::from)
            .with_context(|| format!("cannot listen on {wanted}"))
            .map_err(|error| error.hint("choose another port by --port, or 0 for any"))?;
        let address = listener.local_addr()?;
        let stop = Stop::default();
        let (shared, stopped) = (Arc::new(shared(queue)), stop.clone());
        let connections = std::thread::Builder::new()
            .name("outercore-listen".into())
            .spawn(move || listen(&runtime, listener, shared, &stopped))?;
        Ok(Self { address, plan, stop: StopOnDrop(stop), connections, predictor })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the budget is divided.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// What went wrong since the last call, for the operator; clients are told no more than that.
    pub fn take_failures(&self) -> Vec<String> {
        self.predictor.failures().take()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.connections.is_finished() || self.predictor.has_ended()
    }

    /// Stops taking requests, answers those that wait, and ends.
    ///
    /// # Errors
    /// The error by which it ended before.
    pub fn close(self) -> Result<()> {
        self.stop.0.stop();
        let ended = self
            .connections
            .join()
            .map_err(|_| Error::internal("the listening thread panicked"))?;
        self.predictor.join()?;
        ended
    }
}

/// The first node of each graph of a data set of many.
const FIRST: &str = "graphs/first";

/// Where each graph's nodes begin, and where the last one's end.
///
/// # Errors
/// `Invalid`: a data set of one graph. `Corrupt`: graphs that do not follow each other.
fn graphs_of(dataset: &DataSet) -> Result<Vec<u64>> {
    if !dataset.has_array(FIRST) {
        let text = "the model predicts something of whole graphs, and the data set is one graph";
        return Err(Error::invalid(text).hint("serve the data set that it was trained on"));
    }
    // Signed or not, it has 8 bytes, and a negative one is found below.
    let bytes = dataset.read_array(FIRST)?;
    if !matches!(dataset.array(FIRST)?.dtype, DType::I64 | DType::U64) {
        return Err(Error::corrupt(format!("array `{FIRST}`: expected int64 or uint64")));
    }
    let mut ends: Vec<u64> =
        bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    ends.push(dataset.num_nodes());
    if ends.len() < 2 || ends[0] != 0 || ends.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Error::corrupt(format!("array `{FIRST}`: expected ascending nodes from 0 on"))
            .hint("run `outercore check DATASET`"));
    }
    Ok(ends)
}

/// The key of the array that the model reads.
///
/// # Errors
/// `NotFound`; `Invalid` for another number of columns.
fn features_of(dataset: &DataSet, manifest: &Manifest, columns: usize) -> Result<String> {
    let name = &manifest.input.features;
    let role = dataset.manifest().roles.features.clone().filter(|_| name == FEATURES);
    let key = role.unwrap_or_else(|| keys::node_array(name));
    let array = dataset.array(&key).context("the features of the model")?;
    if array.row_elements() != columns as u64 {
        return Err(Error::invalid(format!(
            "array `{key}`: {} columns, the model was trained on {columns}",
            array.row_elements()
        ))
        .hint("serve the data set that the model was trained on"));
    }
    Ok(key)
}

/// The first digits of a digest: enough to tell two models apart.
fn version_of(digest: &str) -> String {
    let digits = digest.rsplit(':').next().unwrap_or(digest);
    digits.chars().take(VERSION_DIGITS).collect()
}

fn listen(
    runtime: &Runtime,
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: &Stop,
) -> Result<()> {
    let drain = shared.deadline + DRAIN;
    let stopping = Arc::clone(&shared);
    let notified = Arc::clone(&stop.0);
    let (drained, mut draining) = tokio::sync::oneshot::channel::<()>();
    runtime.block_on(async {
        let served = axum::serve(listener, router(shared)).with_graceful_shutdown(async move {
            notified.notified().await;
            stopping.stopping.store(true, Ordering::Relaxed);
            drop(drained);
        });
        let mut served = std::pin::pin!(served.into_future());
        tokio::select! {
            ended = &mut served => ended.map_err(Error::from),
            _ = &mut draining => {
                // An idle connection must not keep the server alive.
                match tokio::time::timeout(drain, served).await {
                    Ok(ended) => ended.map_err(Error::from),
                    Err(_) => Ok(()),
                }
            }
        }
    })
}
