//! The client of a memory server.

mod control;
pub(crate) mod greet;

use std::sync::Arc;

use outercore_core::{Bytes, Error, ErrorKind, Result};

use crate::auth::Token;
use crate::data_plane::{DataPlane, PlaneClient, PlaneControl};
use crate::options::{FarAddress, FarOptions};
use crate::protocol::{MAX_TRANSFER, Reply, Request, check_name};
use crate::queue::{Arrivals, Queue};
use crate::region::Region;
use crate::remote::{Remote, ServerStatus};
use crate::shared::{SharedMemory, SharedQueue};
use crate::tcp::SocketQueue;
use control::{Control, Pulse};
use greet::Door;

/// Most regions that a server may list.
const MOST_LISTED: usize = 1 << 24;

/// A connection to a memory server: a session that a separate thread keeps alive.
///
/// Dropping the connection ends the session and frees all regions that are not kept.
///
/// # Example
/// ```no_run
/// use outercore_core::Bytes;
/// use outercore_far::{Connection, FarOptions, Remote};
/// # fn main() -> outercore_core::Result<()> {
/// let options = FarOptions::new("10.0.0.7:7411".parse()?);
/// let server = Connection::build(&options)?;
/// let region = server.allocate(Bytes::mib(64), Some("features"))?;
/// // ... write to it through `server.open_queue(..)` ...
/// server.seal(&region, true)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection {
    // First field, so that it ends the session while the control connection still exists.
    _pulse: Pulse,
    control: Arc<Control>,
    door: Door,
    data: Data,
}

/// Method of data transfer.
#[derive(Debug)]
enum Data {
    /// Through sockets.
    Socket,
    /// Reads from memory shared with the server; writes through sockets.
    Shared(Arc<SharedMemory>),
    /// Through a data plane.
    Plane(Box<dyn PlaneClient>),
}

impl Connection {
    /// Connects (`build_connection`, Fargraph+ 8.1).
    ///
    /// # Errors
    /// `Invalid`: the options are out of range, or the token is missing or differs from the
    /// server's. `Version`: the server has another version. `Unsupported`: a `fabric://` address.
    /// `Io`: no answer.
    pub fn build(options: &FarOptions) -> Result<Self> {
        Self::build_with(options, None)
    }

    /// As [`Connection::build`], with a data plane for `fabric://` addresses.
    ///
    /// # Errors
    /// As [`Connection::build`]; `Unsupported` also if this machine lacks the transport.
    pub fn build_with(options: &FarOptions, plane: Option<&dyn DataPlane>) -> Result<Self> {
        options.validate()?;
        let token = Token::of(options)?;
        let door = Door { address: options.address.clone(), token, timeout: options.timeout() };
        Self::enter(door, plane)
    }

    fn enter(door: Door, plane: Option<&dyn DataPlane>) -> Result<Self> {
        let plane = match (&door.address, plane) {
            (FarAddress::Fabric(_), None) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("this program has no transport for {}", door.address),
                )
                .hint("use HOST:PORT"));
            }
            (FarAddress::Fabric(_), plane) => plane,
            _ => None,
        };
        let control = Arc::new(Control::connect(door.clone())?);
        let pulse = Pulse::start(Arc::clone(&control))?;
        let data = match (&door.address, plane) {
            (_, Some(plane)) => {
                let control: Arc<dyn PlaneControl> = Arc::<Control>::clone(&control);
                Data::Plane(plane.connect(&door.address, door.timeout, control)?)
            }
            (FarAddress::Unix(_), None) => {
                Data::Shared(Arc::new(SharedMemory::new(door.clone(), control.session)))
            }
            _ => Data::Socket,
        };
        Ok(Self { _pulse: pulse, control, door, data })
    }

    /// Address of the server.
    pub fn address(&self) -> &FarAddress {
        &self.door.address
    }

    /// Whether the server has answered all requests on the control connection so far.
    pub fn is_alive(&self) -> bool {
        self.control.why_dead().is_none()
    }

    /// Removes cached data of a region that was sealed or freed.
    fn forget(&self, region: &Region) {
        match &self.data {
            Data::Socket => {}
            Data::Shared(memory) => memory.forget(region.key),
            Data::Plane(plane) => plane.forget(region.key),
        }
    }
}

impl Remote for Connection {
    fn allocate(&self, len: Bytes, name: Option<&str>) -> Result<Region> {
        if let Some(name) = name {
            check_name(name)?;
        }
        let name = name.map(str::to_owned);
        match self.control.call(&Request::Allocate { len: len.0, name })? {
            Reply::Region(Some(region)) if region.len == len => Ok(region),
            other => Err(unexpected(&other)),
        }
    }

    fn seal(&self, region: &Region, keep: bool) -> Result<()> {
        self.control.call(&Request::Seal { key: region.key, keep })?;
        self.forget(region);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<Option<Region>> {
        check_name(name)?;
        match self.control.call(&Request::Find { name: name.to_owned() })? {
            Reply::Region(found) => Ok(found),
            other => Err(unexpected(&other)),
        }
    }

    fn free(&self, region: &Region) -> Result<()> {
        self.control.call(&Request::Free { key: region.key })?;
        self.forget(region);
        Ok(())
    }

    fn status(&self) -> Result<ServerStatus> {
        let mut after = None;
        let mut regions = Vec::new();
        loop {
            let page = match self.control.call(&Request::Status { after })? {
                Reply::Status(page) => page,
                other => return Err(unexpected(&other)),
            };
            let listed = page.status.regions.len();
            regions.extend(page.status.regions);
            match page.next {
                // The keys must increase from page to page, so that the list ends.
                Some(next) if listed > 0 && after.is_none_or(|after| next > after) => {
                    after = Some(next)
                }
                Some(_) => return Err(Error::new(ErrorKind::Io, "the list of regions turns back")),
                None => {
                    regions.sort_by(|a, b| a.name.cmp(&b.name));
                    return Ok(ServerStatus { regions, ..page.status });
                }
            }
            if regions.len() > MOST_LISTED {
                return Err(Error::new(ErrorKind::Io, "the list of regions has no end"));
            }
        }
    }

    fn open_queue(
        &self,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>> {
        if length == 0 || chunk.0 == 0 || chunk.0 > MAX_TRANSFER as u64 {
            return Err(Error::invalid(format!(
                "a queue of length {length} with chunks of {chunk}, expected at least 1, and chunks \
                 of at most 16 MiB"
            )));
        }
        if let Some(why) = self.control.why_dead() {
            // The session is over. A request for a queue could wait for the time-out again.
            return Err(Error::new(ErrorKind::Io, why));
        }
        let socket =
            || SocketQueue::open(&self.door, self.control.session, length, chunk, arrivals);
        match &self.data {
            Data::Socket => Ok(Box::new(socket()?)),
            Data::Shared(memory) => {
                Ok(Box::new(SharedQueue::open(Arc::clone(memory), socket()?, arrivals)?))
            }
            Data::Plane(plane) => plane.open_queue(length, chunk, arrivals),
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::new(ErrorKind::Io, format!("the memory server answers {reply:?}"))
}
