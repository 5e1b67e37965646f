//! Our own protocol: values to bytes and back (docs/far-protocol.md). Opens no connection.
//!
//! Everything is little endian, headers are of fixed size, and every length is compared with its
//! limit before memory is taken for it.

use outercore_core::{Bytes, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::remote::{Region, RegionKey, ServerStatus};

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

/// While a region is being allocated the server gives a sign of life each time it has so much.
pub const ALLOCATION_STEP: u64 = 64 << 20;

pub(crate) const NONCE: usize = 32;
pub(crate) const PROOF: usize = 32;
pub(crate) const PREAMBLE: usize = 8;
pub(crate) const HELLO: usize = 48;
pub(crate) const VERDICT: usize = 48;
pub(crate) const MESSAGE_HEADER: usize = 16;
pub(crate) const REQUEST_HEADER: usize = 32;
pub(crate) const REPLY_HEADER: usize = 16;

const MAGIC: [u8; 6] = *b"OCFAR\0";

/// The first bytes that either end sends, the same in every version: who it is, and which version.
pub(crate) fn preamble() -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..6].copy_from_slice(&MAGIC);
    bytes[6..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Compares the preamble of the other end (`them`) with ours (`us`).
pub(crate) fn check_preamble(bytes: [u8; PREAMBLE], us: &str, them: &str) -> Result<()> {
    if bytes[..6] != MAGIC {
        return Err(Error::invalid(format!("what answers is no {them} of Outercore"))
            .hint("check host and port"));
    }
    let version = u16::from_le_bytes([bytes[6], bytes[7]]);
    if version != VERSION {
        return Err(Error::new(
            ErrorKind::Version,
            format!("the {them} speaks version {version} of the protocol, this {us} {VERSION}"),
        )
        .hint("install the same version of Outercore on both sides"));
    }
    Ok(())
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Control messages; a new session.
    Control,
    /// Transfers; joins a session.
    Data,
}

/// What a client says of itself after the preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    /// The session that a data connection joins; 0 for control.
    pub(crate) session: u64,
    pub(crate) nonce: [u8; NONCE],
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[0] = match self.role {
            Role::Control => 1,
            Role::Data => 2,
        };
        bytes[8..16].copy_from_slice(&self.session.to_le_bytes());
        bytes[16..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HELLO]) -> Result<Self> {
        let role = match bytes[0] {
            1 => Role::Control,
            2 => Role::Data,
            other => return Err(Error::invalid(format!("no such role: {other}"))),
        };
        Ok(Self { role, session: u64_at(bytes, 8), nonce: array_at(bytes, 16) })
    }
}

/// The server's answer to a client's proof; a text follows where it is a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: u16,
    pub(crate) text_len: u16,
    pub(crate) session_timeout_ms: u32,
    pub(crate) session: u64,
    pub(crate) proof: [u8; PROOF],
}

impl Verdict {
    pub(crate) fn encode(&self) -> [u8; VERDICT] {
        let mut bytes = [0; VERDICT];
        bytes[..2].copy_from_slice(&self.status.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.text_len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.session_timeout_ms.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.session.to_le_bytes());
        bytes[16..].copy_from_slice(&self.proof);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; VERDICT]) -> Self {
        Self {
            status: u16_at(bytes, 0),
            text_len: u16_at(bytes, 2),
            session_timeout_ms: u32_at(bytes, 4),
            session: u64_at(bytes, 8),
            proof: array_at(bytes, 16),
        }
    }
}

/// It was done; the payload follows.
pub(crate) const OK: u16 = 0;

/// Being worked at; the answer comes in a later message.
pub(crate) const WORKING: u16 = 1;

/// The number by which the kind of an error travels.
fn status_of(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Invalid => 2,
        ErrorKind::NotFound => 3,
        ErrorKind::NoSpace => 4,
        ErrorKind::Version => 6,
        ErrorKind::Unsupported => 7,
        ErrorKind::Internal => 8,
        _ => 5,
    }
}

fn kind_of(status: u16) -> ErrorKind {
    match status {
        2 => ErrorKind::Invalid,
        3 => ErrorKind::NotFound,
        4 => ErrorKind::NoSpace,
        6 => ErrorKind::Version,
        7 => ErrorKind::Unsupported,
        8 => ErrorKind::Internal,
        _ => ErrorKind::Io,
    }
}

const HINT: &str = "\nhint: ";

/// An error as it travels: a status and a text of at most [`MAX_TEXT`] bytes.
pub(crate) fn encode_error(error: &Error) -> (u16, String) {
    let mut text = error.to_string();
    if text.len() > MAX_TEXT {
        let mut end = MAX_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    (status_of(error.kind()), text)
}

/// The error that a status and a text stand for; nothing in the text can steer a terminal.
pub(crate) fn decode_error(status: u16, text: &[u8]) -> Error {
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]);
    let plain = |text: &str| text.replace(char::is_control, " ");
    match text.split_once(HINT) {
        Some((message, hint)) => Error::new(kind_of(status), plain(message)).hint(plain(hint)),
        None => Error::new(kind_of(status), plain(&text)),
    }
}

