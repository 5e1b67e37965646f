//! The interface of a memory server for a client.

use std::fmt;

use outercore_core::{Bytes, Result};
use serde::{Deserialize, Serialize};

use crate::queue::{Arrivals, Queue};
use crate::region::Region;

/// A region in the server's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// The name by which other clients find it; `None` for private regions.
    pub name: Option<String>,
    /// Its length.
    pub len: Bytes,
    /// Whether its content is final.
    pub sealed: bool,
    /// Whether it outlives the client that wrote it.
    pub kept: bool,
}

/// Memory and regions of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Version of the server's program.
    pub version: String,
    /// Memory to lend.
    pub size: Bytes,
    /// Memory in use.
    pub used: Bytes,
    /// Number of connected clients.
    pub clients: u64,
    /// Regions that the client may see: named sealed regions, and its own.
    pub regions: Vec<RegionInfo>,
}

/// A connection to a memory server: control messages, and data queues on separate connections
/// (Fargraph+ 6.3).
///
/// Regions are private to the connection until they are sealed under a name. Regions that are not
/// kept are freed with the connection. A client can read sealed regions and its own.
pub trait Remote: Send + Sync + fmt::Debug {
    /// Allocates a region of `len` bytes for writing; `name` takes effect when it is sealed.
    ///
    /// # Errors
    /// `NoSpace`: the server is full, with the remaining amount. `Invalid`: a length of zero, or a
    /// name that is taken, empty or longer than 255 bytes. `Io`: the server is gone.
    fn allocate(&self, len: Bytes, name: Option<&str>) -> Result<Region>;

    /// Makes the content final: from then on others can read it, and it cannot be written. A kept
    /// region outlives this connection.
    ///
    /// # Errors
    /// `Invalid`: not a region of this connection. `Io`: the server is gone.
    fn seal(&self, region: &Region, keep: bool) -> Result<()>;

    /// The sealed region with a name, if it exists.
    ///
    /// # Errors
    /// `Io`: the server is gone.
    fn find(&self, name: &str) -> Result<Option<Region>>;

    /// Frees a region.
    ///
    /// # Errors
    /// `NotFound`: no such region. `Io`: the server is gone.
    fn free(&self, region: &Region) -> Result<()>;

    /// Memory and regions of the server.
    ///
    /// # Errors
    /// `Io`: the server is gone.
    fn status(&self) -> Result<ServerStatus>;

    /// A new data queue with up to `length` transfers in flight, split into chunks of `chunk`
    /// bytes.
    ///
    /// # Errors
    /// `Io`: the server is gone, or accepts no more connections.
    fn open_queue(
        &self,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>>;
}
