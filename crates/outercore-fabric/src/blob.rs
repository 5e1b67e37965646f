//! Offers and grants, which the two ends exchange over the control connection.
//!
//! | offer | bytes | grant | bytes |
//! |---|---|---|---|
//! | version, 1 | 1 | version, 1 | 1 |
//! | port, little endian | 2 | address, little endian | 8 |
//! | ticket | 16 | key, little endian | 8 |
//! | provider's name, ASCII | 1 to 64 | length, little endian | 8 |
//!
//! A client sends its ticket as the private data of its connection request; a provider may pad it
//! with zeros. The address is 0 if the provider counts offsets from the start of a region.

use outercore_core::{Error, ErrorKind, Result};

/// Bytes of a ticket.
pub(crate) const TICKET: usize = 16;

/// Proof of an invitation, used once by a client to connect.
pub(crate) type Ticket = [u8; TICKET];

/// Version of both formats; other versions are refused.
const VERSION: u8 = 1;

/// An invitation for one queue: the port, the provider and the ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub port: u16,
    pub provider: String,
    pub ticket: Ticket,
}

impl Offer {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.port.to_le_bytes());
        bytes.extend(self.ticket);
        bytes.extend(self.provider.as_bytes());
        bytes
    }

    /// # Errors
    /// `Version`: another version. `Corrupt`: not an offer.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let rest = body(bytes)?;
        let (port, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (ticket, provider) = rest.split_first_chunk().ok_or_else(malformed)?;
        let provider = std::str::from_utf8(provider).map_err(|_| malformed())?;
        // A provider's name is passed to libfabric, which would also accept a list of patterns.
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.;".contains(c);
        if provider.is_empty() || provider.len() > 64 || !provider.chars().all(plain) {
            return Err(malformed());
        }
        Ok(Self { port: u16::from_le_bytes(*port), ticket: *ticket, provider: provider.to_owned() })
    }
}

/// The address of a region in the server's memory, and the key for access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub address: u64,
    pub key: u64,
    pub len: u64,
}

impl Grant {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for number in [self.address, self.key, self.len] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// # Errors
    /// `Version`: another version. `Corrupt`: not a grant.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let rest: &[u8; 24] = body(bytes)?.try_into().map_err(|_| malformed())?;
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&rest[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let grant = Self { address: number(0), key: number(8), len: number(16) };
        if grant.address.checked_add(grant.len).is_none() {
            return Err(malformed());
        }
        Ok(grant)
    }
}

fn body(bytes: &[u8]) -> Result<&[u8]> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((&other, _)) => Err(Error::new(
            ErrorKind::Version,
            format!("the memory server's fabric speaks version {other}, expected {VERSION}"),
        )
        .hint("run the same version of Outercore at both ends")),
        None => Err(malformed()),
    }
}

fn malformed() -> Error {
    Error::corrupt("the memory server sent no whole offer or grant of its fabric")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn another_version_is_named() {
        let error = Offer::from_bytes(&[9, 1, 2, 3]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Version);
        assert!(error.to_string().contains("version 9"), "{error}");
    }

    proptest! {
        #[test]
        fn offers_and_grants_are_read_as_they_were_written(
            port: u16, ticket: Ticket, provider in "[a-z_;]{1,64}",
            address in 0..u64::MAX / 2, key: u64, len in 0..u64::MAX / 2,
        ) {
            let offer = Offer { port, ticket, provider };
            prop_assert_eq!(Offer::from_bytes(&offer.to_bytes()).unwrap(), offer);
            let grant = Grant { address, key, len };
            prop_assert_eq!(Grant::from_bytes(&grant.to_bytes()).unwrap(), grant);
        }

        #[test]
        fn any_other_bytes_are_an_error_or_hold_what_is_checked(bytes: Vec<u8>) {
            if let Ok(offer) = Offer::from_bytes(&bytes) {
                prop_assert!(!offer.provider.contains(['^', ',', '\0']));
            }
            if let Ok(grant) = Grant::from_bytes(&bytes) {
                prop_assert!(grant.address.checked_add(grant.len).is_some());
            }
        }
    }
}