/// Header of a control message; a body of `len` bytes follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    pub(crate) len: u32,
    pub(crate) kind: u16,
    pub(crate) status: u16,
    pub(crate) id: u64,
}

impl MessageHeader {
    pub(crate) fn encode(&self) -> [u8; MESSAGE_HEADER] {
        let mut bytes = [0; MESSAGE_HEADER];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.status.to_le_bytes());
        bytes[8..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// # Errors
    /// `Invalid`: the body is longer than a message may be.
    pub(crate) fn decode(bytes: &[u8; MESSAGE_HEADER]) -> Result<Self> {
        let len = u32_at(bytes, 0);
        if len as usize > MAX_MESSAGE - MESSAGE_HEADER {
            return Err(Error::invalid(format!(
                "a control message of {len} bytes, expected at most {}",
                MAX_MESSAGE - MESSAGE_HEADER
            )));
        }
        Ok(Self { len, kind: u16_at(bytes, 4), status: u16_at(bytes, 6), id: u64_at(bytes, 8) })
    }
}

/// What a client asks for over its control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Allocate {
        len: u64,
        name: Option<String>,
    },
    Seal {
        key: RegionKey,
        keep: bool,
    },
    Find {
        name: String,
    },
    Free {
        key: RegionKey,
    },
    /// One page of the list of regions: those after a key.
    Status {
        after: Option<u64>,
    },
    Ping,
    /// An offer of the data plane.
    Offer,
    /// The grant of a region on the data plane.
    Grant {
        key: RegionKey,
    },
}

impl Request {
    pub(crate) fn kind(&self) -> u16 {
        match self {
            Self::Allocate { .. } => 1,
            Self::Seal { .. } => 2,
            Self::Find { .. } => 3,
            Self::Free { .. } => 4,
            Self::Status { .. } => 5,
            Self::Ping => 6,
            Self::Offer => 7,
            Self::Grant { .. } => 8,
        }
    }

    /// Header and body.
    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Allocate { len, name } => {
                body.extend(len.to_le_bytes());
                body.push(u8::from(name.is_some()));
                body.extend(name.as_deref().unwrap_or_default().bytes());
            }
            Self::Seal { key, keep } => {
                body.extend(key.0.to_le_bytes());
                body.push(u8::from(*keep));
            }
            Self::Find { name } => body.extend(name.bytes()),
            Self::Free { key } | Self::Grant { key } => body.extend(key.0.to_le_bytes()),
            Self::Status { after: Some(after) } => body.extend(after.to_le_bytes()),
            Self::Status { after: None } | Self::Ping | Self::Offer => {}
        }
        message(self.kind(), OK, id, &body)
    }

    /// # Errors
    /// `Invalid`: no such kind of message, or not the body that belongs to it.
    pub(crate) fn decode(kind: u16, body: &[u8]) -> Result<Self> {
        let mut body = Body(body);
        let request = match kind {
            1 => {
                let len = body.u64()?;
                let named = body.flag()?;
                let name = body.name()?;
                Self::Allocate { len, name: named.then_some(name) }
            }
            2 => Self::Seal { key: RegionKey(body.u64()?), keep: body.flag()? },
            3 => Self::Find { name: body.name()? },
            4 => Self::Free { key: RegionKey(body.u64()?) },
            5 if body.0.is_empty() => Self::Status { after: None },
            5 => Self::Status { after: Some(body.u64()?) },
            6 => Self::Ping,
            7 => Self::Offer,
            8 => Self::Grant { key: RegionKey(body.u64()?) },
            other => {
                return Err(Error::invalid(format!("no such control message: {other}")));
            }
        };
        body.end()?;
        Ok(request)
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Of a region; where none was found, none.
    Region(Option<Region>),
    /// Of the data plane.
    Blob(Vec<u8>),
    /// One page of the status.
    Status(StatusPage),
    /// Nothing to tell.
    Done,
}

/// The status with as many regions as fit a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusPage {
    pub(crate) status: ServerStatus,
    /// Ask for what comes after this key.
    pub(crate) next: Option<u64>,
}

