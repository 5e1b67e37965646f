//! Headers of transfers on a data connection.

use outercore_core::{Error, Result};

use super::MAX_TRANSFER;
use super::fields::{u16_at, u32_at, u64_at};
use crate::region::RegionKey;

pub(crate) const REQUEST_HEADER: usize = 32;
pub(crate) const REPLY_HEADER: usize = 16;

/// Operation of a data request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    /// The bytes follow the header.
    Write,
    /// Requests the file descriptor of a region; only over Unix sockets.
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
    /// `Invalid`: unknown operation, or more bytes than one request may move. The rest of the
    /// connection cannot be interpreted then.
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

/// Header of the answer to a data request; `len` bytes of the region or of an error text follow.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
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
    }

    #[test]
    fn a_transfer_beyond_the_limit_is_refused() {
        let request = DataRequest {
            operation: Operation::Write,
            len: MAX_TRANSFER as u32 + 1,
            tag: 0,
            key: RegionKey(0),
            offset: 0,
        };
        assert!(DataRequest::decode(&request.encode()).is_err());
    }
}
