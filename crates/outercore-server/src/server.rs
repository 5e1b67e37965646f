//! A server, from opening the data set to its end.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use outercore_analytics::RunConfig;
use outercore_core::{Bytes, Context, Error, Hint, Result, hint};
use outercore_format::keys;
use outercore_infer::{Head, Model, Precision};
use outercore_pipeline::{Degrees, Features, MemoryPlan, RequestConfig, Sharing};
use outercore_store::dataset::DataSet;
use outercore_store::delta::ArrayShape;
use outercore_store::generations;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::access::Tokens;
use crate::analyses::Analyst;
use crate::arrays::Opened;
use crate::asked::Subject;
use crate::body::Bodies;
use crate::comparison::Comparison;
use crate::config::ServerConfig;
use crate::graph::{Graph, View};
use crate::grpc;
use crate::limits::{Connections, Limits};
use crate::live_metrics::LiveMetrics;
use crate::loss::Loss;
use crate::metrics::Metrics;
use crate::predictor::Predictor;
use crate::routes;
use crate::sample::Source;
use crate::served::{Served, Versioned};
use crate::shared::Shared;
use crate::tls::Protocol;
use crate::tls::Tls;

/// Most new connections that wait to be accepted. With fewer, many simultaneous clients would be
/// refused.
const MOST_UNACCEPTED: u32 = 4096;

/// Threads that read and write connections; the other threads compute.
const CONNECTION_THREADS: usize = 1;

/// Name that stands for the array with the role of features.
const FEATURES: &str = "x";

/// File with the weights of a model, next to its manifest.
const WEIGHTS: &str = "model.safetensors";

/// Stops a server, from any thread or when it is dropped.
struct Stop(watch::Sender<bool>);

impl Stop {
    /// Takes no new requests; the waiting ones are still answered.
    fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server that runs until it is stopped or dropped.
pub struct Server {
    listening: Listening,
    is_encrypted: bool,
    plan: MemoryPlan,
    loss: Option<Loss>,
    notice: Option<String>,
    stop: Stop,
    predictor: Predictor,
    analyst: Option<Analyst>,
    /// The directory of the data set, if it takes updates.
    changing: Option<PathBuf>,
}

impl Server {
    /// Opens the data set in the directory `data_set` and the exported model in the directory
    /// `model`, and starts to listen.
    ///
    /// `name` is the name of the model in paths.
    ///
    /// # Errors
    /// `Invalid`: a configuration out of range, unreadable tokens or certificates, a model that
    /// does not fit the data set, or int8 with too large a loss. `Budget`, with the smallest
    /// sufficient budget. `Io`: the port is taken.
    pub fn start(data_set: &Path, model: &Path, name: &str, config: &ServerConfig) -> Result<Self> {
        config.validate()?;
        let tokens = config.tokens.as_deref().map(Tokens::open).transpose()?;
        let tls = match (&config.tls_cert, &config.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls::open(certificate, key)?),
            _ => None,
        };
        let is_encrypted = tls.is_some();
        let directory = model;
        let model = Model::open(directory, Precision::Float32)?;
        let live = config.updates.then(LiveMetrics::default);
        let graph = Arc::new(Graph::open(data_set, config, live.as_ref())?);
        let Ready { subject, features, most_nodes, model, opened, loss } =
            Ready::open(&graph.view(), model, directory, config)?;
        let plan = opened.requests.plan().clone();
        let notice = opened.requests.notice().map(str::to_owned);
        let (task, outputs) = (model.manifest().task.kind, model.outputs());
        let now = Versioned::of(model);
        let served = Arc::new(Served::new(directory, &now));
        let metrics = Metrics::new((name, &now.version), (config.precision, loss), live);
        let metrics = Arc::new(metrics);
        let answering = (Arc::clone(&served), now);
        let (predictor, queue) =
            Predictor::start(Arc::clone(&graph), opened, answering, (config.queue, &metrics))?;
        let failures = predictor.failures().clone();
        let analyst = config.analyses.map(|memory| {
            let threads = Some(config.threads).filter(|&threads| threads > 0);
            let run = RunConfig { memory, threads, ..RunConfig::default() };
            Analyst::start(Arc::clone(&graph), run, failures.clone())
        });
        let analyst = analyst.transpose()?;
        let deadline = Duration::from_millis(config.deadline_ms);
        let limits = Limits::default();
        let (stop, stopping) = watch::channel(false);
        let shared = Shared {
            name: name.to_owned(),
            served,
            loading: Arc::default(),
            compacting: Arc::default(),
            precision: config.precision,
            loss,
            outputs,
            task,
            subject,
            features,
            graph,
            most_nodes,
            deadline,
            analyses: analyst.as_ref().map(|analyst| analyst.analyses().clone()),
            queue,
            failures,
            bodies: Bodies::new(limits.body, config.queue),
            stopping,
            metrics,
            limits: Limits { drain: deadline + limits.drain, ..limits },
            tokens,
        };
        let listening = match Listening::start(shared, config, tls) {
            Ok(listening) => listening,
            Err(error) => {
                // The predicting thread holds the data set until it has ended.
                predictor.join()?;
                return Err(error);
            }
        };
        let stop = Stop(stop);
        let changing = config.updates.then(|| data_set.to_owned());
        Ok(Self { listening, is_encrypted, plan, loss, notice, stop, predictor, analyst, changing })
    }

