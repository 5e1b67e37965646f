//! One end of a connection, and the transfers that it starts.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use outercore_core::{Error, Result};

use super::{CompletionQueue, EndpointId, EventQueue, Object, Registration};
use crate::ffi;
use crate::library::Info;

/// Whether an endpoint accepted a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Started,
    /// The endpoint is full; a transfer must end first.
    Full,
}

/// The local and the remote bytes of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub local: *mut u8,
    pub len: usize,
    pub registration: &'a Registration,
    pub address: u64,
    pub key: u64,
    /// Returned with the completion.
    pub context: usize,
}

/// One end of a connection. After it is dropped, the provider accesses no memory for it.
pub(crate) struct Endpoint {
    object: Object<ffi::EpFid>,
    _info: Arc<Info>,
    _done: Arc<CompletionQueue>,
    _events: Arc<EventQueue>,
}

impl Endpoint {
    pub(crate) fn open(
        info: &Arc<Info>,
        events: &Arc<EventQueue>,
        done: &Arc<CompletionQueue>,
    ) -> Result<Self> {
        let what = "opening a connection";
        let domain = done.domain();
        let library = &domain.object.library;
        let mut endpoint = ptr::null_mut();
        let open = domain.object.get().ops.endpoint;
        // SAFETY: domain and info are alive.
        let result = unsafe {
            open(domain.object.at.as_ptr(), info.as_ptr(), &mut endpoint, ptr::null_mut())
        };
        library.check(result, what)?;
        let object = Object::new(library, endpoint, what)?;
        object.bind(events.object.fid(), 0, what)?;
        object.bind(done.object.fid(), ffi::FI_TRANSMIT | ffi::FI_RECV, what)?;
        let control = object.head().ops.control;
        // SAFETY: enabling takes no argument.
        let result = unsafe { control(object.fid(), ffi::FI_ENABLE, ptr::null_mut()) };
        library.check(result, what)?;
        Ok(Self {
            object,
            _info: Arc::clone(info),
            _done: Arc::clone(done),
            _events: Arc::clone(events),
        })
    }

    pub(crate) fn id(&self) -> EndpointId {
        EndpointId(self.object.fid().addr())
    }

    /// Requests a connection to the address of `info`; the answer is an event.
    pub(crate) fn connect(&self, info: &Info, data: &[u8]) -> Result<()> {
        let connect = self.object.get().cm.connect;
        let address = info.raw().dest_addr;
        // SAFETY: address and data live until the call returns, which copies them.
        let result =
            unsafe { connect(self.object.at.as_ptr(), address, data.as_ptr().cast(), data.len()) };
        self.object.library.check(result, "connecting")
    }

    /// Accepts the client whose request this endpoint was opened for.
    pub(crate) fn accept(&self) -> Result<()> {
        let accept = self.object.get().cm.accept;
        // SAFETY: open and enabled; no data goes along.
        let result = unsafe { accept(self.object.at.as_ptr(), ptr::null(), 0) };
        self.object.library.check(result, "accepting a connection")
    }

    /// Starts to read from the memory of the other end.
    ///
    /// # Safety
    /// The local bytes are in the registered memory. No other code accesses them until the transfer
    /// has ended or the endpoint is dropped.
    ///
    /// # Errors
    /// `Io`: the connection is gone.
    pub(crate) unsafe fn read(&self, piece: Piece<'_>) -> Result<Posted> {
        let read = self.one_sided()?.read;
        // SAFETY: the caller answers for the bytes.
        unsafe { self.post(read, piece) }
    }

    /// Starts to write to the memory of the other end.
    ///
    /// # Safety
    /// The local bytes are in the registered memory. No code writes to them until the transfer has
    /// ended or the endpoint is dropped.
    ///
    /// # Errors
    /// `Io`: the connection is gone.
    pub(crate) unsafe fn write(&self, piece: Piece<'_>) -> Result<Posted> {
        let write = self.one_sided()?.write;
        // SAFETY: the caller answers for the bytes.
        unsafe { self.post(write, piece) }
    }

    fn one_sided(&self) -> Result<&ffi::RmaOps> {
        self.object.get().rma.ok_or_else(|| Error::internal("a provider without fi_read"))
    }

    /// # Safety
    /// As for [`Endpoint::read`].
    unsafe fn post(&self, operation: ffi::Rma, piece: Piece<'_>) -> Result<Posted> {
        // SAFETY: the endpoint is open, and the caller answers for the bytes.
        let result = unsafe {
            operation(
                self.object.at.as_ptr(),
                piece.local.cast(),
                piece.len,
                piece.registration.descriptor(),
                0,
                piece.address,
                piece.key,
                ptr::without_provenance_mut(piece.context),
            )
        };
        match result {
            0 => Ok(Posted::Started),
            _ if result == -(libc::EAGAIN as isize) => Ok(Posted::Full),
            _ => Err(self
                .object
                .library
                .error(result.unsigned_abs() as c_int, "starting a transfer")),
        }
    }
}
