//! Start of a connection: versions and authentication.

use std::io;
use std::time::{Duration, Instant};

use outercore_core::{Error, ErrorKind, Result};

use crate::auth::{Prover, Token, random};
use crate::options::FarAddress;
use crate::protocol::{self, Hello, MAX_TEXT, NONCE, Role, Verdict, decode_error};
use crate::socket::Socket;

/// The address of the server and the token.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) address: FarAddress,
    pub(crate) token: Token,
    /// Longest silence of the server before it counts as gone.
    pub(crate) timeout: Duration,
}

/// A connection on which both ends have authenticated each other.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) socket: Socket,
    pub(crate) session: u64,
    /// Silence after which the server ends the session.
    pub(crate) session_timeout: Duration,
}

impl Door {
    /// Opens a connection; `session` is the session that a data connection joins.
    ///
    /// # Errors
    /// `Io`: no answer, or the server accepts no more connections. `Invalid`: the other end is not
    /// a memory server, or has another token. `Version`: it has another version.
    pub(crate) fn enter(&self, role: Role, session: u64) -> Result<Greeted> {
        self.try_enter(role, session).map_err(|error| self.named(error))
    }

    fn try_enter(&self, role: Role, session: u64) -> Result<Greeted> {
        let deadline = Instant::now() + self.timeout;
        let socket = Socket::connect(&self.address, deadline).map_err(|error| {
            match error.kind() {
                // A missing socket file means that no server is running.
                ErrorKind::NotFound => Error::new(ErrorKind::Io, error.to_string()),
                _ => error,
            }
            .hint("start one with `outercore memory-server`, or check the address")
        })?;
        socket.prepare(self.timeout)?;
        let mut nonce = [0; NONCE];
        random(&mut nonce)?;
        let hello = Hello { role, session, nonce };
        let opening = [&protocol::preamble()[..], &hello.encode()].concat();
        socket.write_before(&opening, deadline)?;

        let mut preamble = [0; protocol::PREAMBLE];
        socket.read_before(&mut preamble, deadline)?;
        protocol::check_preamble(preamble, "client", "memory server")?;
        let mut server_nonce = [0; NONCE];
        socket.read_before(&mut server_nonce, deadline)?;
        let proof = self.token.prove(Prover::Client, &hello, &server_nonce);
        socket.write_before(&proof, deadline)?;

        let mut verdict = [0; protocol::VERDICT];
        socket.read_before(&mut verdict, deadline)?;
        let verdict = Verdict::decode(&verdict);
        if verdict.status != protocol::OK {
            let mut text = vec![0; usize::from(verdict.text_len).min(MAX_TEXT)];
            socket.read_before(&mut text, deadline)?;
            return Err(decode_error(verdict.status, &text));
        }
        if !self.token.proves(Prover::Server, &hello, &server_nonce, &verdict.proof) {
            return Err(Error::invalid("the server does not hold this token")
                .hint("it may be a stranger's: check the address"));
        }
        let session_timeout = Duration::from_millis(verdict.session_timeout_ms.into());
        Ok(Greeted { socket, session: verdict.session, session_timeout })
    }

    /// Adds the server's address to an error.
    pub(crate) fn named(&self, error: Error) -> Error {
        plain(error, self.timeout).context(format!("memory server {}", self.address))
    }
}

/// Describes a network error in plain words.
pub(crate) fn plain(error: Error, timeout: Duration) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    match source.map(io::Error::kind) {
        Some(io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => no_answer(timeout),
        Some(
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted,
        ) => closed(),
        _ => error,
    }
}

/// The error for a server that has been silent for `timeout`.
pub(crate) fn no_answer(timeout: Duration) -> Error {
    Error::new(ErrorKind::Io, format!("no answer for {} s", timeout.as_secs_f64()))
}

/// The error for a connection that the other end has closed.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Io, "it closed the connection")
}
