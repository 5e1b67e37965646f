//! Sessions of clients: authentication, connections and clean-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outercore_core::{Error, ErrorKind, Result};

use super::Server;
use super::regions::{Region, Room};
use crate::auth::{Prover, random, random_number};
use crate::protocol::{self, Hello, NONCE, PROOF, Role, Verdict};
use crate::socket::Socket;

/// Time in which a client has to authenticate.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// A client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    queues: Mutex<Queues>,
}

/// The data connections of a client.
#[derive(Debug, Default)]
struct Queues {
    ended: bool,
    open: HashMap<u64, Arc<Socket>>,
    /// Shares of the regions whose memory the client has received, by key. The server cannot see
    /// when a client closes one, so they are held until the session ends.
    held: HashMap<u64, Arc<Room>>,
}

impl Session {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a data connection has closed.
    pub(super) fn left(&self, number: u64) {
        self.queues().open.remove(&number);
    }

    /// Counts the memory of a region as used until the session ends. Call it before the client
    /// receives the memory.
    ///
    /// # Errors
    /// `Io`: the session has ended.
    pub(super) fn hold(&self, region: &Region) -> Result<()> {
        let mut queues = self.queues();
        if queues.ended {
            return Err(gone());
        }
        queues.held.entry(region.key.0).or_insert_with(|| region.room());
        Ok(())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.queues().ended
    }
}

/// The identity of an authenticated connection.
#[derive(Debug)]
pub(super) enum Greeted {
    /// The control connection of a new session.
    Client(Arc<Session>),
    /// A data connection of a session.
    Queue(Arc<Session>),
}

impl Greeted {
    fn session(&self) -> &Session {
        match self {
            Self::Client(session) | Self::Queue(session) => session,
        }
    }
}

impl Server {
    /// Authenticates a connection, and answers.
    pub(super) fn greet(&self, number: u64, socket: &Arc<Socket>) -> Result<Greeted> {
        let deadline = Instant::now() + HELLO_PATIENCE;
        socket.prepare(self.config.session_timeout)?;
        let mut preamble = [0; protocol::PREAMBLE];
        socket.read_before(&mut preamble, deadline)?;
        // Also sent to a client of another version, so that it can report the mismatch.
        socket.write_before(&protocol::preamble(), deadline)?;
        protocol::check_preamble(preamble, "memory server", "client")?;
        let mut hello = [0; protocol::HELLO];
        socket.read_before(&mut hello, deadline)?;
        let hello = Hello::decode(&hello)?;
        let mut nonce = [0; NONCE];
        random(&mut nonce)?;
        socket.write_before(&nonce, deadline)?;
        let mut proof = [0; PROOF];
        socket.read_before(&mut proof, deadline)?;

        let greeted = if self.config.token.proves(Prover::Client, &hello, &nonce, &proof) {
            self.admit(number, &hello, socket)
        } else {
            Err(Error::invalid("this is not the server's token")
                .hint("give the client the token file that the server was started with"))
        };
        let verdict = match &greeted {
            Ok(greeted) => Verdict {
                status: protocol::OK,
                text_len: 0,
                session_timeout_ms: self.config.session_timeout.as_millis() as u32,
                session: greeted.session().id,
                proof: self.config.token.prove(Prover::Server, &hello, &nonce),
            }
            .encode()
            .to_vec(),
            Err(error) => {
                let (status, text) = protocol::encode_error(error);
                let verdict = Verdict {
                    status,
                    text_len: text.len() as u16,
                    session_timeout_ms: 0,
                    session: 0,
                    proof: [0; PROOF],
                };
                [&verdict.encode()[..], text.as_bytes()].concat()
            }
        };
        if let Err(error) = socket.write_before(&verdict, deadline) {
            match &greeted {
                Ok(Greeted::Client(session)) => self.end_session(session),
                Ok(Greeted::Queue(session)) => session.left(number),
                Err(_) => {}
            }
            return Err(error.into());
        }
        greeted
    }

    /// Opens a session, or lets a data connection join one.
    fn admit(&self, number: u64, hello: &Hello, socket: &Arc<Socket>) -> Result<Greeted> {
        let too_many = |what: &str, most: usize| {
            Error::new(ErrorKind::Io, format!("the memory server has {most} {what} already"))
        };
        let mut sessions = self.sessions();
        match hello.role {
            Role::Control => {
                if sessions.len() >= self.config.sessions {
                    return Err(too_many("clients", self.config.sessions));
                }
                let session = Arc::new(Session { id: random_number()?, queues: Mutex::default() });
                sessions.insert(session.id, Arc::clone(&session));
                Ok(Greeted::Client(session))
            }
            Role::Data => {
                let session = sessions.get(&hello.session).cloned().ok_or_else(gone)?;
                drop(sessions);
                let mut queues = session.queues();
                if queues.ended {
                    return Err(gone());
                }
                if queues.open.len() >= self.config.queues_per_session {
                    return Err(too_many("queues of this client", self.config.queues_per_session));
                }
                queues.open.insert(number, Arc::clone(socket));
                drop(queues);
                Ok(Greeted::Queue(session))
            }
        }
    }

    /// Closes the connections of a client and frees its regions.
    pub(super) fn end_session(&self, session: &Session) {
        self.sessions().remove(&session.id);
        let mut queues = session.queues();
        queues.ended = true;
        for socket in queues.open.values() {
            socket.shutdown();
        }
        queues.held.clear();
        drop(queues);
        let _order = self.plane_order();
        let left = self.regions.session_ended(session.id);
        if let Some(plane) = &self.plane {
            plane.session_ended(session.id);
            for region in left {
                if plane.withdraw(region.key).is_err() {
                    self.regions.write_off(region);
                }
            }
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Io, "the session has ended")
}
