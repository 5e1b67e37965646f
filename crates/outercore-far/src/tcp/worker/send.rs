//! Sends requests for transfers in flight, and the bytes of writes.

use std::io::{self, IoSlice, Write};
use std::time::Instant;

use outercore_core::Result;

use super::Worker;
use crate::client::greet::closed;
use crate::protocol::{DataRequest, Operation, REQUEST_HEADER};

/// Requests are gathered up to this many bytes before they are sent.
pub(super) const GATHERED: usize = 4096;

/// Bytes to send: headers, followed by the payload of the last one if it is a write.
#[derive(Default)]
pub(super) struct Outgoing {
    headers: Vec<u8>,
    headers_sent: usize,
    payload: Option<Payload>,
    /// Whether the socket's buffer is full.
    pub(super) blocked: bool,
}

/// The part of a lease to send.
struct Payload {
    number: u64,
    from: usize,
    to: usize,
}

impl Worker {
    /// Sends requests until none are left or the socket's buffer is full.
    pub(super) fn send(&mut self) -> Result<()> {
        while !self.outgoing.blocked {
            if self.outgoing.is_empty() {
                self.prepare();
                if self.outgoing.is_empty() {
                    return Ok(());
                }
            }
            let out = &self.outgoing;
            let payload = out.payload.as_ref().map_or(&[][..], |payload| {
                let lease = &self.flight[(payload.number - self.first) as usize].transfer.lease;
                &lease[payload.from..payload.to]
            });
            let parts = [IoSlice::new(&out.headers[out.headers_sent..]), IoSlice::new(payload)];
            match (&mut &self.socket).write_vectored(&parts) {
                Ok(0) => return Err(closed()),
                Ok(bytes) => self.sent(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.outgoing.blocked = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Prepares the next requests: reads up to a total length of headers, or up to and including
    /// one write.
    fn prepare(&mut self) {
        self.outgoing.headers.clear();
        self.outgoing.headers_sent = 0;
        // All transfers before this one are requested completely.
        let from = self.flight.partition_point(|one| one.requested == one.transfer.len);
        for (index, one) in self.flight.iter_mut().enumerate().skip(from) {
            let number = self.first + index as u64;
            while one.requested < one.transfer.len {
                let len = self.chunk.min(one.transfer.len - one.requested);
                let request = DataRequest {
                    operation: one.operation,
                    len: len as u32,
                    tag: number,
                    key: one.transfer.region.key,
                    offset: one.transfer.offset + one.requested as u64,
                };
                self.outgoing.headers.extend(request.encode());
                let at = one.requested;
                one.requested += len;
                if one.operation == Operation::Write {
                    self.outgoing.payload = Some(Payload { number, from: at, to: at + len });
                    return;
                }
                self.answerable += 1;
                if self.outgoing.headers.len() + REQUEST_HEADER > GATHERED {
                    return;
                }
            }
        }
    }

    fn sent(&mut self, bytes: usize) {
        self.progress = Instant::now();
        let out = &mut self.outgoing;
        let of_headers = bytes.min(out.headers.len() - out.headers_sent);
        out.headers_sent += of_headers;
        if let Some(payload) = &mut out.payload {
            payload.from += bytes - of_headers;
            if payload.from == payload.to {
                out.payload = None;
                self.answerable += 1;
            }
        }
    }
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.headers_sent == self.headers.len() && self.payload.is_none()
    }
}
