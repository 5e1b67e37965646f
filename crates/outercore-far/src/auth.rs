//! Authentication: client and memory server prove to each other that they hold the same token.
//!
//! The token itself is never sent. Each end sends a nonce of 32 bytes and an HMAC-SHA256 over its
//! role, the version, the purpose of the connection and both nonces. Data is not encrypted.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use outercore_core::{Context, Error, ErrorKind, Result, command};
use outercore_io::open_regular_file;
use sha2::Sha256;

use crate::options::FarOptions;
use crate::protocol::{Hello, NONCE, PROOF, Role, VERSION};

/// Shortest token in bytes.
pub const LEAST_TOKEN: usize = 16;

/// Longest token file.
const LONGEST_TOKEN: u64 = 4096;

/// Environment variable with the token if no file is given.
pub const TOKEN_VARIABLE: &str = "OUTERCORE_FAR_TOKEN";

/// The secret that a memory server and its clients share.
///
/// # Example
/// ```
/// use outercore_far::Token;
/// assert!(Token::new(b"too short").is_err());
/// let token = Token::new(b"0123456789abcdef").unwrap();
/// assert_eq!(format!("{token:?}"), "Token(..)");
/// ```
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// A token of at least 16 bytes; white space at its end is removed.
    ///
    /// # Errors
    /// `Invalid`: it is shorter.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let bytes = bytes.trim_ascii_end();
        if bytes.len() < LEAST_TOKEN {
            return Err(Error::invalid(format!(
                "the token has {} bytes, expected at least {LEAST_TOKEN}",
                bytes.len()
            ))
            .hint(make_token()));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Reads the token from a file that only its owner can read.
    ///
    /// # Errors
    /// `NotFound`: no such file. `Invalid`: others can read or change it, it holds no token, or it
    /// is a pipe.
    pub fn from_file(path: &Path) -> Result<Self> {
        let read = || {
            let file = open_regular_file(path)?;
            let metadata = file.metadata()?;
            if metadata.mode() & 0o077 != 0 {
                return Err(Error::invalid(format!(
                    "others can read or change it (mode {:03o})",
                    metadata.mode() & 0o777
                ))
                .hint(format!("run `chmod 600 {}`", path.display())));
            }
            let mut bytes = Vec::new();
            file.take(LONGEST_TOKEN + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > LONGEST_TOKEN {
                return Err(Error::invalid("it is longer than 4096 bytes: no token"));
            }
            Self::new(&bytes)
        };
        read().with_context(|| format!("token file `{}`", path.display())).map_err(|error| {
            match error.kind() {
                ErrorKind::NotFound => error.hint(make_token()),
                _ => error,
            }
        })
    }

    /// Reads the token that the options name: from the file, or else from the environment variable.
    ///
    /// # Errors
    /// `Invalid`: neither is set, or the token is invalid. `NotFound`: no such file.
    pub fn of(options: &FarOptions) -> Result<Self> {
        if let Some(path) = &options.token_file {
            return Self::from_file(path);
        }
        match std::env::var_os(TOKEN_VARIABLE) {
            Some(token) => Self::new(token.as_encoded_bytes()).context(TOKEN_VARIABLE),
            None => {
                Err(Error::invalid(format!("no token for the memory server {}", options.address))
                    .hint(format!(
                        "name the server's token file, or put the token into {TOKEN_VARIABLE}"
                    )))
            }
        }
    }

    /// Creates a random token and writes it to a new file that only its owner can read.
    ///
    /// # Errors
    /// `Invalid`: the file exists. `Io`: it cannot be written.
    pub fn create_file(path: &Path) -> Result<Self> {
        let mut drawn = [0; 32];
        random(&mut drawn)?;
        let text: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
        let write = || -> std::io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            writeln!(file, "{text}")?;
            file.sync_all()
        };
        write()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => Error::invalid("there is such a file already")
                    .hint("use it, or remove it first"),
                _ => error.into(),
            })
            .with_context(|| format!("token file `{}`", path.display()))?;
        Self::new(text.as_bytes())
    }

    fn mac(&self, prover: Prover, hello: &Hello, server_nonce: &[u8; NONCE]) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .expect("HMAC takes keys of any length");
        mac.update(match prover {
            Prover::Client => b"outercore-far client",
            Prover::Server => b"outercore-far server",
        });
        mac.update(&VERSION.to_le_bytes());
        mac.update(&[match hello.role {
            Role::Control => 1,
            Role::Data => 2,
        }]);
        mac.update(&hello.session.to_le_bytes());
        mac.update(&hello.nonce);
        mac.update(server_nonce);
        mac
    }

    /// The proof of `prover` for one connection.
    pub(crate) fn prove(
        &self,
        prover: Prover,
        hello: &Hello,
        server_nonce: &[u8; NONCE],
    ) -> [u8; PROOF] {
        self.mac(prover, hello, server_nonce).finalize().into_bytes().into()
    }

    /// Whether `proof` is the proof of `prover`, compared in constant time.
    pub(crate) fn proves(
        &self,
        prover: Prover,
        hello: &Hello,
        server_nonce: &[u8; NONCE],
        proof: &[u8; PROOF],
    ) -> bool {
        self.mac(prover, hello, server_nonce).verify_slice(proof).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The end that proves itself. A proof of one end is not valid for the other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Prover {
    Client,
    Server,
}

/// Fills `bytes` with unpredictable random bytes.
///
/// # Errors
/// `Io`: the operating system cannot provide them.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        Error::new(ErrorKind::Io, format!("random bytes of the operating system: {error}"))
    })
}

/// An unpredictable number; never 0.
pub(crate) fn random_number() -> Result<u64> {
    let mut bytes = [0; 8];
    loop {
        random(&mut bytes)?;
        match u64::from_le_bytes(bytes) {
            0 => {}
            number => return Ok(number),
        }
    }
}

fn make_token() -> String {
    format!("make one with `{}`", command("memory-server", &[("new_token", "FILE")]))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn hello() -> Hello {
        Hello { role: Role::Data, session: 7, nonce: [1; NONCE] }
    }

    #[test]
    fn a_proof_holds_for_its_end_connection_and_token_alone() {
        let token = Token::new(&[b'x'; 16]).unwrap();
        let proof = token.prove(Prover::Client, &hello(), &[2; NONCE]);
        assert!(token.proves(Prover::Client, &hello(), &[2; NONCE], &proof));
        assert!(!token.proves(Prover::Server, &hello(), &[2; NONCE], &proof));
        assert!(!token.proves(Prover::Client, &hello(), &[3; NONCE], &proof));
        for other in [
            Hello { role: Role::Control, ..hello() },
            Hello { session: 8, ..hello() },
            Hello { nonce: [9; NONCE], ..hello() },
        ] {
            assert!(!token.proves(Prover::Client, &other, &[2; NONCE], &proof));
        }
        let another = Token::new(&[b'y'; 16]).unwrap();
        assert!(!another.proves(Prover::Client, &hello(), &[2; NONCE], &proof));
    }

    #[test]
    fn a_new_token_file_is_private_read_again_and_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::create_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::from_file(&path).unwrap().0, token.0);
        let error = Token::create_file(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_token_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        Token::create_file(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Token::from_file(&path).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_missing_token_says_where_to_get_one() {
        let path = Path::new("/nonexistent/token");
        let error = Token::from_file(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("--new-token"), "{error}");
    }
}
