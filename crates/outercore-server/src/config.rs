//! What an operator can say about serving.

use std::net::IpAddr;
use std::path::PathBuf;

use outercore_core::{Bytes, Error, Result};
use outercore_infer::Precision;
use serde::Deserialize;

const MOST_QUEUE: u64 = 1 << 16;
const MOST_NODES: u64 = 1 << 20;
/// A day.
const MOST_DEADLINE_MS: u64 = 24 * 60 * 60 * 1000;

/// Everything that decides where the server listens and what it takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address to listen on. One that other machines reach needs `tokens` and TLS.
    pub host: IpAddr,
    /// File of tokens; where there is one, every request needs a token of it.
    pub tokens: Option<PathBuf>,
    /// Certificates in PEM, the server's own first; with `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate in PEM.
    pub tls_key: Option<PathBuf>,
    /// Port; 0 lets the system choose.
    pub port: u16,
    /// Port for gRPC; none without it.
    pub grpc_port: Option<u16>,
    /// Whether clients may change the graph.
    pub updates: bool,
    /// Budget for analyses of the graph, beside `memory`; none are taken without it.
    pub analyses: Option<Bytes>,
    /// The numbers in which the network is computed.
    pub precision: Precision,
    /// Most points that int8 may lose beside float32; it is refused where it loses more.
    pub most_loss: f64,
    /// Budget for topology, features and weights. The network's states while an answer is computed,
    /// 22 MiB for bodies and 16 KiB for each request that waits, and 64 KiB a connection come on top.
    pub memory: Bytes,
    /// Threads that sample and compute; 0 means one per core.
    pub threads: usize,
    /// Requests that may wait; more are refused.
    pub queue: usize,
    /// Most nodes of a request.
    pub most_nodes: u64,
    /// How long a request may take, waiting included, unless it says less.
    pub deadline_ms: u64,
    /// Whether requests that wait are answered in an order that brings common nodes together.
    /// Answers depend on neither this nor the next two, which are there to be measured.
    pub reorder: bool,
    /// Most requests whose rows are read together; 0 means as many as the budget has room for.
    pub group: usize,
    /// Part of the budget for states that later requests use again; `None` means an eighth, or
    /// less where the rest would be too small.
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
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// `Invalid`, naming the field and what is accepted.
    pub fn validate(&self) -> Result<()> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(Error::invalid("tls_cert, tls_key: expected both, found one of them"));
        }
        if !self.host.is_loopback() && (self.tokens.is_none() || self.tls_cert.is_none()) {
            let text = format!(
                "host: other machines reach {}, expected --tokens, --tls-cert and --tls-key with it",
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
