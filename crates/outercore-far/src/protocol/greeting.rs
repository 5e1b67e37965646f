//! Messages that open a connection: protocol versions and token proofs.

use outercore_core::{Error, ErrorKind, Result};

use super::VERSION;
use super::fields::{array_at, u16_at, u32_at, u64_at};

pub(crate) const NONCE: usize = 32;
pub(crate) const PROOF: usize = 32;
pub(crate) const PREAMBLE: usize = 8;
pub(crate) const HELLO: usize = 48;
pub(crate) const VERDICT: usize = 48;

const MAGIC: [u8; 6] = *b"OCFAR\0";

/// The first bytes from either end, the same in every version: a magic number and the version.
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

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Control messages; a new session.
    Control,
    /// Transfers; joins a session.
    Data,
}

/// The message of a client after the preamble.
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

/// The server's answer to a client's proof; a refusal is followed by a text.
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

#[cfg(test)]
mod tests {
    use super::*;

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
