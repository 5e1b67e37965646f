//! Encrypted connections.

use std::path::Path;
use std::sync::Arc;

use outercore_core::{Bytes, Context, Error, Result};
use outercore_io::read_small_file;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// Longest file of certificates or of a key.
const MOST_BYTES: Bytes = Bytes::mib(1);

/// Protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, as gRPC uses it.
    Http2,
}

impl Protocol {
    /// Its name in a TLS handshake (ALPN).
    pub fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// The certificate of a server and its private key, for TLS 1.2 and 1.3.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

impl Tls {
    /// Reads a chain of certificates and a key from PEM files.
    ///
    /// # Errors
    /// `NotFound` and `Io` of the files; `Invalid` if a file holds no certificate or key, or if
    /// they do not match.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self> {
        let wrong = |path: &Path, what: &str, error: &dyn std::fmt::Display| {
            Error::invalid(format!("{what} `{}`: {error}", path.display()))
                .hint("expected PEM text, as Let's Encrypt or openssl write it")
        };
        // Read the files here, so that a missing file gives our own error.
        let read = |path: &Path, what: &str| {
            read_small_file(path, MOST_BYTES)
                .with_context(|| format!("{what} `{}`", path.display()))
        };
        let chain = CertificateDer::pem_slice_iter(&read(certificate, "tls_cert")?)
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| wrong(certificate, "tls_cert", &error))?;
        if chain.is_empty() {
            return Err(wrong(certificate, "tls_cert", &"no certificate"));
        }
        let private = PrivateKeyDer::from_pem_slice(&read(key, "tls_key")?)
            .map_err(|error| wrong(key, "tls_key", &error))?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal(format!("TLS: {error}")))?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| wrong(key, "tls_key", &error))?;
        Ok(Self { config: Arc::new(config) })
    }

    /// An acceptor of TLS handshakes for `protocol`.
    pub fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.name().to_vec()];
        Arc::new(config).into()
    }
}