impl Reply {
    /// Header and body, in answer to a request of `kind`.
    pub(crate) fn encode(&self, kind: u16, id: u64) -> Result<Vec<u8>> {
        let body = match self {
            Self::Region(None) | Self::Done => Vec::new(),
            Self::Region(Some(region)) => {
                [region.key.0.to_le_bytes(), region.len.0.to_le_bytes()].concat()
            }
            Self::Blob(bytes) => bytes.clone(),
            Self::Status(page) => serde_json::to_vec(page)
                .map_err(|error| Error::internal(format!("the status as JSON: {error}")))?,
        };
        if body.len() > MAX_MESSAGE - MESSAGE_HEADER {
            return Err(Error::internal(format!("an answer of {} bytes", body.len())));
        }
        Ok(message(kind, OK, id, &body))
    }

    /// # Errors
    /// `Corrupt`: not an answer to this request.
    pub(crate) fn decode(request: &Request, body: &[u8]) -> Result<Self> {
        let reply = match request {
            Request::Find { .. } if body.is_empty() => Self::Region(None),
            Request::Allocate { .. } | Request::Find { .. } => {
                let mut body = Body(body);
                let region = Region { key: RegionKey(body.u64()?), len: Bytes(body.u64()?) };
                body.end()?;
                Self::Region(Some(region))
            }
            Request::Status { .. } => Self::Status(
                serde_json::from_slice(body)
                    .map_err(|error| Error::invalid(format!("the status: {error}")))?,
            ),
            Request::Offer | Request::Grant { .. } => Self::Blob(body.to_vec()),
            Request::Seal { .. } | Request::Free { .. } | Request::Ping => {
                Body(body).end()?;
                Self::Done
            }
        };
        Ok(reply)
    }
}

/// The message by which a request is refused.
pub(crate) fn refusal(kind: u16, id: u64, error: &Error) -> Vec<u8> {
    let (status, text) = encode_error(error);
    message(kind, status, id, text.as_bytes())
}

/// The message by which the server says that it is still at it.
pub(crate) fn working(kind: u16, id: u64) -> Vec<u8> {
    message(kind, WORKING, id, &[])
}

fn message(kind: u16, status: u16, id: u64, body: &[u8]) -> Vec<u8> {
    let header = MessageHeader { len: body.len() as u32, kind, status, id };
    let mut bytes = Vec::with_capacity(MESSAGE_HEADER + body.len());
    bytes.extend(header.encode());
    bytes.extend(body);
    bytes
}

/// What a data request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    /// The bytes follow the header.
    Write,
    /// Asks for the file descriptor of a region; over Unix sockets only.
    Map,
}

/// Header of a data request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataRequest {
    pub(crate) operation: Operation,
    pub(crate) len: u32,
    pub(crate) tag: u64,
    pub(crate) key: RegionKey,
    pub(crate) offset: u64,
}

impl DataRequest {
    pub(crate) fn encode(&self) -> [u8; REQUEST_HEADER] {
        let mut bytes = [0; REQUEST_HEADER];
        bytes[0] = match self.operation {
            Operation::Read => 1,
            Operation::Write => 2,
            Operation::Map => 3,
        };
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// # Errors
    /// `Invalid`: no such operation, or more bytes than one request may move. What follows on this
    /// connection means nothing then.
    pub(crate) fn decode(bytes: &[u8; REQUEST_HEADER]) -> Result<Self> {
        let operation = match bytes[0] {
            1 => Operation::Read,
            2 => Operation::Write,
            3 => Operation::Map,
            other => return Err(Error::invalid(format!("no such operation: {other}"))),
        };
        let len = u32_at(bytes, 4);
        if len as usize > MAX_TRANSFER {
            return Err(Error::invalid(format!(
                "a transfer of {len} bytes, expected at most {MAX_TRANSFER}"
            )));
        }
        Ok(Self {
            operation,
            len,
            tag: u64_at(bytes, 8),
            key: RegionKey(u64_at(bytes, 16)),
            offset: u64_at(bytes, 24),
        })
    }
}

/// Header of the answer to a data request; `len` bytes follow, of the region or of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataReply {
    pub(crate) status: u16,
    pub(crate) len: u32,
    pub(crate) tag: u64,
}

impl DataReply {
    pub(crate) fn encode(&self) -> [u8; REPLY_HEADER] {
        let mut bytes = [0; REPLY_HEADER];
        bytes[..2].copy_from_slice(&self.status.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; REPLY_HEADER]) -> Self {
        Self { status: u16_at(bytes, 0), len: u32_at(bytes, 4), tag: u64_at(bytes, 8) }
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The rest of a body while it is taken apart.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn u64(&mut self) -> Result<u64> {
        let (value, rest) = self.0.split_first_chunk().ok_or_else(too_short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*value))
    }

