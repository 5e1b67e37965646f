//! Control messages: requests of a client and answers of the server.

use outercore_core::{Bytes, Error, Result};
use serde::{Deserialize, Serialize};

use super::fields::{u16_at, u32_at, u64_at};
use super::names::name_too_long;
use super::status::{OK, WORKING, encode_error};
use super::{MAX_MESSAGE, MAX_NAME};
use crate::region::{Region, RegionKey};
use crate::remote::ServerStatus;

pub(crate) const MESSAGE_HEADER: usize = 16;

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
    /// `Invalid`: the body exceeds the limit of a message.
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

/// A request of a client over its control connection.
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
    /// One page of the list of regions, starting after a key.
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

    /// Encodes header and body.
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
    /// `Invalid`: unknown kind of message, or a body that does not fit it.
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
    /// A region; `None` if it was not found.
    Region(Option<Region>),
    /// Bytes of the data plane.
    Blob(Vec<u8>),
    /// One page of the status.
    Status(StatusPage),
    /// Success without a result.
    Done,
}

/// The status, with as many regions as fit one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusPage {
    pub(crate) status: ServerStatus,
    /// Request the regions after this key for the next page; `None` on the last page.
    pub(crate) next: Option<u64>,
}

impl Reply {
    /// Encodes header and body, as the answer to a request of `kind`.
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
    /// `Corrupt`: the body is not an answer to this request.
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

/// The message that refuses a request.
pub(crate) fn refusal(kind: u16, id: u64, error: &Error) -> Vec<u8> {
    let (status, text) = encode_error(error);
    message(kind, status, id, text.as_bytes())
}

/// The message that says that the server is still working on a request.
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

/// The unread rest of a body.
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

    /// The rest of the body as a name; the regions check whether it is valid.
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
        fn any_bytes_are_a_request_or_an_error(
            kind in 0u16..12, body in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            if let Ok(request) = Request::decode(kind, &body) {
                let again = request.encode(0);
                prop_assert_eq!(&again[MESSAGE_HEADER..], &body[..]);
            }
        }
    }

    #[test]
    fn a_message_beyond_the_limit_is_refused() {
        let header = MessageHeader { len: MAX_MESSAGE as u32, kind: 1, status: 0, id: 0 };
        assert!(MessageHeader::decode(&header.encode()).is_err());
    }
}
