//! Connections: how many may be open, and how long a client may keep the server waiting.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt as _;

use crate::gauges::Level;
use crate::patient::Patient;
use crate::tls::{Protocol, Tls};
use crate::turns::Client;

/// Most connections, if the process may open twice as many files.
const MOST_CONNECTIONS: usize = 4096;

/// Pause after an error of `accept`, such as too many open files.
const AGAIN: Duration = Duration::from_millis(100);

/// Most concurrent calls of a gRPC connection.
const MOST_STREAMS: u32 = 256;

/// Most bytes of a gRPC request's headers.
const MOST_HEADERS: u32 = 16 << 10;

/// Memory of a connection for bytes that have arrived but are not read yet, headers included.
const BUFFER: u32 = 64 << 10;

/// Limits of connections and time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most open connections; further connections wait until one ends.
    pub connections: usize,
    /// How long the headers of a request may take, and how long a connection may be idle.
    pub headers: Duration,
    /// How long a body may take to arrive.
    pub body: Duration,
    /// How long a client may read nothing of an answer.
    pub stalled: Duration,
    /// How long unfinished requests have after the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // Leave half of the files for the data set and the log.
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
        Self {
            connections: MOST_CONNECTIONS.min(files.max(1) as usize),
            headers: Duration::from_secs(10),
            body: Duration::from_secs(10),
            stalled: Duration::from_secs(10),
            drain: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// How long a call over HTTP/2 may take in total. `drain` includes the time for an answer.
    fn of_stream(&self) -> Duration {
        self.body + self.drain + self.stalled
    }
}

/// Limits the time of each call of a connection. Without it, a client could leave a call
/// unfinished, or its answer unread, while other calls keep the connection busy.
#[derive(Clone)]
struct Bounded(Duration);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Bounded {
    fn execute(&self, call: F) {
        tokio::spawn(tokio::time::timeout(self.0, call));
    }
}

/// The connections of a server, on all its ports.
pub struct Connections {
    limits: Limits,
    free: Arc<Semaphore>,
    open: Level,
    stop: watch::Receiver<bool>,
    tls: Option<Tls>,
}

impl Connections {
    /// Creates the limits with all places free. `open` counts connections; all end when `stop`
    /// becomes true. With `tls`, connections are encrypted.
    pub fn new(limits: Limits, open: Level, stop: watch::Receiver<bool>, tls: Option<Tls>) -> Self {
        Self { limits, free: Arc::new(Semaphore::new(limits.connections)), open, stop, tls }
    }

    /// Serves `routes` until the server stops, then gives unfinished requests at most `drain`.
    pub async fn serve(&self, listener: &TcpListener, routes: &Router, protocol: Protocol) {
        let graceful = GracefulShutdown::new();
        let tls = self.tls.as_ref().map(|tls| tls.acceptor(protocol));
        let mut stop = self.stop.clone();
        loop {
            let (stream, place) = tokio::select! {
                _ = stop.wait_for(|stopped| *stopped) => break,
                accepted = self.accept(listener) => accepted,
            };
            // Send small answers at once: with Nagle's algorithm, a client of many small answers
            // waits.
            let _ = stream.set_nodelay(true);
            let (routes, ended) = (routes.clone(), graceful.watcher());
            let (limits, tls) = (self.limits, tls.clone());
            tokio::spawn(async move {
                let _place = place;
                match tls {
                    None => answer(stream, routes, (protocol, limits), ended).await,
                    Some(tls) => {
                        // Drop a client that does not speak TLS, or whose handshake takes too long.
                        let shaken = tokio::time::timeout(limits.headers, tls.accept(stream));
                        if let Ok(Ok(stream)) = shaken.await {
                            answer(stream, routes, (protocol, limits), ended).await;
                        }
                    }
                }
            });
        }
        // An idle connection must not keep the server alive.
        let _ = tokio::time::timeout(self.limits.drain, graceful.shutdown()).await;
    }

    /// Waits for a free place, then for the next connection.
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, Place) {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, Place::new(permit.ok(), &self.open)),
                // The client left, or the system is short of a resource.
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// Answers the requests of a connection until it ends. If it ends with an error, its requests count
/// as `gone`.
async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    routes: Router,
    (protocol, limits): (Protocol, Limits),
    ended: Watcher,
) {
    let client = Client::next();
    let service = TowerToHyperService::new(routes.map_request(move |request: Request<_>| {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(client);
        Request::from_parts(head, Body::new::<Incoming>(body))
    }));
    match protocol {
        Protocol::Http1 => {
            let io = TokioIo::new(Patient::new(stream, limits.stalled, None));
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(limits.headers);
            http.max_buf_size(BUFFER as usize);
            drop(ended.watch(http.serve_connection(io, service)).await);
        }
        Protocol::Http2 => {
            // A live client answers a ping within this time.
            let silent = Some(3 * limits.headers);
            let io = TokioIo::new(Patient::new(stream, limits.stalled, silent));
            let mut http = http2::Builder::new(Bounded(limits.of_stream()));
            http.timer(TokioTimer::new())
                .keep_alive_interval(limits.headers)
                .keep_alive_timeout(limits.headers)
                .max_concurrent_streams(MOST_STREAMS)
                .initial_stream_window_size(BUFFER)
                .initial_connection_window_size(BUFFER)
                .max_header_list_size(MOST_HEADERS);
            drop(ended.watch(http.serve_connection(io, service)).await);
        }
    }
}