    fn flag(&mut self) -> Result<bool> {
        let (&value, rest) = self.0.split_first().ok_or_else(too_short)?;
        self.0 = rest;
        match value {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::invalid(format!("a flag is {other}, expected 0 or 1"))),
        }
    }

    /// All that is left, as a name; whether it is a good one is the business of the regions.
    fn name(&mut self) -> Result<String> {
        let bytes = std::mem::take(&mut self.0);
        if bytes.len() > MAX_NAME {
            return Err(name_too_long(bytes.len()));
        }
        String::from_utf8(bytes.to_vec()).map_err(|_| Error::invalid("a name is not UTF-8"))
    }

    fn end(&self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            len => Err(Error::invalid(format!("{len} bytes too many in a control message"))),
        }
    }
}

fn too_short() -> Error {
    Error::invalid("a control message is too short")
}

fn name_too_long(len: usize) -> Error {
    Error::invalid(format!("the name of a region has {len} bytes, expected at most {MAX_NAME}"))
}

/// Checks the name of a region.
///
/// # Errors
/// `Invalid`: empty, longer than [`MAX_NAME`] bytes, or with control characters.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("the name of a region is empty"));
    }
    if name.len() > MAX_NAME {
        return Err(name_too_long(name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!("the name {name:?} has control characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_request() -> impl Strategy<Value = Request> {
        let key = any::<u64>().prop_map(RegionKey);
        prop_oneof![
            (any::<u64>(), proptest::option::of(".{0,60}"))
                .prop_map(|(len, name)| Request::Allocate { len, name }),
            (key.clone(), any::<bool>()).prop_map(|(key, keep)| Request::Seal { key, keep }),
            ".{0,60}".prop_map(|name| Request::Find { name }),
            key.clone().prop_map(|key| Request::Free { key }),
            any::<Option<u64>>().prop_map(|after| Request::Status { after }),
            Just(Request::Ping),
            Just(Request::Offer),
            key.prop_map(|key| Request::Grant { key }),
        ]
    }

    proptest! {
        #[test]
        fn control_requests_arrive_as_they_were_sent(request in any_request(), id in any::<u64>()) {
            let bytes = request.encode(id);
            let (header, body) = bytes.split_first_chunk().unwrap();
            let header = MessageHeader::decode(header).unwrap();
            prop_assert_eq!((header.id, header.len as usize), (id, body.len()));
            prop_assert_eq!(Request::decode(header.kind, body).unwrap(), request);
        }

        #[test]
        fn data_headers_arrive_as_they_were_sent(
            len in 0..=MAX_TRANSFER as u32, tag: u64, key: u64, offset: u64, status: u16,
            which in 0..3usize,
        ) {
            let operation = [Operation::Read, Operation::Write, Operation::Map][which];
            let request = DataRequest { operation, len, tag, key: RegionKey(key), offset };
            prop_assert_eq!(DataRequest::decode(&request.encode()).unwrap(), request);
            let reply = DataReply { status, len, tag };
            prop_assert_eq!(DataReply::decode(&reply.encode()), reply);
        }

        #[test]
        fn any_bytes_are_a_request_or_an_error(
            kind in 0u16..12, body in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            if let Ok(request) = Request::decode(kind, &body) {
                let again = request.encode(0);
                prop_assert_eq!(&again[MESSAGE_HEADER..], &body[..]);
            }
        }

        #[test]
        fn any_error_text_can_be_printed(status: u16, text in prop::collection::vec(any::<u8>(), 0..3000)) {
            let error = decode_error(status, &text);
            prop_assert!(error.to_string().len() <= 3 * MAX_TEXT + HINT.len());
        }
    }

    #[test]
    fn errors_keep_their_kind_text_and_hint() {
        let sent = Error::new(ErrorKind::NoSpace, "the server is full").hint("ask for less");
        let (status, text) = encode_error(&sent);
        let found = decode_error(status, text.as_bytes());
        assert_eq!((found.kind(), found.to_string()), (sent.kind(), sent.to_string()));
        let long = Error::invalid("ä".repeat(MAX_TEXT));
        assert_eq!(encode_error(&long).1.len(), MAX_TEXT);
    }

    #[test]
    fn lengths_beyond_the_limits_are_refused() {
        let header = MessageHeader { len: MAX_MESSAGE as u32, kind: 1, status: 0, id: 0 };
        assert!(MessageHeader::decode(&header.encode()).is_err());
        let request = DataRequest {
            operation: Operation::Write,
            len: MAX_TRANSFER as u32 + 1,
            tag: 0,
            key: RegionKey(0),
            offset: 0,
        };
        assert!(DataRequest::decode(&request.encode()).is_err());
    }

    #[test]
    fn another_version_and_another_service_are_told_apart() {
        let mut bytes = preamble();
        check_preamble(bytes, "client", "memory server").unwrap();
        bytes[6] = 9;
        let error = check_preamble(bytes, "client", "memory server").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        assert!(error.to_string().contains("version 9"), "{error}");
        assert!(error.to_string().contains("this client 1"), "{error}");
        let error = check_preamble(*b"HTTP/1.1", "client", "memory server").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
