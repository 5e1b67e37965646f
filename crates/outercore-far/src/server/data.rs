//! Transfers: requests are answered in order of arrival.
//!
//! Reads go from the region to the socket without passing through this program (`sendfile`). Short
//! reads are copied and gathered instead, because the system call would cost more than the copy.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use outercore_core::{Error, ErrorKind, Result};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use super::Server;
use super::regions::Region;
use super::session::Session;
use crate::protocol::{
    self, DataReply, DataRequest, Operation, REPLY_HEADER, REQUEST_HEADER, encode_error,
};
use crate::socket::Socket;

/// Size of a connection's receive buffer.
const INPUT: usize = 256 << 10;

/// Reads up to this length are copied and gathered.
const SHORT: usize = 16 << 10;

/// Gathered answers are sent at this many bytes, or when no request is left.
const GATHERED: usize = 64 << 10;

/// Serves one data connection until it closes, stalls or violates the protocol.
pub(super) fn serve(server: &Server, session: &Session, socket: &Socket) -> Result<()> {
    socket.set_timeout(server.config.session_timeout)?;
    let mut wire = Wire {
        socket,
        input: vec![0; INPUT].into_boxed_slice(),
        start: 0,
        end: 0,
        output: Vec::with_capacity(GATHERED + SHORT + REPLY_HEADER),
    };
    while let Some(header) = wire.next_header(|| session.has_ended())? {
        server.counters.requests.fetch_add(1, Ordering::Relaxed);
        let request = match DataRequest::decode(&header) {
            Ok(request) => request,
            Err(error) => {
                // The start of the next request is unknown, so the connection must end.
                let tag = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
                wire.refuse(tag, &error)?;
                wire.flush(SendFlags::empty())?;
                return Err(error);
            }
        };
        match request.operation {
            Operation::Read => read(server, session, &mut wire, &request)?,
            Operation::Write => write(server, session, &mut wire, &request)?,
            Operation::Map => map(server, session, &mut wire, &request)?,
        }
    }
    Ok(())
}

fn read(
    server: &Server,
    session: &Session,
    wire: &mut Wire<'_>,
    request: &DataRequest,
) -> Result<()> {
    let len = request.len as usize;
    let found = server.regions.readable(session.id, request.key).and_then(|region| {
        region.check_range(request.offset, len)?;
        Ok(region)
    });
    match found {
        Ok(region) => {
            wire.send_region(request.tag, &region, request.offset, len)?;
            server.counters.read.fetch_add(len as u64, Ordering::Relaxed);
            Ok(())
        }
        Err(error) => wire.refuse(request.tag, &error),
    }
}

