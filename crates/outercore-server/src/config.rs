//! Options of a server.

use std::net::IpAddr;
use std::path::PathBuf;

use outercore_core::{Bytes, Error, Result};
use outercore_infer::Precision;
use serde::Deserialize;

const MOST_QUEUE: u64 = 1 << 16;
const MOST_NODES: u64 = 1 << 20;
/// A day.
const MOST_DEADLINE_MS: u64 = 24 * 60 * 60 * 1000;

/// Configuration of a server: where it listens and which requests it takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address to listen on. An address that other machines can reach needs `tokens` and TLS.
    pub host: IpAddr,
    /// Token file. With it, every request needs one of its tokens.
    pub tokens: Option<PathBuf>,
    /// Certificate chain in PEM, the server's certificate first; needs `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate in PEM.
    pub tls_key: Option<PathBuf>,
    /// Port; 0 lets the system choose.
    pub port: u16,
    /// Port for gRPC; `None` turns gRPC off.
    pub grpc_port: Option<u16>,
    /// Whether clients may change the graph.
    pub updates: bool,
    /// Budget for analyses of the graph, in addition to `memory`; `None` refuses them.
    pub analyses: Option<Bytes>,
    /// Number format in which the network is computed.
    pub precision: Precision,
    /// Most points that int8 may lose against float32; a larger loss is refused.
    pub most_loss: f64,
    /// Budget for topology, features and weights. Not included: the network's states during an
    /// answer, 22 MiB for bodies, 16 KiB per waiting request and 64 KiB per connection.
    pub memory: Bytes,
    /// Threads that sample and compute; 0 means one per core.
    pub threads: usize,
    /// Most requests in the queue; more are refused.
    pub queue: usize,
    /// Most nodes of a request.
    pub most_nodes: u64,
    /// Longest time of a request, waiting included. A request may set a shorter one.
    pub deadline_ms: u64,
    /// Whether waiting requests are reordered so that neighbouring requests share nodes. This
    /// option and the next two do not change answers; they exist for measurements.
    pub reorder: bool,
    /// Most requests whose rows are read together; 0 means as many as fit the budget.
    pub group: usize,
    /// Part of the budget for cached states. `None` means an eighth, or less if the rest would be
    /// too small.
    pub states: Option<Bytes>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            tokens: None,
            tls_cert: None,
            tls_key: None,
            port: 8100,
            grpc_port: None,
            updates: false,
            analyses: None,
            precision: Precision::Float32,
            most_loss: 0.5,
            memory: Bytes::gib(1),
            threads: 0,
            queue: 256,
            most_nodes: 256,
            deadline_ms: 1000,
            reorder: true,
            group: 0,
            states: None,
        }
    }
}

impl ServerConfig {
    /// Checks the values beyond their types.
    ///
    /// # Errors
    /// `Invalid`, naming the field and what is accepted.
    pub fn validate(&self) -> Result<()> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(Error::invalid("tls_cert, tls_key: expected both, found one of them"));
        }
        if !self.host.is_loopback() && (self.tokens.is_none() || self.tls_cert.is_none()) {
            let text = format!(
                "host: other machines reach {}, expected `tokens`, `tls_cert` and `tls_key` with it",
                self.host
            );
            return Err(Error::invalid(text)
                .hint("without them serve on 127.0.0.1, behind a proxy that has both"));
        }
        if self.states.is_some_and(|states| states > self.memory) {
            return Err(Error::invalid("states: expected a part of the budget, found more"));
        }
        for (name, value, most) in [
            ("queue", self.queue as u64, MOST_QUEUE),
            ("most_nodes", self.most_nodes, MOST_NODES),
            ("deadline_ms", self.deadline_ms, MOST_DEADLINE_MS),
        ] {
            if value == 0 || value > most {
                return Err(Error::invalid(format!("{name}: expected 1 to {most}, found {value}")));
            }
        }
        if self.most_loss.is_nan() || self.most_loss < 0.0 {
            let found = self.most_loss;
            return Err(Error::invalid(format!("most_loss: expected 0 or more, found {found}")));
        }
        Ok(())
    }
}
