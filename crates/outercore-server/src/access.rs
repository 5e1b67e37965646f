//! Access control: tokens and their scopes.

use std::collections::HashMap;
use std::path::Path;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use outercore_core::{Bytes, Context, Error, Result};
use outercore_io::read_small_file;
use sha2::{Digest, Sha256};

use crate::refusal::Refusal;

/// Fewest characters of a token. A shorter one could be guessed.
const LEAST_LENGTH: usize = 16;

/// Longest token file.
const MOST_BYTES: Bytes = Bytes::mib(1);

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Predictions, metadata and metrics.
    Read,
    /// Everything that `Read` allows, changes of the graph, and analyses.
    Update,
}

/// The tokens of a server.
///
/// Holds the digests of the tokens only. A lookup by digest takes a time that does not depend on
/// the token, so timing reveals nothing about it.
pub struct Tokens(HashMap<[u8; 32], Access>);

impl Tokens {
    /// Reads a file with lines `read TOKEN` or `update TOKEN`. Empty lines and lines that begin
    /// with `#` are skipped.
    ///
    /// # Errors
    /// `NotFound` and `Io` of the file. `Invalid` with the line number for a wrong line, and for a
    /// file without tokens or a pipe.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(&read(path).with_context(|| format!("tokens `{}`", path.display()))?)
            .with_context(|| format!("tokens `{}`", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut tokens = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The message does not repeat the line, because the line holds a secret.
            let wrong = |expected: &str| {
                Error::invalid(format!("line {}: expected {expected}", number + 1))
                    .hint("`echo \"read $(openssl rand -hex 32)\"` writes a line with a new token")
            };
            let parts: Vec<&str> = line.split_whitespace().collect();
            let (access, token) = match parts[..] {
                ["read", token] => (Access::Read, token),
                ["update", token] => (Access::Update, token),
                _ => return Err(wrong("`read TOKEN` or `update TOKEN`")),
            };
            if token.len() < LEAST_LENGTH || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(wrong(&format!("a token of {LEAST_LENGTH} ASCII characters or more")));
            }
            if tokens.insert(digest(token), access).is_some() {
                return Err(wrong("a token that no line before has"));
            }
        }
        if tokens.is_empty() {
            return Err(Error::invalid(
                "expected a line `read TOKEN` or `update TOKEN`, found none",
            ));
        }
        Ok(Self(tokens))
    }

    /// Checks that the token of a request allows `needed`.
    ///
    /// # Errors
    /// 401 without a known token; 403 if the token does not allow `needed`.
    pub fn require(&self, headers: &HeaderMap, needed: Access) -> Result<(), Refusal> {
        let token = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match token.and_then(|token| self.0.get(&digest(token))) {
            None => {
                let text = "expected the header `Authorization: Bearer TOKEN` with a known token";
                Err(Refusal::new(StatusCode::UNAUTHORIZED, text))
            }
            Some(&allowed) if allowed < needed => {
                Err(Refusal::new(StatusCode::FORBIDDEN, "this token is for reading alone"))
            }
            Some(_) => Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    String::from_utf8(read_small_file(path, MOST_BYTES)?)
        .map_err(|_| Error::invalid("expected UTF-8 text"))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &str = "0123456789abcdef";
    const UPDATE: &str = "fedcba9876543210";

    fn asked(value: Option<&str>, needed: Access) -> Result<(), Refusal> {
        let tokens = Tokens::parse(&format!("# two\n\nread {READ}\n update\t{UPDATE} \n")).unwrap();
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        tokens.require(&headers, needed)
    }

    fn status(refused: Result<(), Refusal>) -> String {
        format!("{:?}", refused.unwrap_err())
    }

    #[test]
    fn a_token_allows_what_its_scope_says() {
        for (token, needed) in
            [(READ, Access::Read), (UPDATE, Access::Read), (UPDATE, Access::Update)]
        {
            assert_eq!(asked(Some(&format!("Bearer {token}")), needed), Ok(()));
            assert_eq!(asked(Some(&format!("bearer {token}")), needed), Ok(()));
        }
        assert!(status(asked(Some(&format!("Bearer {READ}")), Access::Update)).contains("403"));
    }

    #[test]
    fn other_tokens_and_schemes_are_refused() {
        let wrong =
            ["Bearer", "Bearer ", READ, "Bearer 0123456789abcdeg", "Basic 0123456789abcdef"];
        for value in wrong.map(Some).into_iter().chain([None]) {
            assert!(status(asked(value, Access::Read)).contains("401"), "{value:?}");
        }
    }

    #[test]
    fn wrong_lines_are_named_and_not_repeated() {
        for (text, expected) in [
            ("", "found none"),
            ("# read 0123456789abcdef", "found none"),
            ("read short", "line 1: expected a token of 16"),
            ("\nwrite 0123456789abcdef", "line 2: expected `read TOKEN`"),
            ("0123456789abcdef", "line 1: expected `read TOKEN`"),
            ("read 0123456789abcdef x", "line 1"),
            ("read 0123456789abcdé0", "ASCII"),
            ("read 0123456789abcdef\nupdate 0123456789abcdef", "line 2"),
        ] {
            let error = Tokens::parse(text).err().unwrap().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains("0123456789abcde"), "{error}");
        }
    }

    #[test]
    fn tokens_come_from_a_regular_file() {
        let error = Tokens::open(Path::new("/dev/zero")).err().expect("a device has no end");
        assert_eq!(error.kind(), outercore_core::ErrorKind::Invalid, "{error}");
    }
}