/// The place of an open connection.
struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    open: Level,
}

impl Place {
    fn new(permit: Option<OwnedSemaphorePermit>, open: &Level) -> Self {
        open.inc();
        Self { _permit: permit, open: open.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpStream as Client};

    use axum::body::Body;
    use axum::routing::{get, post};

    use super::*;
    use crate::body::Bodies;

    const SHORT: Duration = Duration::from_millis(200);
    const LIMITS: Limits =
        Limits { connections: 4, headers: SHORT, body: SHORT, stalled: SHORT, drain: SHORT };

    /// Calls `work` with the address of a server that has a short and a long answer.
    fn served(protocol: Protocol, work: impl FnOnce(SocketAddr, &Level)) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let open = Level::default();
        let connections = Connections::new(LIMITS, open.clone(), stopped, None);
        let serving = runtime.spawn(async move {
            let read = async |body: Body| {
                Bodies::new(SHORT, 1).read(body, 8).await.map(|whole| whole.bytes)
            };
            let routes = Router::new()
                .route("/", get(async || "here"))
                .route("/body", post(read))
                .route("/long", get(async || vec![b'x'; 64 << 20]));
            connections.serve(&listener, &routes, protocol).await;
        });
        work(address, &open);
        stop.send_replace(true);
        let ended = async { tokio::time::timeout(Duration::from_secs(10), serving).await };
        runtime.block_on(ended).expect("it stops by itself").unwrap();
    }

    fn connect(address: SocketAddr) -> Client {
        let client = Client::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client
    }

    fn ask(address: SocketAddr) -> String {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Reads until the server closes the connection; returns the number of bytes.
    fn until_closed(client: &mut Client) -> usize {
        let mut bytes = Vec::new();
        match client.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        bytes.len()
    }

    #[test]
    fn slow_headers_and_idle_connections_are_closed() {
        served(Protocol::Http1, |address, _| {
            for begun in [&b""[..], b"GET / HTTP/1.1\r\nhost:"] {
                let mut client = connect(address);
                client.write_all(begun).unwrap();
                until_closed(&mut client);
            }
            let mut client = connect(address);
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            // After the answer the connection is idle.
            assert!(until_closed(&mut client) > 0);
        });
    }

    #[test]
    fn a_body_that_comes_slowly_or_is_too_long_is_refused() {
        served(Protocol::Http1, |address, _| {
            let bodies = [("4", "abc", "HTTP/1.1 408"), ("9", "123456789", "HTTP/1.1 413")];
            for (length, sent, status) in bodies {
                let mut client = connect(address);
                let head = "POST /body HTTP/1.1\r\nhost: x\r\ncontent-length:";
                write!(client, "{head} {length}\r\n\r\n{sent}").unwrap();
                let mut answer = [0; 12];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(std::str::from_utf8(&answer).unwrap(), status);
            }
        });
    }

    #[test]
    fn a_client_that_never_speaks_http_2_is_closed() {
        served(Protocol::Http2, |address, _| {
            let mut client = connect(address);
            client.write_all(b"PRI * HTTP/2.0").unwrap();
            until_closed(&mut client);
        });
    }

    #[test]
    fn a_client_that_does_not_read_is_closed() {
        served(Protocol::Http1, |address, open| {
            let mut client = connect(address);
            client.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let began = std::time::Instant::now();
            while open.get() == 0 {
                assert!(began.elapsed() < Duration::from_secs(10), "it never came");
                std::thread::yield_now();
            }
            while open.get() > 0 {
                assert!(began.elapsed() < Duration::from_secs(10), "it is still open");
                std::thread::yield_now();
            }
            assert!(until_closed(&mut client) < 64 << 20);
        });
    }

    #[test]
    fn connections_beyond_the_limit_wait_for_idle_ones_to_end() {
        served(Protocol::Http1, |address, open| {
            let idle: Vec<Client> = (0..40).map(|_| connect(address)).collect();
            assert!(ask(address).ends_with("here"));
            assert!(open.get() <= LIMITS.connections as u64);
            drop(idle);
            assert!(ask(address).ends_with("here"));
        });
    }
}
