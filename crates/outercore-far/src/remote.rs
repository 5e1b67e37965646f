//! What a memory server offers, as a client sees it.

use std::fmt;

use outercore_core::{Bytes, Result};
use serde::{Deserialize, Serialize};

use crate::queue::{Arrivals, Queue};
use crate::region::Region;

/// A region as the server lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// The name by which others find it; private regions have none.
    pub name: Option<String>,
    /// Its length.
    pub len: Bytes,
    /// Whether its content is final.
    pub sealed: bool,
    /// Whether it outlives the client that wrote it.
    pub kept: bool,
}

/// What a server has and lends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Version of the server's program.
    pub version: String,
    /// Memory that it lends.
    pub size: Bytes,
    /// Memory that is lent.
    pub used: Bytes,
    /// Clients that are connected.
    pub clients: u64,
    /// Regions that the asking client may see: named and sealed ones, and its own.
    pub regions: Vec<RegionInfo>,
}

/// A connection to a memory server: control messages, and data queues on connections of their own
/// (Fargraph+ 6.3).
///
/// Regions are private to the connection until they are sealed under a name; those that are not
/// kept are gone with it. Reading needs a sealed region, or one's own.
pub trait Remote: Send + Sync + fmt::Debug {
    /// A region of `len` bytes, to be written; under `name` once it is sealed.
    ///
    /// # Errors
    /// `NoSpace`: the server is full, with what it has left. `Invalid`: a length of zero, or a name
    /// that is taken, empty or longer than 255 bytes. `Io`: the server is gone.
    fn allocate(&self, len: Bytes, name: Option<&str>) -> Result<Region>;

    /// Makes the content final: from now on it can be read by others and written by nobody. A kept
    /// region outlives this connection.
    ///
    /// # Errors
    /// `Invalid`: not a region of this connection. `Io`: the server is gone.
    fn seal(&self, region: &Region, keep: bool) -> Result<()>;

    /// The sealed region of a name, where there is one.
    ///
    /// # Errors
    /// `Io`: the server is gone.
    fn find(&self, name: &str) -> Result<Option<Region>>;

    /// Gives a region back.
    ///
    /// # Errors
    /// `NotFound`: there is no such region. `Io`: the server is gone.
    fn free(&self, region: &Region) -> Result<()>;

    /// What the server has and lends.
    ///
    /// # Errors
    /// `Io`: the server is gone.
    fn status(&self) -> Result<ServerStatus>;

    /// A new data queue with up to `length` transfers in flight, cut into chunks of `chunk` bytes.
    ///
    /// # Errors
    /// `Io`: the server is gone, or gives no more connections.
    fn open_queue(
        &self,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>>;
}
