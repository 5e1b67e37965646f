//! Events of connections, and the queue that receives them.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use outercore_core::{Error, Result};

use super::{Fabric, Object};
use crate::ffi;
use crate::library::Info;

/// A connection request, as the listener receives it.
#[derive(Debug)]
pub(crate) struct Request {
    pub info: Arc<Info>,
    /// The client's private data; a provider may pad it with zeros.
    pub data: Vec<u8>,
}

/// The identity of an endpoint in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointId(pub(super) usize);

/// An event of a connection.
#[derive(Debug)]
pub(crate) enum Event {
    Requested(Box<Request>),
    Connected,
    /// The other end closed its connection.
    Shutdown(EndpointId),
    Failed(EndpointId, Error),
    /// An event that is ignored here.
    Other,
}

/// The queue that receives the events of connections.
pub(crate) struct EventQueue {
    pub(super) object: Object<ffi::EqFid>,
    fd: c_int,
    _fabric: Arc<Fabric>,
}

impl EventQueue {
    pub(crate) fn open(fabric: &Arc<Fabric>) -> Result<Arc<Self>> {
        let what = "opening an event queue";
        let mut attributes = ffi::EqAttr {
            size: 0,
            flags: 0,
            wait_obj: ffi::FI_WAIT_FD,
            signaling_vector: 0,
            wait_set: ptr::null_mut(),
        };
        let mut queue = ptr::null_mut();
        let open = fabric.object.get().ops.eq_open;
        // SAFETY: the fabric is open; both structures live until the call returns.
        let result = unsafe {
            open(fabric.object.at.as_ptr(), &mut attributes, &mut queue, ptr::null_mut())
        };
        fabric.object.library.check(result, what)?;
        let object = Object::new(&fabric.object.library, queue, what)?;
        let fd = object.descriptor(what)?;
        Ok(Arc::new(Self { object, fd, _fabric: Arc::clone(fabric) }))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the queue owns the descriptor and keeps it open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    /// The next event, if one has arrived.
    ///
    /// # Errors
    /// `Io`: the queue itself has failed.
    pub(crate) fn read(&self) -> Result<Option<Event>> {
        let mut kind = 0;
        let mut entry = ffi::EqCmEntry {
            fid: ptr::null_mut(),
            info: ptr::null_mut(),
            data: [0; ffi::CM_DATA_ROOM],
        };
        let room = size_of::<ffi::EqCmEntry>();
        let head = room - ffi::CM_DATA_ROOM;
        let read = self.object.get().ops.read;
        // SAFETY: the queue is open; the entry has the stated size.
        let got = unsafe {
            read(self.object.at.as_ptr(), &mut kind, ptr::from_mut(&mut entry).cast(), room, 0)
        };
        let got = match usize::try_from(got) {
            Ok(got) => got,
            Err(_) if got == -(libc::EAGAIN as isize) => return Ok(None),
            Err(_) if got == -ffi::FI_EAVAIL => return self.read_error().map(Some),
            Err(_) => return Err(self.object.library.error(-got as c_int, "reading events")),
        };
        let about = EndpointId(entry.fid.addr());
        Ok(Some(match kind {
            ffi::FI_CONNREQ => {
                // SAFETY: the event passes ownership of its `fi_info` to its reader.
                let info = unsafe { Info::adopt(&self.object.library, entry.info) };
                let info = info.ok_or_else(|| Error::internal("a request without fi_info"))?;
                let data = entry.data[..got.saturating_sub(head).min(ffi::CM_DATA_ROOM)].to_vec();
                Event::Requested(Box::new(Request { info: Arc::new(info), data }))
            }
            ffi::FI_CONNECTED => Event::Connected,
            ffi::FI_SHUTDOWN => Event::Shutdown(about),
            _ => Event::Other,
        }))
    }

    fn read_error(&self) -> Result<Event> {
        let mut entry = ffi::EqErrEntry {
            fid: ptr::null_mut(),
            context: ptr::null_mut(),
            data: 0,
            err: 0,
            prov_errno: 0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
            spare: [0; 8],
        };
        let readerr = self.object.get().ops.readerr;
        // SAFETY: the queue is open; the entry is larger than any version's.
        let got = unsafe { readerr(self.object.at.as_ptr(), &mut entry, 0) };
        if got < 0 && got != -(libc::EAGAIN as isize) {
            return Err(self.object.library.error(-got as c_int, "reading events"));
        }
        if entry.fid.is_null() {
            return Ok(Event::Other);
        }
        let error = self.object.library.error(entry.err.abs(), "connection");
        Ok(Event::Failed(EndpointId(entry.fid.addr()), error))
    }
}
