//! The memory server: lends regions of its memory to clients with its token.
//!
//! One thread per address accepts connections, and one thread per connection serves it. The control
//! connection of a client is its session. When it closes or falls silent, the client's data
//! connections are closed and its regions are freed, except the kept ones.

mod control;
mod data;
mod descriptors;
mod listener;
mod regions;
mod session;
mod strangers;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};

use crate::auth::Token;
use crate::data_plane::{DataPlane, PlaneListener};
use crate::options::FarAddress;
use crate::remote::ServerStatus;
use crate::socket::{Socket, Wake};
use listener::Listener;
use regions::Regions;
use session::{Greeted, Session};
use strangers::Strangers;

/// Most addresses of one server.
const MOST_ADDRESSES: usize = 64;

/// Memory, limits and addresses of a memory server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen on; port 0 chooses a free port.
    pub listen: Vec<FarAddress>,
    /// Memory to lend.
    pub size: Bytes,
    /// The token that clients need.
    pub token: Token,
    /// Most clients at a time.
    pub sessions: usize,
    /// Most data connections of one client; a data plane allows as many in addition.
    pub queues_per_session: usize,
    /// Most regions of one client, without kept ones.
    pub regions_per_session: usize,
    /// Silence after which a client counts as gone. This also limits a pause in the middle of a
    /// message, in either direction.
    pub session_timeout: Duration,
    /// Transport for data of clients on a `fabric://` address.
    pub data_plane: Option<Arc<dyn DataPlane>>,
}

impl ServerConfig {
    /// The defaults, for a server of `size` at one address.
    pub fn new(listen: FarAddress, size: Bytes, token: Token) -> Self {
        Self {
            listen: vec![listen],
            size,
            token,
            sessions: 64,
            queues_per_session: 128,
            regions_per_session: 65_536,
            session_timeout: Duration::from_secs(30),
            data_plane: None,
        }
    }

    /// Checks the values beyond their types.
    ///
    /// # Errors
    /// `Invalid`, naming the field, its value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        let within = |name: &str, value: usize, most: usize| match value {
            value if (1..=most).contains(&value) => Ok(()),
            value => Err(Error::invalid(format!("{name} is {value}, expected 1 to {most}"))),
        };
        within("number of addresses", self.listen.len(), MOST_ADDRESSES)?;
        within("sessions", self.sessions, 65_536)?;
        within("queues_per_session", self.queues_per_session, 1024)?;
        within("regions_per_session", self.regions_per_session, 1 << 24)?;
        if self.size.0 == 0 || self.size.0 > 1 << 56 {
            return Err(Error::invalid(format!("size is {}, expected 1 B to 64 PiB", self.size)));
        }
        let timeout = self.session_timeout;
        if timeout < Duration::from_millis(100) || timeout > Duration::from_secs(86_400) {
            return Err(Error::invalid(format!(
                "session_timeout is {timeout:?}, expected 0.1 s to a day"
            )));
        }
        Ok(())
    }
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Bytes that clients have read through sockets. The server cannot see reads from shared memory
    /// or through a data plane.
    pub read: Bytes,
    /// Bytes that clients have written through sockets.
    pub written: Bytes,
    /// Served data requests, including refused ones.
    pub requests: u64,
    /// Connections without a valid proof.
    pub turned_away: u64,
}

/// Starts a server, which runs on separate threads.
///
/// Raises this process's soft limit of file descriptors to the hard limit, because each region
/// takes one.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_far::{ServerConfig, Token, serve};
/// let token = Token::new(b"0123456789abcdef").unwrap();
/// let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), Bytes::mib(1), token);
/// let server = serve(config).unwrap();
/// assert_eq!(server.status().used, Bytes(0));
/// server.stop();
/// ```
///
/// # Errors
/// `Invalid`: the configuration is out of range, or an address is in use. `Unsupported`: a
/// `fabric://` address without its transport. `Io`: the operating system refuses an address or a
/// thread.
pub fn serve(config: ServerConfig) -> Result<ServerHandle> {
    config.validate()?;
    let mut listeners = Vec::new();
    let mut plane = None;
    for address in &config.listen {
        let listener = Listener::bind(address)?;
        if let FarAddress::Fabric(at) = address {
            if plane.is_some() {
                return Err(Error::invalid("more than one fabric:// address to listen on"));
            }
            plane = Some(listen_on_plane(&config, at)?);
        }
        listeners.push(listener);
    }
    let addresses = listeners.iter().map(|listener| listener.address().clone()).collect();
    let most = descriptors::most_regions(&config);
    let regions = Regions::new(config.size, config.regions_per_session, most);
    let shared = Arc::new(Server {
        config,
        regions,
        plane,
        plane_order: Mutex::default(),
        sessions: Mutex::default(),
        connections: Mutex::default(),
        counters: Counters::default(),
        stopping: AtomicBool::new(false),
        stop: Wake::new().context("memory server")?,
    });
    // If an error drops the handle, it stops the running listeners.
    let mut handle = ServerHandle { shared, addresses, listeners: Vec::new() };
    for listener in listeners {
        let server = Arc::clone(&handle.shared);
        let thread = thread::Builder::new()
            .name("outercore-far-listen".to_owned())
            .spawn(move || listener.accept_all(&server))
            .context("memory server: thread for an address")?;
        handle.listeners.push(thread);
    }
    Ok(handle)
}

