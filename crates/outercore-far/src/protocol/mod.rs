//! Our own protocol (docs/far-protocol.md): encodes and decodes messages. Opens no connection.
//!
//! All values are little endian and headers have a fixed size. Every length is checked against its
//! limit before memory is allocated for it.

mod control;
mod fields;
mod greeting;
mod names;
mod status;
mod transfer;

pub(crate) use control::{
    MESSAGE_HEADER, MessageHeader, Reply, Request, StatusPage, refusal, working,
};
pub(crate) use greeting::{
    HELLO, Hello, NONCE, PREAMBLE, PROOF, Role, VERDICT, Verdict, check_preamble, preamble,
};
pub(crate) use names::check_name;
pub(crate) use status::{OK, WORKING, decode_error, encode_error};
pub(crate) use transfer::{DataReply, DataRequest, Operation, REPLY_HEADER, REQUEST_HEADER};

/// Version of the protocol; both ends must have the same.
pub const VERSION: u16 = 1;

/// Longest control message, header included.
pub const MAX_MESSAGE: usize = 64 << 10;

/// Most bytes that one data request moves.
pub const MAX_TRANSFER: usize = 16 << 20;

/// Longest name of a region in bytes.
pub const MAX_NAME: usize = 255;

/// Longest text of an error.
pub const MAX_TEXT: usize = 1024;

/// While the server allocates a region, it sends a sign of life after each step of this many bytes.
pub const ALLOCATION_STEP: u64 = 64 << 20;
