//! The control connection of a client: one request at a time, with keep-alive messages in between.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use outercore_core::{Context, Error, ErrorKind, Result};

use super::greet::Door;
use crate::data_plane::{MAX_BLOB, PlaneControl};
use crate::protocol::{self, ALLOCATION_STEP, MessageHeader, Reply, Request, Role, decode_error};
use crate::region::RegionKey;
use crate::socket::Socket;

/// The control connection.
pub(super) struct Control {
    door: Door,
    pub(super) session: u64,
    session_timeout: Duration,
    /// Only the holder of `line` sends and receives; any thread may shut the socket down.
    socket: Socket,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    next_id: u64,
    /// Why no more requests are possible, or `None`.
    dead: Option<String>,
}

impl Control {
    pub(super) fn connect(door: Door) -> Result<Self> {
        let greeted = door.enter(Role::Control, 0)?;
        Ok(Self {
            door,
            session: greeted.session,
            session_timeout: greeted.session_timeout,
            socket: greeted.socket,
            line: Mutex::new(Line { next_id: 1, dead: None }),
        })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// The error in the server's answer; `Io` if the server does not answer.
    pub(super) fn call(&self, request: &Request) -> Result<Reply> {
        let mut line = self.line();
        if let Some(dead) = &line.dead {
            return Err(Error::new(ErrorKind::Io, dead.clone()));
        }
        let id = line.next_id;
        line.next_id += 1;
        match exchange(&self.socket, id, request, self.door.timeout) {
            Ok(answer) => answer.map_err(|error| self.door.named(error)),
            Err(error) => {
                // Later bytes on this connection may belong to the failed request, so close it.
                let error = self.door.named(error);
                line.dead = Some(error.to_string());
                self.socket.shutdown();
                Err(Error::new(ErrorKind::Io, error.to_string()))
            }
        }
    }

    /// Why the server counts as gone; `None` while it is alive.
    pub(super) fn why_dead(&self) -> Option<String> {
        self.line().dead.clone()
    }

    /// Ends the session and wakes all waiting threads.
    fn hang_up(&self) {
        self.socket.shutdown();
        self.line().dead.get_or_insert_with(|| {
            format!("memory server {}: the connection is closed", self.door.address)
        });
    }
}

/// Sends one request and receives its answer; the outer error is an error of the connection.
fn exchange(
    socket: &Socket,
    id: u64,
    request: &Request,
    timeout: Duration,
) -> Result<Result<Reply>> {
    socket.write_before(&request.encode(id), Instant::now() + timeout)?;
    let mut signs_of_life = match request {
        Request::Allocate { len, .. } => len / ALLOCATION_STEP,
        _ => 0,
    };
    loop {
        let deadline = Instant::now() + timeout;
        let mut header = [0; protocol::MESSAGE_HEADER];
        socket.read_before(&mut header, deadline)?;
        let header = MessageHeader::decode(&header)?;
        let mut body = vec![0; header.len as usize];
        socket.read_before(&mut body, deadline)?;
        if (header.id, header.kind) != (id, request.kind()) {
            return Err(out_of_step());
        }
        match header.status {
            protocol::OK => return Ok(Ok(Reply::decode(request, &body)?)),
            protocol::WORKING if signs_of_life > 0 => signs_of_life -= 1,
            protocol::WORKING => return Err(out_of_step()),
            status => return Ok(Err(decode_error(status, &body))),
        }
    }
}

fn out_of_step() -> Error {
    Error::new(ErrorKind::Io, "it answers what was not asked")
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({})", self.door.address)
    }
}

impl PlaneControl for Control {
    fn offer(&self) -> Result<Vec<u8>> {
        blob(self.call(&Request::Offer)?)
    }

    fn grant(&self, key: RegionKey) -> Result<Vec<u8>> {
        blob(self.call(&Request::Grant { key })?)
    }
}

fn blob(reply: Reply) -> Result<Vec<u8>> {
    match reply {
        Reply::Blob(bytes) if bytes.len() <= MAX_BLOB => Ok(bytes),
        _ => Err(out_of_step()),
    }
}

/// A thread that keeps a session alive. Dropping it ends the session.
#[derive(Debug)]
pub(super) struct Pulse {
    control: Arc<Control>,
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    pub(super) fn start(control: Arc<Control>) -> Result<Self> {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = {
            let (control, ended) = (Arc::clone(&control), Arc::clone(&ended));
            thread::Builder::new()
                .name("outercore-far-ping".to_owned())
                .stack_size(128 << 10)
                .spawn(move || ping(&control, &ended))
                .context("thread that keeps a memory server's session alive")?
        };
        Ok(Self { control, ended, thread: Some(thread) })
    }
}

/// Sends keep-alive messages until the end or until the server is gone.
fn ping(control: &Control, ended: &(Mutex<bool>, Condvar)) {
    let interval = control.session_timeout / 3;
    let (flag, changed) = ended;
    let mut over = flag.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let waited = changed.wait_timeout_while(over, interval, |over| !*over);
        over = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *over {
            return;
        }
        drop(over);
        if control.call(&Request::Ping).is_err() {
            return;
        }
        over = flag.lock().unwrap_or_else(PoisonError::into_inner);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        *self.ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.1.notify_all();
        self.control.hang_up();
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic, and the session ends either way.
            let _ = thread.join();
        }
    }
}