fn listen_on_plane(config: &ServerConfig, at: &str) -> Result<Box<dyn PlaneListener>> {
    let plane = config.data_plane.as_ref().ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("this server has no data plane for fabric://{at}"),
        )
        .hint("listen on HOST:PORT instead")
    })?;
    let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
    plane.listen(host, config.queues_per_session).with_context(|| format!("fabric://{at}"))
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct ServerHandle {
    shared: Arc<Server>,
    addresses: Vec<FarAddress>,
    listeners: Vec<JoinHandle<()>>,
}

impl ServerHandle {
    /// Listening addresses, with the assigned ports.
    pub fn addresses(&self) -> &[FarAddress] {
        &self.addresses
    }

    /// Memory of the server, and the regions that every client may see.
    pub fn status(&self) -> ServerStatus {
        let mut status = self.shared.status();
        status.regions = self.shared.regions.list(0, None, usize::MAX).0;
        status.regions.sort_by(|a, b| a.name.cmp(&b.name));
        status
    }

    /// Counters so far.
    pub fn counters(&self) -> ServerCounters {
        self.shared.counters.snapshot()
    }

    /// Closes all connections, ends all threads and frees all memory.
    ///
    /// **Cost** waits for the threads, which are all woken.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.stop.wake();
        for listener in self.listeners.drain(..) {
            // The thread has already printed its panic, and nothing is left to stop.
            let _ = listener.join();
        }
        let open = std::mem::take(&mut *self.shared.connections());
        for connection in open.open.values() {
            connection.socket.shutdown();
        }
        for connection in open.open.into_values() {
            let _ = connection.thread.map(JoinHandle::join);
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// State that the threads of a server share.
#[derive(Debug)]
struct Server {
    config: ServerConfig,
    regions: Regions,
    plane: Option<Box<dyn PlaneListener>>,
    /// Held while a region is granted, sealed or freed, so that no grant outlives the access to its
    /// region.
    plane_order: Mutex<()>,
    sessions: Mutex<HashMap<u64, Arc<Session>>>,
    connections: Mutex<Connections>,
    counters: Counters,
    stopping: AtomicBool,
    /// Wakes the listeners; never cleared.
    stop: Wake,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    open: HashMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    socket: Arc<Socket>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counters {
    read: AtomicU64,
    written: AtomicU64,
    requests: AtomicU64,
    turned_away: AtomicU64,
}

impl Counters {
    fn snapshot(&self) -> ServerCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerCounters {
            read: Bytes(get(&self.read)),
            written: Bytes(get(&self.written)),
            requests: get(&self.requests),
            turned_away: get(&self.turned_away),
        }
    }
}

impl Server {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status without regions.
    fn status(&self) -> ServerStatus {
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            size: self.config.size,
            used: self.regions.used(),
            clients: self.sessions().len() as u64,
            regions: Vec::new(),
        }
    }

    /// Serves a connection on a new thread.
    fn welcome(self: &Arc<Self>, socket: Socket, peer: Option<IpAddr>, strangers: &Arc<Strangers>) {
        let socket = Arc::new(socket);
        let mut connections = self.connections();
        connections.next += 1;
        let number = connections.next;
        strangers.enter(number, peer, &socket);
        let server = Arc::clone(self);
        let served = Arc::clone(&socket);
        let among = Arc::clone(strangers);
        let thread = thread::Builder::new()
            .name("outercore-far-serve".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                server.serve_connection(number, &served, &among);
                served.shutdown();
                server.connections().open.remove(&number);
            });
        match thread {
            // The thread removes itself from the list, and waits until it has been added.
            Ok(thread) => {
                connections.open.insert(number, OpenConnection { socket, thread: Some(thread) });
            }
            Err(_) => strangers.leave(number),
        }
    }

    fn serve_connection(&self, number: u64, socket: &Arc<Socket>, strangers: &Strangers) {
        let greeted = self.greet(number, socket);
        strangers.leave(number);
        match greeted {
            // The client learns the reason from its connection, so ignore the error.
            Ok(Greeted::Client(session)) => {
                let _ = control::serve(self, &session, socket);
                self.end_session(&session);
            }
            Ok(Greeted::Queue(session)) => {
                let _ = data::serve(self, &session, socket);
                session.left(number);
            }
            Err(_) => {
                self.counters.turned_away.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn plane_order(&self) -> MutexGuard<'_, ()> {
        self.plane_order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
