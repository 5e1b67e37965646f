//! Listening addresses of a server.

use std::fs;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outercore_core::{Context, Error, Result};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self as sockets, AddressFamily, SocketAddrUnix};

use super::Server;
use super::strangers::Strangers;
use crate::options::FarAddress;
use crate::socket::{Socket, new_socket, wait_for};

/// Connections that the kernel queues before they are accepted.
const BACKLOG: i32 = 128;

/// Pause if the operating system cannot accept another connection.
const BREATH: Duration = Duration::from_millis(100);

/// How long to wait for an answer of a server that may still run. A server too busy to answer in
/// time counts as running.
const PROBE: Duration = Duration::from_secs(1);

/// A bound address.
#[derive(Debug)]
pub(super) struct Listener {
    socket: ListeningSocket,
    address: FarAddress,
    strangers: Arc<Strangers>,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn bind(address: &FarAddress) -> Result<Self> {
        Self::try_bind(address).map_err(|error| match error.os_error() {
            Some(number) if number == rustix::io::Errno::ADDRINUSE.raw_os_error() => {
                Error::invalid(format!("listening on {address}: the address is in use"))
                    .hint("stop the server that listens there, or choose another address")
            }
            _ => error.context(format!("listening on {address}")),
        })
    }

    fn try_bind(address: &FarAddress) -> Result<Self> {
        match address {
            FarAddress::Tcp(at) | FarAddress::Fabric(at) => {
                let listener = TcpListener::bind(at)?;
                listener.set_nonblocking(true)?;
                let at = listener.local_addr()?.to_string();
                let address = match address {
                    FarAddress::Fabric(_) => FarAddress::Fabric(at),
                    _ => FarAddress::Tcp(at),
                };
                Ok(Self {
                    socket: ListeningSocket::Tcp(listener),
                    address,
                    strangers: Arc::default(),
                    _file: None,
                })
            }
            FarAddress::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                Ok(Self {
                    socket: ListeningSocket::Unix(listener),
                    address: address.clone(),
                    strangers: Arc::default(),
                    _file: Some(file),
                })
            }
        }
    }

    pub(super) fn address(&self) -> &FarAddress {
        &self.address
    }

    /// Accepts connections until the server stops.
    pub(super) fn accept_all(self, server: &Arc<Server>) {
        while wait_for(&self, PollFlags::IN, &server.stop, None).is_ok() {
            if server.stopping.load(Ordering::SeqCst) {
                return;
            }
            match self.accept() {
                Ok((socket, peer)) => server.welcome(socket, peer, &self.strangers),
                Err(error) if is_of_one_connection(&error) => {}
                // Descriptors or memory are exhausted: wait until other clients have left.
                Err(_) => {
                    let nothing = PollFlags::empty();
                    let _ = wait_for(&self, nothing, &server.stop, Some(BREATH));
                }
            }
        }
    }

    /// Accepts a connection; also returns the address of its machine.
    fn accept(&self) -> io::Result<(Socket, Option<IpAddr>)> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                Ok((Socket::Tcp(stream), Some(from.ip())))
            }
            ListeningSocket::Unix(listener) => Ok((Socket::Unix(listener.accept()?.0), None)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Whether the error concerns a single connection, so that the next one can be accepted at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Creates a Unix socket to which only its owner can connect.
fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
    let socket = new_socket(AddressFamily::UNIX)?;
    sockets::bind(&socket, &address).map_err(io::Error::from)?;
    let file = SocketFile::of(path)?;
    // Set the permissions before `listen`, when no client can connect yet.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    sockets::listen(&socket, BACKLOG).map_err(io::Error::from)?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

/// Removes the socket file of a server that no longer runs.
fn remove_stale(path: &Path) -> Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !metadata.file_type().is_socket() {
        return Err(Error::invalid("there is a file of that name, and it is no socket"));
    }
    let in_use = || io::Error::from(Errno::ADDRINUSE).into();
    let address = FarAddress::Unix(path.to_owned());
    match Socket::connect(&address, Instant::now() + PROBE) {
        Ok(_) => Err(in_use()),
        Err(error) => match error.os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => {
                fs::remove_file(path).context("removing the socket of a server that is gone")
            }
            Some(Errno::AGAIN | Errno::TIMEDOUT) => Err(in_use()),
            _ => Err(error),
        },
    }
}

/// A socket file that is removed with its listener, unless another server has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if ours {
            // If it cannot be removed, the next server finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_busy_to_answer_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let busy = new_socket(AddressFamily::UNIX).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        sockets::bind(&busy, &address).unwrap();
        sockets::listen(&busy, 0).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| {
            let socket = new_socket(AddressFamily::UNIX).unwrap();
            rustix::io::ioctl_fionbio(&socket, true).unwrap();
            sockets::connect(&socket, &address).is_ok().then_some(socket)
        })
        .collect();
        assert!(!waiting.is_empty());
        let error = Listener::bind(&FarAddress::Unix(path.clone())).unwrap_err();
        assert!(error.to_string().contains("the address is in use"), "{error}");
        drop(busy);
        Listener::bind(&FarAddress::Unix(path)).unwrap();
    }
}
