//! A network that fails on command: forwards bytes between a client and a server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What happens to further bytes after the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// All connections are closed, and new ones are closed at once.
    Cut,
    /// Bytes stop moving; connections stay open, and new ones are accepted.
    Stall,
}

/// Behaviour of the network.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Limit of forwarded bytes, for both directions and all connections together.
    pub passes: u64,
    pub then: Then,
    /// Delay of every packet.
    pub delay: Duration,
}

impl Network {
    pub const GOOD: Self = Self { passes: u64::MAX, then: Then::Cut, delay: Duration::ZERO };
}

/// Ends, with all its threads, when it is dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    network: Network,
    target: String,
    state: Mutex<State>,
    ends: Condvar,
}

#[derive(Default)]
struct State {
    passed: u64,
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
    ending: bool,
}

impl Proxy {
    /// Forwards to `target`, an address of the form `HOST:PORT`.
    pub fn start(target: &str, network: Network) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            network,
            target: target.to_owned(),
            state: Mutex::default(),
            ends: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.state().ending {
                    return;
                }
                if let Ok(stream) = stream {
                    accepting.take(stream);
                }
            }
        });
        Self { shared, address, listener: Some(thread) }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Number of forwarded bytes.
    pub fn passed(&self) -> u64 {
        self.shared.state().passed
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.ending = true;
            cut(&state);
        }
        self.shared.ends.notify_all();
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
        let threads = std::mem::take(&mut self.shared.state().threads);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

fn cut(state: &State) {
    for stream in &state.streams {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, client: TcpStream) {
        let over = self.state().passed >= self.network.passes;
        if over && self.network.then == Then::Cut {
            return;
        }
        let Ok(server) = TcpStream::connect(&self.target) else { return };
        let mut state = self.state();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let shared = Arc::clone(self);
            state.threads.push(std::thread::spawn(move || shared.forward(from, to)));
        }
        state.streams.extend([client, server]);
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        // Not a multiple of any message, so that messages are split at any place.
        let mut packet = [0; 1460];
        loop {
            let len = from.read(&mut packet).unwrap_or(0);
            if !self.network.delay.is_zero() {
                std::thread::sleep(self.network.delay);
            }
            let mut state = self.state();
            let room = (self.network.passes - state.passed).min(len as u64);
            state.passed += room;
            drop(state);
            if to.write_all(&packet[..room as usize]).is_err() || len == 0 {
                // If one side closes, close the other.
                let _ = to.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
            if room < len as u64 {
                let mut state = self.state();
                match self.network.then {
                    Then::Cut => cut(&state),
                    Then::Stall => {
                        while !state.ending {
                            state = self.ends.wait(state).unwrap_or_else(PoisonError::into_inner);
                        }
                    }
                }
                return;
            }
        }
    }
}
