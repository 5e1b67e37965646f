//! Stream sockets of either family, with a deadline for every wait.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use outercore_core::{Context, Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self as sockets, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::options::FarAddress;

/// Silence after which TCP checks whether the other end still exists.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A connected stream socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects until `deadline`. For a fabric address, this is the TCP control connection.
    pub(crate) fn connect(address: &FarAddress, deadline: Instant) -> Result<Self> {
        match address {
            FarAddress::Tcp(at) | FarAddress::Fabric(at) => {
                connect_tcp(at, deadline).map(Self::Tcp)
            }
            FarAddress::Unix(path) => connect_unix(path, deadline).map(Self::Unix),
        }
    }

    /// Sets options of every connection: no delay of small messages, and a time limit for a machine
    /// that disappears.
    pub(crate) fn prepare(&self, patience: Duration) -> io::Result<()> {
        if let Self::Tcp(stream) = self {
            stream.set_nodelay(true)?;
            sockopt::set_socket_keepalive(stream, true)?;
            sockopt::set_tcp_keepidle(stream, KEEPALIVE.min(patience).max(Duration::from_secs(1)))?;
            sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
            sockopt::set_tcp_keepcnt(stream, 3)?;
            let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, patience)?;
        }
        self.set_nonblocking(false)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// From now on, a read or write without progress for `timeout` fails with `WouldBlock`.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        Ok(sockopt::set_socket_timeout(self, Timeout::Send, Some(at_least_a_tick(timeout)))?)
    }

    /// From now on, a read fails with `WouldBlock` at `deadline`.
    ///
    /// # Errors
    /// `TimedOut`: the deadline has passed.
    pub(crate) fn set_deadline(&self, deadline: Instant) -> io::Result<()> {
        self.set_read_timeout(left_until(deadline)?)
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(self, Timeout::Recv, Some(at_least_a_tick(timeout)))?)
    }

    /// Current size of the kernel's buffers for this socket, both directions together.
    pub(crate) fn buffered_bytes(&self) -> io::Result<u64> {
        let sent = sockopt::socket_send_buffer_size(self)?;
        Ok((sent + sockopt::socket_recv_buffer_size(self)?) as u64)
    }

    /// Closes both directions: threads that wait on this socket wake, at both ends.
    pub(crate) fn shutdown(&self) {
        // An error says that the other end has closed it first.
        let _ = sockets::shutdown(self, sockets::Shutdown::Both);
    }

    /// Fills `buffer`; fails with `TimedOut` at `deadline`.
    pub(crate) fn read_before(&self, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            self.set_deadline(deadline)?;
            match (&mut &*self).read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => buffer = &mut buffer[bytes..],
                Err(error) if is_interruption(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all `bytes`; fails with `TimedOut` at `deadline`.
    pub(crate) fn write_before(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let timeout = at_least_a_tick(left_until(deadline)?);
            sockopt::set_socket_timeout(self, Timeout::Send, Some(timeout))?;
            match (&mut &*self).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_interruption(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether a wait ended early: check the deadline and continue.
fn is_interruption(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A socket time-out below a microsecond would mean no time-out.
fn at_least_a_tick(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}

fn connect_tcp(at: &str, deadline: Instant) -> Result<TcpStream> {
    // The resolver has its own time-outs.
    let addresses = at.to_socket_addrs().with_context(|| format!("host of `{at}`"))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, left_until(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| Error::invalid(format!("host of `{at}` has no address")), Error::from))
}

fn connect_unix(path: &Path, deadline: Instant) -> Result<UnixStream> {
    let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
    let socket = new_socket(AddressFamily::UNIX)?;
    // If the backlog of a listener is full, the send time-out limits the wait.
    let timeout = at_least_a_tick(left_until(deadline)?);
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout)).map_err(io::Error::from)?;
    sockets::connect(&socket, &address).map_err(io::Error::from)?;
    Ok(socket.into())
}

/// A socket that child processes do not inherit.
pub(crate) fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(sockets::socket_with(family, SocketType::STREAM, flags, None)?)
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read(buffer),
            Socket::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read_vectored(buffers),
            Socket::Unix(stream) => (&mut &*stream).read_vectored(buffers),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write_vectored(buffers),
            Socket::Unix(stream) => (&mut &*stream).write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Wakes a thread that waits in [`wait_for`].
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread, or prevents its next wait from sleeping.
    pub(crate) fn wake(&self) {
        // This fails only if so many wakes are pending that another one is not needed.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears pending wakes.
    pub(crate) fn clear(&self) {
        // This fails only if no wake is pending.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits for one of `events` on `socket`, a wake, or the time-out; returns the events on the
/// socket.
pub(crate) fn wait_for<S: AsFd>(
    socket: &S,
    events: PollFlags,
    wake: &Wake,
    timeout: Option<Duration>,
) -> io::Result<PollFlags> {
    let mut waited = [PollFd::new(socket, events), PollFd::new(wake, PollFlags::IN)];
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut waited, timeout.as_ref()) {
        Ok(_) => Ok(waited[0].revents()),
        Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
        Err(error) => Err(error.into()),
    }
}
