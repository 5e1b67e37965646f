//! The seam for transports whose data do not go through our own protocol, such as RDMA.
//!
//! The control connection stays ours: it authenticates, allocates and seals. A data plane moves
//! the bytes, one-sided: once a client holds the *grant* of a region, the server's program takes no
//! part in a transfer (Fargraph+ 6.1). What the two ends of a plane tell each other (*offers* and
//! grants) are bytes that the control connection carries and does not read.
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

/// Longest offer or grant, in bytes; both ends refuse a longer one.
pub const MAX_BLOB: usize = 1024;

/// A transport for data, both ends of it.
pub trait DataPlane: Send + Sync + Debug {
    /// Server: starts to accept queues on `host`, a name or an address without a port, up to
    /// `queues_per_session` of one session.
    ///
    /// # Errors
    /// `Unsupported`: this machine has no such transport, with what to install. `Io`: it has, and
    /// it cannot listen there.
    fn listen(&self, host: &str, queues_per_session: usize) -> Result<Box<dyn PlaneListener>>;

    /// Client: prepares queues to `server`; asks nothing of it yet. Whatever makes no progress for
    /// `timeout` counts as gone.
    ///
    /// # Errors
    /// `Unsupported`: this machine has no such transport, with what to install.
    fn connect(
        &self,
        server: &FarAddress,
        timeout: Duration,
        control: Arc<dyn PlaneControl>,
    ) -> Result<Box<dyn PlaneClient>>;
}

/// The server's end of a plane; dropping it closes every queue and forgets every region.
///
/// Sessions are numbers that the server draws; a number is not used twice.
pub trait PlaneListener: Send + Sync + Debug {
    /// An invitation for one queue of this session, to be carried to its client. It is valid once
    /// and for a short time.
    ///
    /// # Errors
    /// `Io`: the session has too many invitations or queues open.
    fn offer(&self, session: u64) -> Result<Vec<u8>>;

    /// Opens a region to the queues of one session and returns what its client needs for transfers.
    /// The caller has checked that the session may have this access. Asked again for the same
    /// session and region, it gives the same grant.
    ///
    /// `memory` is a memfd of `len` bytes, sealed against shrinking; the plane maps it, and a region
    /// for reading and writing is mapped writable and shared until it is withdrawn.
    ///
    /// # Errors
    /// `Io`: it cannot be mapped or registered.
    fn grant(
        &self,
        session: u64,
        key: RegionKey,
        memory: BorrowedFd<'_>,
        len: Bytes,
        access: Access,
    ) -> Result<Vec<u8>>;

    /// Closes a region to every session and gives up its mappings; the server calls it before it
    /// seals the memory against writing, and before it frees it. Unknown regions are ignored.
    ///
    /// # Errors
    /// `Io`: a mapping could not be given up. No transfer reaches the region any more, but its memory
    /// may stay mapped as long as the process lives: it must be neither sealed nor lent again.
    fn withdraw(&self, key: RegionKey) -> Result<()>;

    /// Closes the queues of a session and forgets what was granted to it. Unknown sessions are
    /// ignored.
    fn session_ended(&self, session: u64);
}

/// The client's end of a plane.
pub trait PlaneClient: Send + Sync + Debug {
    /// A new queue with up to `length` transfers in flight, cut into chunks of `chunk` bytes.
    ///
    /// # Errors
    /// `Io`: the server is gone, or gives no more queues.
    fn open_queue(
        &self,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>>;

    /// Forgets the grant of a region; called once the region has been sealed or freed.
    fn forget(&self, key: RegionKey);
}

/// What a plane's client asks over the control connection. Both calls wait for the server, for its
/// time-out at most; they come from threads of the plane too.
pub trait PlaneControl: Send + Sync + Debug {
    /// An offer for one queue of this session; see [`PlaneListener::offer`].
    ///
    /// # Errors
    /// `Io`: the server is gone, or gives no more queues.
    fn offer(&self) -> Result<Vec<u8>>;

    /// The grant of a region; see [`PlaneListener::grant`].
    ///
    /// # Errors
    /// `NotFound`: there is no such region, or it is another's. `Io`: the server is gone.
    fn grant(&self, key: RegionKey) -> Result<Vec<u8>>;
}

/// What a session may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it: a sealed region.
    Read,
    /// Read and write it: its own region, before it is sealed.
    ReadWrite,
}
