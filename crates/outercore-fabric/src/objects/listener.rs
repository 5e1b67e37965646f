//! Accepts or rejects connection requests.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use outercore_core::{Error, Result};

use super::{EventQueue, Fabric, Object, Request};
use crate::ffi;
use crate::library::Info;

/// Receives connection requests.
pub(crate) struct Listener {
    object: Object<ffi::PepFid>,
    _info: Arc<Info>,
    _events: Arc<EventQueue>,
}

impl Listener {
    /// Listens at the address of `info`; requests arrive in `events`.
    pub(crate) fn open(
        fabric: &Arc<Fabric>,
        info: &Arc<Info>,
        events: &Arc<EventQueue>,
    ) -> Result<Self> {
        let what = "listening";
        let mut listener = ptr::null_mut();
        let open = fabric.object.get().ops.passive_ep;
        // SAFETY: fabric and info are alive.
        let result = unsafe {
            open(fabric.object.at.as_ptr(), info.as_ptr(), &mut listener, ptr::null_mut())
        };
        fabric.object.library.check(result, what)?;
        let object = Object::new(&fabric.object.library, listener, what)?;
        object.bind(events.object.fid(), 0, what)?;
        let listen = object.get().cm.listen;
        // SAFETY: open and bound to its events.
        let result = unsafe { listen(object.at.as_ptr()) };
        fabric.object.library.check(result, what)?;
        Ok(Self { object, _info: Arc::clone(info), _events: Arc::clone(events) })
    }

    /// The assigned port.
    pub(crate) fn port(&self) -> Result<u16> {
        // Room for any socket address: family, then the port in network order, for IPv4 and IPv6.
        let mut address = [0u8; 128];
        let mut len = address.len();
        let getname = self.object.get().cm.getname;
        // SAFETY: the listener is open; the address has the stated size.
        let result = unsafe { getname(self.object.fid(), address.as_mut_ptr().cast(), &mut len) };
        self.object.library.check(result, "the port listened on")?;
        let family = c_int::from(u16::from_ne_bytes([address[0], address[1]]));
        if !matches!(family, libc::AF_INET | libc::AF_INET6) {
            return Err(Error::internal(format!("address family {family}, expected IPv4 or IPv6")));
        }
        Ok(u16::from_be_bytes([address[2], address[3]]))
    }

    /// Rejects a request.
    pub(crate) fn reject(&self, request: &Request) -> Result<()> {
        let reject = self.object.get().cm.reject;
        let handle = request.info.raw().handle;
        // SAFETY: the handle came with the request and has not been accepted.
        let result = unsafe { reject(self.object.at.as_ptr(), handle, ptr::null(), 0) };
        self.object.library.check(result, "turning a connection away")
    }
}
