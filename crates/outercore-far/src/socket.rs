//! Stream sockets of either family, with a deadline for whatever one waits for.

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

/// Silence after which TCP asks whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A connected stream socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects until `deadline`. What fabric addresses name is the TCP control connection.
    pub(crate) fn connect(address: &FarAddress, deadline: Instant) -> Result<Self> {
        match address {
            FarAddress::Tcp(at) | FarAddress::Fabric(at) => {
                connect_tcp(at, deadline).map(Self::Tcp)
            }
            FarAddress::Unix(path) => connect_unix(path, deadline).map(Self::Unix),
        }
    }

    /// Sets what every connection has: no delay of small messages, and an end for the silence of a
    /// machine that is gone.
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

    /// From now on a read or a write that gets nowhere for so long fails with `WouldBlock`.
    pub(crate) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        Ok(sockopt::set_socket_timeout(self, Timeout::Send, Some(at_least_a_tick(timeout)))?)
    }

    /// From now on a read fails with `WouldBlock` when `deadline` passes.
    ///
    /// # Errors
    /// `TimedOut`: it has passed.
    pub(crate) fn set_deadline(&self, deadline: Instant) -> io::Result<()> {
        self.set_read_timeout(left_until(deadline)?)
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(self, Timeout::Recv, Some(at_least_a_tick(timeout)))?)
    }

    /// What the kernel may buffer for this socket in both directions, as of now.
    pub(crate) fn buffered_bytes(&self) -> io::Result<u64> {
        let sent = sockopt::socket_send_buffer_size(self)?;
        Ok((sent + sockopt::socket_recv_buffer_size(self)?) as u64)
    }

    /// Ends both directions: whoever waits on this socket, here or there, is woken.
    pub(crate) fn shutdown(&self) {
        // It fails where the other end was first.
        let _ = sockets::shutdown(self, sockets::Shutdown::Both);
    }

    /// Fills `buffer`, or fails with `TimedOut` when `deadline` passes.
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

    /// Writes all of `bytes`, or fails with `TimedOut` when `deadline` passes.
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

/// What a wait with a time-out of the socket returns: look at the deadline, and go on.
fn is_interruption(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A socket's time-out of less than a microsecond would mean none at all.
fn at_least_a_tick(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}

fn connect_tcp(at: &str, deadline: Instant) -> Result<TcpStream> {
    // The resolver has time-outs of its own.
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
    // A listener whose backlog is full makes one wait as if to send.
    let timeout = at_least_a_tick(left_until(deadline)?);
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout)).map_err(io::Error::from)?;
    sockets::connect(&socket, &address).map_err(io::Error::from)?;
    Ok(socket.into())
}

/// A socket that no child process inherits.
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

    /// Wakes the thread, or keeps it from falling asleep the next time.
    pub(crate) fn wake(&self) {
        // It fails only where so many wakes wait already that one more says nothing.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets the wakes so far.
    pub(crate) fn clear(&self) {
        // It fails only where there are none.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until there is something of `events` on `socket`, or a wake, or the time-out is over;
/// returns what there is on the socket.
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
