//! Receives answers in the order of the requests, directly into the leases.

use std::io::{self, IoSliceMut, Read};
use std::time::Instant;

use outercore_core::Result;

use super::{Worker, out_of_step};
use crate::client::greet::closed;
use crate::protocol::{self, DataReply, MAX_TEXT, Operation, REPLY_HEADER, decode_error};

/// The answer in progress.
#[derive(Default)]
pub(super) struct Incoming {
    header: [u8; REPLY_HEADER],
    header_bytes: usize,
    body: Body,
}

#[derive(Default)]
enum Body {
    /// The header first.
    #[default]
    Header,
    /// Data for the first lease in flight, from `at` to `to`.
    Lease { at: usize, to: usize },
    /// An error text that answers `len` bytes of the first transfer.
    Text { status: u16, text: Vec<u8>, filled: usize, len: usize },
}

/// Result of an attempt to receive.
#[derive(PartialEq, Eq)]
pub(super) enum Received {
    Something,
    Nothing,
}

impl Worker {
    /// Makes one attempt to receive.
    pub(super) fn receive(&mut self) -> Result<Received> {
        let incoming = &mut self.incoming;
        let rest_of_header = &mut incoming.header[incoming.header_bytes..];
        let mut socket = &self.socket;
        let result = match &mut incoming.body {
            Body::Header => socket.read(rest_of_header),
            // The header of the next answer may follow in the same read.
            Body::Lease { at, to } => {
                let lease = &mut self.flight[0].transfer.lease[*at..*to];
                socket.read_vectored(&mut [IoSliceMut::new(lease), IoSliceMut::new(rest_of_header)])
            }
            Body::Text { text, filled, .. } => socket.read(&mut text[*filled..]),
        };
        match result {
            Ok(0) => Err(closed()),
            Ok(bytes) => {
                self.progress = Instant::now();
                self.received(bytes)?;
                Ok(Received::Something)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Received::Something),
            Err(error) => Err(error.into()),
        }
    }

    fn received(&mut self, bytes: usize) -> Result<()> {
        let incoming = &mut self.incoming;
        match &mut incoming.body {
            Body::Header => incoming.header_bytes += bytes,
            Body::Lease { at, to } => {
                let of_lease = bytes.min(*to - *at);
                *at += of_lease;
                incoming.header_bytes += bytes - of_lease;
                if at == to {
                    let to = *to;
                    incoming.body = Body::Header;
                    self.answer(to, None);
                }
            }
            Body::Text { status, text, filled, len } => {
                *filled += bytes;
                if *filled == text.len() {
                    let error = decode_error(*status, text);
                    let to = self.flight[0].answered + *len;
                    incoming.body = Body::Header;
                    self.answer(to, Some(error));
                }
            }
        }
        if self.incoming.header_bytes == REPLY_HEADER {
            self.incoming.header_bytes = 0;
            let reply = DataReply::decode(&self.incoming.header);
            self.begin_answer(reply)?;
        }
        Ok(())
    }

    /// Processes the header of an answer, which must belong to the oldest request.
    fn begin_answer(&mut self, reply: DataReply) -> Result<()> {
        let Some(one) = self.flight.front() else { return Err(out_of_step()) };
        if self.answerable == 0 || reply.tag != self.first {
            return Err(out_of_step());
        }
        self.answerable -= 1;
        let len = self.chunk.min(one.transfer.len - one.answered);
        let to = one.answered + len;
        let expected = match one.operation {
            Operation::Read => len,
            _ => 0,
        };
        let bytes = reply.len as usize;
        match (reply.status, bytes) {
            (protocol::OK, bytes) if bytes == expected => {
                if expected == 0 {
                    self.answer(to, None);
                } else {
                    self.incoming.body = Body::Lease { at: one.answered, to };
                }
            }
            (protocol::OK, _) => return Err(out_of_step()),
            (_, bytes) if bytes > MAX_TEXT => return Err(out_of_step()),
            (status, 0) => self.answer(to, Some(decode_error(status, b"refused"))),
            (status, bytes) => {
                let text = vec![0; bytes];
                self.incoming.body = Body::Text { status, text, filled: 0, len };
            }
        }
        Ok(())
    }
}
