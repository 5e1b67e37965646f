//! Address and options of far memory.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use outercore_core::{Bytes, Error, Result};
use serde::{Deserialize, Serialize};

/// Address of a memory server.
///
/// # Example
/// ```
/// use outercore_far::FarAddress;
/// let address: FarAddress = "127.0.0.1:7411".parse().unwrap();
/// assert_eq!(address.to_string(), "tcp://127.0.0.1:7411");
/// assert_eq!("unix:/run/far.sock".parse::<FarAddress>().unwrap().to_string(), "unix:/run/far.sock");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FarAddress {
    /// Host and port, for our own protocol over TCP.
    Tcp(String),
    /// A Unix socket on this host; data is read from memory shared with the server.
    Unix(PathBuf),
    /// Host and port of the control connection; data is transferred through libfabric.
    Fabric(String),
}

/// Default port.
pub const DEFAULT_PORT: u16 = 7411;

impl FromStr for FarAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(malformed(text));
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(rest) = text.strip_prefix("fabric://") {
            return Ok(Self::Fabric(host_and_port(text, rest)?));
        }
        let rest = text.strip_prefix("tcp://").unwrap_or(text);
        Ok(Self::Tcp(host_and_port(text, rest)?))
    }
}

fn host_and_port(whole: &str, text: &str) -> Result<String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse::<u16>().map_err(|_| malformed(whole))?)
        }
        _ => (text, DEFAULT_PORT),
    };
    if host.is_empty() || host.contains('/') || host.chars().any(char::is_whitespace) {
        return Err(malformed(whole));
    }
    Ok(format!("{host}:{port}"))
}

fn malformed(text: &str) -> Error {
    Error::invalid(format!("`{text}` is no address of a memory server"))
        .hint("write HOST:PORT, unix:PATH or fabric://HOST:PORT")
}

impl fmt::Display for FarAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => write!(f, "tcp://{at}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Fabric(at) => write!(f, "fabric://{at}"),
        }
    }
}

impl TryFrom<String> for FarAddress {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<FarAddress> for String {
    fn from(address: FarAddress) -> Self {
        address.to_string()
    }
}

/// Options of far memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarOptions {
    /// Address of the server.
    pub address: FarAddress,
    /// File with the server's token. If absent, the environment variable `OUTERCORE_FAR_TOKEN` is
    /// used.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Largest number of bytes in one transfer (Fargraph+ 6.1).
    #[serde(default = "default_chunk")]
    pub chunk: Bytes,
    /// Number of data queues. Each has a connection, in addition to the control connection (6.3).
    #[serde(default = "default_queues")]
    pub queues: usize,
    /// Transfers in flight in each queue.
    #[serde(default = "default_queue_length")]
    pub queue_length: usize,
    /// Seconds without progress after which the server counts as gone.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: f64,
    /// Whether to read from the disk when the server is gone; otherwise reads fail.
    #[serde(default = "default_fallback")]
    pub fallback: bool,
}

/// An engine gives every read 30 seconds. The rest must suffice for the disk when the server is
/// gone.
const LONGEST_TIMEOUT_S: f64 = 20.0;

fn default_chunk() -> Bytes {
    Bytes::kib(256)
}

fn default_queues() -> usize {
    1
}

fn default_queue_length() -> usize {
    32
}

fn default_timeout_s() -> f64 {
    5.0
}

fn default_fallback() -> bool {
    true
}

impl FarOptions {
    /// The defaults, for a server at `address`.
    pub fn new(address: FarAddress) -> Self {
        Self {
            address,
            token_file: None,
            chunk: default_chunk(),
            queues: default_queues(),
            queue_length: default_queue_length(),
            timeout_s: default_timeout_s(),
            fallback: default_fallback(),
        }
    }

    /// Checks the values beyond their types.
    ///
    /// # Errors
    /// `Invalid`, naming the field, its value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        let chunk = self.chunk.0;
        if !(4096..=16 << 20).contains(&chunk) || !chunk.is_multiple_of(4096) {
            return Err(Error::invalid(format!(
                "chunk is {}, expected 4 KiB to 16 MiB in steps of 4 KiB",
                self.chunk
            )));
        }
        if !(1..=64).contains(&self.queues) {
            return Err(Error::invalid(format!("queues is {}, expected 1 to 64", self.queues)));
        }
        if !(1..=1024).contains(&self.queue_length) {
            return Err(Error::invalid(format!(
                "queue_length is {}, expected 1 to 1024",
                self.queue_length
            )));
        }
        if !(self.timeout_s > 0.0 && self.timeout_s <= LONGEST_TIMEOUT_S) {
            return Err(Error::invalid(format!(
                "timeout is {} s, expected more than 0, at most {LONGEST_TIMEOUT_S}",
                self.timeout_s
            )));
        }
        Ok(())
    }

    /// [`FarOptions::timeout_s`] as a duration; call [`FarOptions::validate`] first.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_they_are_read() {
        for (text, printed) in [
            ("localhost:80", "tcp://localhost:80"),
            ("10.0.0.1", "tcp://10.0.0.1:7411"),
            ("[::1]:99", "tcp://[::1]:99"),
            ("[::1]", "tcp://[::1]:7411"),
            ("fabric://node-3:1", "fabric://node-3:1"),
            ("unix:/tmp/a b", "unix:/tmp/a b"),
        ] {
            let address: FarAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), printed);
            assert_eq!(printed.parse::<FarAddress>().unwrap(), address);
        }
        for text in ["", ":80", "host:port", "host:70000", "unix:", "http://a/b", "a b:1"] {
            let error = text.parse::<FarAddress>().unwrap_err().to_string();
            assert!(error.contains("HOST:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn options_out_of_range_are_named() {
        let good = FarOptions::new("a:1".parse().unwrap());
        good.validate().unwrap();
        for (bad, word) in [
            (FarOptions { chunk: Bytes(5000), ..good.clone() }, "chunk"),
            (FarOptions { chunk: Bytes::mib(32), ..good.clone() }, "chunk"),
            (FarOptions { queues: 0, ..good.clone() }, "queues"),
            (FarOptions { queue_length: 0, ..good.clone() }, "queue_length"),
            (FarOptions { timeout_s: 0.0, ..good.clone() }, "timeout"),
            (FarOptions { timeout_s: f64::NAN, ..good }, "timeout"),
        ] {
            assert!(bad.validate().unwrap_err().to_string().contains(word));
        }
    }
}
