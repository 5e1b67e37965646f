//! The traits for transports that do not use our own data protocol, such as RDMA.
//!
//! The control connection still uses our protocol: it authenticates, allocates and seals. A data
//! plane moves the bytes with one-sided transfers: once a client holds the *grant* of a region, the
//! server's program takes no part in a transfer (Fargraph+ 6.1). *Offers* and grants are messages
//! between the two ends of a plane; the control connection carries these bytes without reading
//! them.
//!
//! The order of calls, server on the left:
//! ```text
//! listen(host, queues_per_session)
//!                                        connect(server, control)
//! offer(session)                    <--  control.offer()             one for each queue
//!    ... the plane's own connection, which shows the offer ...
//! grant(session, key, memory, ..)   <--  control.grant(key)          first use of a region
//!    ... transfers ...
//! withdraw(key); seal or free       <--  seal(key) or free(key), and then client.forget(key)
//! session_ended(session)
//! ```

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use outercore_core::{Bytes, Result};

use crate::options::FarAddress;
use crate::queue::{Arrivals, Queue};
use crate::region::RegionKey;

/// Longest offer or grant, in bytes; both ends refuse longer ones.
pub const MAX_BLOB: usize = 1024;

/// A transport for data, with both its ends.
pub trait DataPlane: Send + Sync + Debug {
    /// Server: starts to accept queues on `host`, a name or an address without a port. One session
    /// may have up to `queues_per_session` queues.
    ///
    /// # Errors
    /// `Unsupported`: this machine lacks the transport, with the packages to install. `Io`: the
    /// transport cannot listen there.
    fn listen(&self, host: &str, queues_per_session: usize) -> Result<Box<dyn PlaneListener>>;

    /// Client: prepares queues to `server`, without a message to it. A transfer without progress
    /// for `timeout` counts as failed.
    ///
    /// # Errors
    /// `Unsupported`: this machine lacks the transport, with the packages to install.
    fn connect(
        &self,
        server: &FarAddress,
        timeout: Duration,
        control: Arc<dyn PlaneControl>,
    ) -> Result<Box<dyn PlaneClient>>;
}

/// The server's end of a plane. Dropping it closes every queue and forgets every region.
///
/// Session numbers are chosen by the server and never reused.
pub trait PlaneListener: Send + Sync + Debug {
    /// An invitation for one queue of this session, to be sent to its client. It can be used once,
    /// within a short time.
    ///
    /// # Errors
    /// `Io`: the session has too many open invitations or queues.
    fn offer(&self, session: u64) -> Result<Vec<u8>>;

    /// Opens a region to the queues of one session and returns the data that its client needs for
    /// transfers. The caller has checked that the session may have this access. Repeated calls for
    /// the same session and region return the same grant.
    ///
    /// `memory` is a memfd of `len` bytes, sealed against shrinking, which the plane maps. With
    /// access for writing, the mapping is writable and shared until it is withdrawn.
    ///
    /// # Errors
    /// `Io`: the memory cannot be mapped or registered.
    fn grant(
        &self,
        session: u64,
        key: RegionKey,
        memory: BorrowedFd<'_>,
        len: Bytes,
        access: Access,
    ) -> Result<Vec<u8>>;

    /// Closes a region to every session and unmaps it. The server calls this before it seals the
    /// memory against writing, and before it frees it. Unknown regions are ignored.
    ///
    /// # Errors
    /// `Io`: a mapping could not be removed. No transfer can reach the region any more, but its
    /// memory may stay mapped until the process ends. It must then neither be sealed nor lent
    /// again.
    fn withdraw(&self, key: RegionKey) -> Result<()>;

    /// Closes the queues of a session and revokes its grants. Unknown sessions are ignored.
    fn session_ended(&self, session: u64);
}

/// The client's end of a plane.
pub trait PlaneClient: Send + Sync + Debug {
    /// A new queue with up to `length` transfers in flight, split into chunks of `chunk` bytes.
    ///
    /// # Errors
    /// `Io`: the server is gone, or accepts no more queues.
    fn open_queue(
        &self,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>>;

    /// Removes the cached grant of a region; called after the region was sealed or freed.
    fn forget(&self, key: RegionKey);
}

/// Requests of a plane's client over the control connection. Both calls wait for the server, at
/// most for its time-out. The plane's own threads may call them, too.
pub trait PlaneControl: Send + Sync + Debug {
    /// An offer for one queue of this session; see [`PlaneListener::offer`].
    ///
    /// # Errors
    /// `Io`: the server is gone, or accepts no more queues.
    fn offer(&self) -> Result<Vec<u8>>;

    /// The grant of a region; see [`PlaneListener::grant`].
    ///
    /// # Errors
    /// `NotFound`: no such region, or it belongs to another session. `Io`: the server is gone.
    fn grant(&self, key: RegionKey) -> Result<Vec<u8>>;
}

/// Access of a session to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read a sealed region.
    Read,
    /// Read and write a region of the session before it is sealed.
    ReadWrite,
}