    /// Address of HTTP.
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// Address of gRPC.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.listening.grpc_address
    }

    /// Whether connections use TLS.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Division of the budget.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Loss of int8 against float32 on a sample; `None` for float32.
    pub fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// Why an existing layout of the features is not used; for the operator.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Errors since the last call, for the operator. Clients are only told that the server failed.
    pub fn take_failures(&self) -> Vec<String> {
        self.predictor.failures().take()
    }

    /// Whether the server has ended without being stopped.
    pub fn has_ended(&self) -> bool {
        let analyst = self.analyst.as_ref().is_some_and(Analyst::has_ended);
        self.listening.connections.is_finished() || self.predictor.has_ended() || analyst
    }

    /// Stops taking requests, answers the waiting ones, and ends.
    ///
    /// # Errors
    /// The error that ended the server earlier.
    pub fn close(self) -> Result<()> {
        self.stop.stop();
        self.analyst.map_or(Ok(()), Analyst::join)?;
        let connections = self.listening.connections.join();
        connections.map_err(|_| Error::internal("the listening thread panicked"))?;
        self.predictor.join()?;
        if let Some(root) = &self.changing {
            // The threads of this server were the last readers of old arrays. Files that cannot be
            // removed are unused, and the next writer tries again.
            let _ = generations::tidy(root);
        }
        Ok(())
    }
}

/// A model with the arrays that it reads.
struct Ready {
    subject: Subject,
    /// Shape of the features.
    features: Option<ArrayShape>,
    most_nodes: u64,
    model: Arc<Model>,
    opened: Opened,
    /// Loss of int8 against float32.
    loss: Option<Loss>,
}

impl Ready {
    /// Opens the arrays that `model` reads, and the model in the wanted precision. `model` was read
    /// from `directory` in float32.
    fn open(
        view: &View<'_>,
        model: Model,
        directory: &Path,
        config: &ServerConfig,
    ) -> Result<Self> {
        let weights = std::fs::metadata(directory.join(WEIGHTS)).map_or(0, |file| file.len());
        let manifest = &model.manifest().clone();
        let dataset = view.data_set();
        let subject = match manifest.head {
            None => Subject::Nodes,
            Some(Head::Pairs { .. }) => Subject::Edges,
            Some(_) => Subject::Graphs,
        };
        let most_nodes = most_nodes(view, subject, config)?;
        let key = features_of(dataset, &model)?;
        let features = key.as_ref().map(|key| {
            let array = dataset.array(key)?;
            Ok::<_, Error>(ArrayShape { dtype: array.dtype, columns: array.row_elements() })
        });
        let features = features.transpose()?;
        let wanted = RequestConfig {
            features: key.map(|key| Features { key, precision: storage_of(config.precision) }),
            fan_outs: manifest.input.fanout.clone(),
            replace: manifest.input.replace,
            most_nodes,
            degrees: match (model.needs_degrees(), model.counts_loops()) {
                (false, _) => Degrees::None,
                (true, true) => Degrees::WithLoops,
                (true, false) => Degrees::WithoutLoops,
            },
            memory: config.memory,
            reserved: Bytes(weights + Graph::reserved(config).0),
            growth: Graph::growth(config),
            threads: config.threads,
            sharing: Sharing { reorder: config.reorder, group: config.group },
        };
        let open = |model: &Arc<Model>| Opened::open(dataset, &wanted, model, config);
        let (model, opened, loss) = match config.precision {
            Precision::Float32 => {
                let model = Arc::new(model);
                let opened = open(&model)?;
                (model, opened, None)
            }
            Precision::Int8 => {
                let source = Source { view, manifest, subject, most_nodes };
                let comparison = Comparison::begin(source, model, &wanted)?;
                let model = Arc::new(Model::open(directory, Precision::Int8)?);
                let mut opened = open(&model)?;
                let loss = comparison.end(&model, &mut opened.requests, config.most_loss)?;
                (model, opened, Some(loss))
            }
        };
        Ok(Self { subject, features, most_nodes, model, opened, loss })
    }
}