fn write(
    server: &Server,
    session: &Session,
    wire: &mut Wire<'_>,
    request: &DataRequest,
) -> Result<()> {
    let len = request.len as usize;
    let found = server.regions.writable(session.id, request.key).and_then(|region| {
        region.check_range(request.offset, len)?;
        Ok(region)
    });
    let (region, mut outcome) = match found {
        Ok(region) => (Some(region), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // Receive the bytes even if they are refused, because the next request follows them.
    let mut done = 0;
    while done < len {
        let piece = wire.take(len - done)?;
        if let (Some(region), Ok(())) = (&region, &outcome) {
            outcome = region.write(request.offset + done as u64, piece);
        }
        done += piece.len();
    }
    match outcome {
        Ok(()) => {
            server.counters.written.fetch_add(len as u64, Ordering::Relaxed);
            wire.reply(DataReply { status: protocol::OK, len: 0, tag: request.tag }, &[])
        }
        Err(error) => wire.refuse(request.tag, &error),
    }
}

fn map(
    server: &Server,
    session: &Session,
    wire: &mut Wire<'_>,
    request: &DataRequest,
) -> Result<()> {
    let region = match server.regions.readable(session.id, request.key) {
        Ok(region) => region,
        Err(error) => return wire.refuse(request.tag, &error),
    };
    let memory = match (wire.socket, region.unchangeable()) {
        (Socket::Tcp(_), _) => {
            Err(Error::new(ErrorKind::Unsupported, "memory is shared over Unix sockets only"))
        }
        (Socket::Unix(_), memory) => {
            memory.and_then(|memory| session.hold(&region).map(|()| memory))
        }
    };
    match memory {
        Ok(memory) => wire.send_descriptor(request.tag, memory),
        Err(error) => wire.refuse(request.tag, &error),
    }
}

/// A data connection with its buffers.
struct Wire<'a> {
    socket: &'a Socket,
    input: Box<[u8]>,
    /// Start of the received bytes that are not yet used.
    start: usize,
    end: usize,
    /// Gathered answers.
    output: Vec<u8>,
}

impl Wire<'_> {
    /// The header of the next request; `None` if the connection is closed between two requests.
    /// Between requests a client may be silent as long as its session lasts.
    fn next_header(&mut self, ended: impl Fn() -> bool) -> Result<Option<[u8; REQUEST_HEADER]>> {
        while self.end - self.start < REQUEST_HEADER {
            self.flush(SendFlags::empty())?;
            let between = self.start == self.end;
            match self.fill() {
                Ok(0) if between => return Ok(None),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(_) => {}
                Err(error) if between && error.kind() == io::ErrorKind::WouldBlock && !ended() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut header = [0; REQUEST_HEADER];
        header.copy_from_slice(&self.input[self.start..self.start + REQUEST_HEADER]);
        self.start += REQUEST_HEADER;
        Ok(Some(header))
    }

    /// Waits for bytes and receives them.
    fn fill(&mut self) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match (&mut &*self.socket).read(&mut self.input[self.end..]) {
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Up to `most` of the received bytes, at least one.
    fn take(&mut self, most: usize) -> Result<&[u8]> {
        if self.start == self.end {
            // Send earlier answers first: the client may wait for them before it sends the rest.
            self.flush(SendFlags::empty())?;
            if self.fill()? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        let from = self.start;
        self.start = self.end.min(from + most);
        Ok(&self.input[from..self.start])
    }

    fn refuse(&mut self, tag: u64, error: &Error) -> Result<()> {
        let (status, text) = encode_error(error);
        self.reply(DataReply { status, len: text.len() as u32, tag }, text.as_bytes())
    }

    fn reply(&mut self, reply: DataReply, payload: &[u8]) -> Result<()> {
        self.output.extend(reply.encode());
        self.output.extend(payload);
        self.flush_if_long()
    }

    fn flush_if_long(&mut self) -> Result<()> {
        if self.output.len() < GATHERED { Ok(()) } else { self.flush(SendFlags::empty()) }
    }

    fn flush(&mut self, flags: SendFlags) -> Result<()> {
        let mut sent = 0;
        while sent < self.output.len() {
            match send(self.socket, &self.output[sent..], flags | SendFlags::NOSIGNAL) {
                Ok(bytes) => sent += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        self.output.clear();
        Ok(())
    }

    /// Answers with a range of a region; the range was already checked.
    fn send_region(&mut self, tag: u64, region: &Region, offset: u64, len: usize) -> Result<()> {
        let header = DataReply { status: protocol::OK, len: len as u32, tag };
        self.output.extend(header.encode());
        if len <= SHORT {
            self.copy_region(region, offset, len)?;
            return self.flush_if_long();
        }
        self.flush(SendFlags::MORE)?;
        if !region.is_sealed() {
            // `sendfile` sends the region's memory without a copy. A write before the client has
            // received it would change the answer, so an unsealed region is copied.
            return self.send_copies(region, offset, len);
        }
        let mut sent = 0;
        while sent < len {
            let mut from = offset + sent as u64;
            match rustix::fs::sendfile(self.socket, region, Some(&mut from), len - sent) {
                Ok(0) => return Err(Error::internal("a region ends before its length")),
                Ok(bytes) => sent += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                    return self.send_copies(region, offset + sent as u64, len - sent);
                }
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Sends the rest of an answer through a buffer.
    fn send_copies(&mut self, region: &Region, offset: u64, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let piece = GATHERED.min(len - done);
            self.copy_region(region, offset + done as u64, piece)?;
            self.flush(SendFlags::empty())?;
            done += piece;
        }
        Ok(())
    }

    fn copy_region(&mut self, region: &Region, offset: u64, len: usize) -> Result<()> {
        let from = self.output.len();
        self.output.resize(from + len, 0);
        Ok(region.read(offset, &mut self.output[from..])?)
    }

    /// Answers with the file descriptor of a region.
    fn send_descriptor(&mut self, tag: u64, memory: BorrowedFd<'_>) -> Result<()> {
        self.flush(SendFlags::empty())?;
        let header = DataReply { status: protocol::OK, len: 0, tag }.encode();
        let descriptors = [memory];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Error::internal("no room for one file descriptor"));
        }
        let parts = [IoSlice::new(&header)];
        let socket = self.socket.as_fd();
        let sent = loop {
            match sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.map_err(io::Error::from)?,
            }
        };
        // The descriptor was sent with the first byte.
        let mut rest = self.socket;
        Ok(rest.write_all(&header[sent..])?)
    }
}
