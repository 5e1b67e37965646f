//! The data plane for servers and clients.

use std::sync::Arc;
use std::time::Duration;

use outercore_core::{Error, Result};
use outercore_far::{DataPlane, FarAddress, PlaneClient, PlaneControl, PlaneListener};

use crate::client::FabricClient;
use crate::library::Library;
use crate::server::FabricListener;

/// Data transfers of far memory over libfabric. The library is loaded when the plane is first used.
///
/// # Example
/// ```
/// use outercore_far::DataPlane;
/// use outercore_fabric::FabricPlane;
/// let plane = FabricPlane::new(Some("tcp"));
/// match plane.listen("127.0.0.1", 128) {
///     Ok(listener) => println!("{listener:?}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FabricPlane {
    provider: Option<String>,
}

impl FabricPlane {
    /// A plane whose servers listen over `provider` (`verbs`, `tcp`, ...), or over the provider
    /// that libfabric prefers. Clients use the provider that their server offers.
    pub fn new(provider: Option<&str>) -> Self {
        Self { provider: provider.map(str::to_owned) }
    }

    /// Checks that this machine has the library.
    ///
    /// # Errors
    /// `Unsupported`: it is missing or too old, with the packages to install.
    pub fn check(&self) -> Result<()> {
        Library::load().map(drop)
    }
}

impl DataPlane for FabricPlane {
    fn listen(&self, host: &str, queues_per_session: usize) -> Result<Box<dyn PlaneListener>> {
        let library = Library::load()?;
        let provider = self.provider.as_deref();
        let listener = FabricListener::open(&library, plain(host), provider, queues_per_session)?;
        Ok(Box::new(listener))
    }

    fn connect(
        &self,
        server: &FarAddress,
        timeout: Duration,
        control: Arc<dyn PlaneControl>,
    ) -> Result<Box<dyn PlaneClient>> {
        let FarAddress::Fabric(at) = server else {
            return Err(Error::invalid(format!("{server} is no address of a fabric"))
                .hint("write fabric://HOST:PORT"));
        };
        let library = Library::load()?;
        let host = at.rsplit_once(':').map_or(at.as_str(), |(host, _)| host);
        let host = plain(host).to_owned();
        Ok(Box::new(FabricClient::new(library, host, server.to_string(), timeout, control)))
    }
}

/// A host without the brackets of an IPv6 address.
fn plain(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}