/// The ports, and the thread that serves them.
struct Listening {
    address: SocketAddr,
    grpc_address: Option<SocketAddr>,
    connections: JoinHandle<()>,
}

impl Listening {
    /// Serves both ports until `shared` signals the stop.
    fn start(shared: Shared, config: &ServerConfig, tls: Option<Tls>) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(CONNECTION_THREADS)
            .thread_name("outercore-http")
            .enable_all()
            .build()?;
        let (http, grpc) = listeners(&runtime, config)?;
        let address = http.local_addr()?;
        let grpc_address = grpc.as_ref().map(TcpListener::local_addr).transpose()?;
        let open = shared.metrics.connections().clone();
        let accepting = Connections::new(shared.limits, open, shared.stopping.clone(), tls);
        let shared = Arc::new(shared);
        let connections = std::thread::Builder::new()
            .name("outercore-listen".into())
            .spawn(move || listen(&runtime, (&http, grpc.as_ref()), &shared, &accepting))?;
        Ok(Self { address, grpc_address, connections })
    }
}

/// Most nodes of a request: raised so that a request for any one current graph is allowed.
///
/// # Errors
/// `Invalid`: the model predicts whole graphs, but the data set is one graph.
fn most_nodes(view: &View<'_>, subject: Subject, config: &ServerConfig) -> Result<u64> {
    match (subject, view.graphs()) {
        (Subject::Graphs, Some(graphs)) => Ok(config.most_nodes.max(graphs.largest())),
        (Subject::Graphs, None) => {
            let text =
                "the model predicts something of whole graphs, and the data set is one graph";
            Err(Error::invalid(text).hint("serve the data set that it was trained on"))
        }
        _ => Ok(config.most_nodes),
    }
}

/// The key of the array that the model reads; `None` if it reads none.
///
/// # Errors
/// `NotFound`; `Invalid` if the number of columns differs.
fn features_of(dataset: &DataSet, model: &Model) -> Result<Option<String>> {
    let columns = model.features();
    if columns == 0 {
        return Ok(None);
    }
    let name = &model.manifest().input.features;
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
    Ok(Some(key))
}

/// Precision of the features on disk for a model of this precision.
fn storage_of(precision: Precision) -> outercore_pipeline::Precision {
    match precision {
        Precision::Float32 => outercore_pipeline::Precision::Exact,
        Precision::Int8 => outercore_pipeline::Precision::Int8,
    }
}

/// Listens for HTTP, and for gRPC if it is configured.
///
/// # Errors
/// As [`bind`].
fn listeners(
    runtime: &Runtime,
    config: &ServerConfig,
) -> Result<(TcpListener, Option<TcpListener>)> {
    let http = bind(runtime, config.host, (config.port, hint!({ port })))?;
    let grpc =
        config.grpc_port.map(|port| bind(runtime, config.host, (port, hint!({ grpc_port }))));
    Ok((http, grpc.transpose()?))
}

/// Listens on a port; `option` is the option that sets it.
///
/// # Errors
/// `Io`: the port is taken.
fn bind(runtime: &Runtime, host: IpAddr, (port, option): (u16, Hint)) -> Result<TcpListener> {
    let wanted = SocketAddr::new(host, port);
    let bound = runtime.block_on(async {
        let socket = if host.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(wanted)?;
        socket.listen(MOST_UNACCEPTED)
    });
    let hint = hint!("choose another port by " {(option)} ", or 0 for any");
    let bound = bound.map_err(Error::from).with_context(|| format!("cannot listen on {wanted}"));
    bound.map_err(|error| error.hint(hint))
}

/// Serves both ports until the server stops.
fn listen(
    runtime: &Runtime,
    (http, grpc): (&TcpListener, Option<&TcpListener>),
    shared: &Arc<Shared>,
    accepting: &Connections,
) {
    let http_routes = routes::router(Arc::clone(shared));
    let grpc_routes = grpc::router(Arc::clone(shared));
    runtime.block_on(async {
        let http = accepting.serve(http, &http_routes, Protocol::Http1);
        let grpc = async {
            if let Some(grpc) = grpc {
                accepting.serve(grpc, &grpc_routes, Protocol::Http2).await;
            }
        };
        tokio::join!(http, grpc);
    });
}
