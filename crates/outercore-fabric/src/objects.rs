//! libfabric's objects as values that close themselves, parents after their children.
//!
//! All of them may be used from several threads: `FI_THREAD_SAFE` is asked of every provider.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use outercore_core::{Error, Result};

use crate::ffi;
use crate::library::{Info, Library};

/// An object of the library, closed when dropped. `T` is one of the structures of [`ffi`] that
/// begin with a [`ffi::Fid`].
struct Object<T> {
    at: NonNull<T>,
    library: Arc<Library>,
}

// SAFETY: the library may be called from any thread.
unsafe impl<T> Send for Object<T> {}
// SAFETY: the library guards its objects itself (`FI_THREAD_SAFE`).
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    fn new(library: &Arc<Library>, at: *mut T, what: &str) -> Result<Self> {
        let at = NonNull::new(at).ok_or_else(|| Error::internal(format!("{what}: no object")))?;
        Ok(Self { at, library: Arc::clone(library) })
    }

    fn get(&self) -> &T {
        // SAFETY: the library made it, and it is closed by `drop` alone.
        unsafe { self.at.as_ref() }
    }

    fn fid(&self) -> *mut ffi::Fid {
        self.at.as_ptr().cast()
    }

    fn head(&self) -> &ffi::Fid {
        // SAFETY: every object begins with its head, and lives until `drop`.
        unsafe { self.at.cast::<ffi::Fid>().as_ref() }
    }

    fn bind(&self, other: *mut ffi::Fid, flags: u64, what: &str) -> Result<()> {
        let bind = self.head().ops.bind;
        // SAFETY: both objects are open.
        let result = unsafe { bind(self.fid(), other, flags) };
        self.library.check(result, what)
    }

    /// The descriptor that can be slept on.
    fn descriptor(&self, what: &str) -> Result<c_int> {
        let control = self.head().ops.control;
        let mut fd: c_int = -1;
        // SAFETY: for a queue opened with `FI_WAIT_FD` the command writes one descriptor.
        let result = unsafe { control(self.fid(), ffi::FI_GETWAIT, ptr::from_mut(&mut fd).cast()) };
        self.library.check(result, what)?;
        if fd < 0 {
            return Err(Error::internal(format!("{what}: no descriptor to sleep on")));
        }
        Ok(fd)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        let close = self.head().ops.close;
        // SAFETY: closed once; the owners of `Object` keep parents open for as long.
        let result = unsafe { close(self.fid()) };
        debug_assert_eq!(result, 0, "libfabric closes what nothing depends on");
    }
}

/// An opened provider.
pub(crate) struct Fabric {
    object: Object<ffi::FabricFid>,
    _info: Arc<Info>,
}

impl Fabric {
    pub(crate) fn open(library: &Arc<Library>, info: &Arc<Info>) -> Result<Arc<Self>> {
        let fabric = library.open_fabric(info)?;
        let object = Object { at: fabric, library: Arc::clone(library) };
        Ok(Arc::new(Self { object, _info: Arc::clone(info) }))
    }

    /// Whether nothing is waiting in the two queues, so that their descriptors may be slept on.
    /// Where it says no, they must be read first.
    pub(crate) fn may_sleep(
        &self,
        events: Option<&EventQueue>,
        done: Option<&CompletionQueue>,
    ) -> bool {
        let mut list = [ptr::null_mut(); 2];
        let both = [events.map(|events| events.object.fid()), done.map(|done| done.object.fid())];
        let mut count = 0;
        for fid in both.into_iter().flatten() {
            list[count] = fid;
            count += 1;
        }
        let trywait = self.object.get().ops.trywait;
        // SAFETY: the list holds `count` open queues of this fabric.
        let result = unsafe { trywait(self.object.at.as_ptr(), list.as_mut_ptr(), count as c_int) };
        result == 0
    }
}

/// What a connection asks for, as the listener sees it.
#[derive(Debug)]
pub(crate) struct Request {
    pub info: Arc<Info>,
    /// What the client sent along; a provider may pad it with zeros.
    pub data: Vec<u8>,
}

/// The identity of an endpoint in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointId(usize);

/// Something about connections.
#[derive(Debug)]
pub(crate) enum Event {
    Requested(Box<Request>),
    Connected,
    /// The other end closed its connection.
    Shutdown(EndpointId),
    Failed(EndpointId, Error),
    /// Of no interest here.
    Other,
}

/// Where the events of connections arrive.
pub(crate) struct EventQueue {
    object: Object<ffi::EqFid>,
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

    /// The next event, where one has arrived.
    ///
    /// # Errors
    /// `Io`: the queue itself is broken.
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
        // SAFETY: the queue is open; the entry has the room that is said.
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
                // SAFETY: the event hands its `fi_info` over to whoever reads it.
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

/// What shares memory registrations: a protection domain.
pub(crate) struct Domain {
    object: Object<ffi::DomainFid>,
    _info: Arc<Info>,
    fabric: Arc<Fabric>,
}

impl Domain {
    pub(crate) fn open(fabric: &Arc<Fabric>, info: &Arc<Info>) -> Result<Arc<Self>> {
        let what = "opening a domain";
        let mut domain = ptr::null_mut();
        let open = fabric.object.get().ops.domain;
        // SAFETY: fabric and info are alive.
        let result =
            unsafe { open(fabric.object.at.as_ptr(), info.as_ptr(), &mut domain, ptr::null_mut()) };
        fabric.object.library.check(result, what)?;
        let object = Object::new(&fabric.object.library, domain, what)?;
        Ok(Arc::new(Self { object, _info: Arc::clone(info), fabric: Arc::clone(fabric) }))
    }

    pub(crate) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Registers memory for `access`; `key` is what others open it by, where the provider does not
    /// choose itself.
    ///
    /// # Safety
    /// The memory stays mapped until the registration, and every endpoint of the domain that could
    /// still be moving its bytes, is gone; nobody holds a reference to bytes while a transfer
    /// writes them.
    ///
    /// # Errors
    /// `Io`: the provider or the limit on locked memory refuses.
    pub(crate) unsafe fn register(
        self: &Arc<Self>,
        start: *mut u8,
        len: usize,
        access: u64,
        key: u64,
    ) -> Result<Registration> {
        let what = "registering memory";
        let mut region = ptr::null_mut();
        let register = self.object.get().mr.reg;
        // SAFETY: the domain is open; the caller answers for the memory.
        let result = unsafe {
            register(
                self.object.fid(),
                start.cast_const().cast(),
                len,
                access,
                0,
                key,
                0,
                &mut region,
                ptr::null_mut(),
            )
        };
        self.object.library.check(result, what)?;
        let object = Object::new(&self.object.library, region, what)?;
        Ok(Registration { object, _domain: Arc::clone(self) })
    }
}

/// Registered memory.
pub(crate) struct Registration {
    object: Object<ffi::MrFid>,
    _domain: Arc<Domain>,
}

impl Registration {
    /// What others open it by.
    pub(crate) fn key(&self) -> u64 {
        self.object.get().key
    }

    fn descriptor(&self) -> *mut c_void {
        self.object.get().mem_desc
    }
}

/// A transfer that has ended, with the number that it was started with.
#[derive(Debug)]
pub(crate) struct Completion {
    pub context: usize,
    pub result: Result<()>,
}

/// Where ended transfers arrive.
pub(crate) struct CompletionQueue {
    object: Object<ffi::CqFid>,
    fd: c_int,
    domain: Arc<Domain>,
}

impl CompletionQueue {
    /// A queue with room for `size` completions.
    pub(crate) fn open(domain: &Arc<Domain>, size: usize) -> Result<Arc<Self>> {
        let what = "opening a completion queue";
        let mut attributes = ffi::CqAttr {
            size,
            flags: 0,
            format: ffi::FI_CQ_FORMAT_CONTEXT,
            wait_obj: ffi::FI_WAIT_FD,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let mut queue = ptr::null_mut();
        let open = domain.object.get().ops.cq_open;
        // SAFETY: the domain is open; both structures live until the call returns.
        let result = unsafe {
            open(domain.object.at.as_ptr(), &mut attributes, &mut queue, ptr::null_mut())
        };
        domain.object.library.check(result, what)?;
        let object = Object::new(&domain.object.library, queue, what)?;
        let fd = object.descriptor(what)?;
        Ok(Arc::new(Self { object, fd, domain: Arc::clone(domain) }))
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the queue owns the descriptor and keeps it open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    /// Adds what has ended to `done`, and lets the provider get on with its work. Returns how many
    /// were added.
    ///
    /// # Errors
    /// `Io`: the queue itself is broken.
    pub(crate) fn read(&self, done: &mut Vec<Completion>) -> Result<usize> {
        let mut contexts = [ptr::null_mut::<c_void>(); 32];
        let read = self.object.get().ops.read;
        // SAFETY: the queue is open; the format is one pointer for each completion.
        let got =
            unsafe { read(self.object.at.as_ptr(), contexts.as_mut_ptr().cast(), contexts.len()) };
        match usize::try_from(got) {
            Ok(got) => {
                let ended = contexts.iter().take(got);
                done.extend(ended.map(|at| Completion { context: at.addr(), result: Ok(()) }));
                Ok(got)
            }
            Err(_) if got == -(libc::EAGAIN as isize) => Ok(0),
            Err(_) if got == -ffi::FI_EAVAIL => self.read_error(done),
            Err(_) => Err(self.object.library.error(-got as c_int, "reading completions")),
        }
    }

    fn read_error(&self, done: &mut Vec<Completion>) -> Result<usize> {
        let mut entry = ffi::CqErrEntry {
            op_context: ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
            spare: [0; 8],
        };
        let readerr = self.object.get().ops.readerr;
        // SAFETY: the queue is open; the entry is larger than any version's.
        let got = unsafe { readerr(self.object.at.as_ptr(), &mut entry, 0) };
        if got == 0 || got == -(libc::EAGAIN as isize) {
            return Ok(0);
        }
        if got < 0 {
            return Err(self.object.library.error(-got as c_int, "reading completions"));
        }
        let error = self.object.library.error(entry.err.abs(), "transfer");
        done.push(Completion { context: entry.op_context.addr(), result: Err(error) });
        Ok(1)
    }
}

/// Where connections are asked for.
pub(crate) struct Listener {
    object: Object<ffi::PepFid>,
    _info: Arc<Info>,
    _events: Arc<EventQueue>,
}

impl Listener {
    /// Listens where `info` says; requests arrive in `events`.
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

    /// The port it got.
    pub(crate) fn port(&self) -> Result<u16> {
        // Room for any socket address: family, then the port in network order, for IPv4 and IPv6.
        let mut address = [0u8; 128];
        let mut len = address.len();
        let getname = self.object.get().cm.getname;
        // SAFETY: the listener is open; the address has the room that is said.
        let result = unsafe { getname(self.object.fid(), address.as_mut_ptr().cast(), &mut len) };
        self.object.library.check(result, "the port listened on")?;
        let family = c_int::from(u16::from_ne_bytes([address[0], address[1]]));
        if !matches!(family, libc::AF_INET | libc::AF_INET6) {
            return Err(Error::internal(format!("address family {family}, expected IPv4 or IPv6")));
        }
        Ok(u16::from_be_bytes([address[2], address[3]]))
    }

    /// Turns a request away.
    pub(crate) fn reject(&self, request: &Request) -> Result<()> {
        let reject = self.object.get().cm.reject;
        let handle = request.info.raw().handle;
        // SAFETY: the handle came with the request and has not been accepted.
        let result = unsafe { reject(self.object.at.as_ptr(), handle, ptr::null(), 0) };
        self.object.library.check(result, "turning a connection away")
    }
}

/// Whether an endpoint took a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Started,
    /// Full; something must end first.
    Full,
}

/// Bytes at both ends of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub local: *mut u8,
    pub len: usize,
    pub registration: &'a Registration,
    pub address: u64,
    pub key: u64,
    /// Comes back with the completion.
    pub context: usize,
}

/// One end of a connection. Once it is dropped the provider touches no memory for it any more.
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

    /// Asks for a connection to where `info` says; the answer is an event.
    pub(crate) fn connect(&self, info: &Info, data: &[u8]) -> Result<()> {
        let connect = self.object.get().cm.connect;
        let address = info.raw().dest_addr;
        // SAFETY: address and data live until the call returns, which copies them.
        let result =
            unsafe { connect(self.object.at.as_ptr(), address, data.as_ptr().cast(), data.len()) };
        self.object.library.check(result, "connecting")
    }

    /// Lets the client in whose request this endpoint was opened from.
    pub(crate) fn accept(&self) -> Result<()> {
        let accept = self.object.get().cm.accept;
        // SAFETY: open and enabled; no data goes along.
        let result = unsafe { accept(self.object.at.as_ptr(), ptr::null(), 0) };
        self.object.library.check(result, "accepting a connection")
    }

    /// Starts reading from the other end's memory.
    ///
    /// # Safety
    /// The local bytes lie in the registered memory and are nobody else's until the transfer has
    /// ended or the endpoint is dropped.
    ///
    /// # Errors
    /// `Io`: the connection is gone.
    pub(crate) unsafe fn read(&self, piece: Piece<'_>) -> Result<Posted> {
        let read = self.one_sided()?.read;
        // SAFETY: the caller answers for the bytes.
        unsafe { self.post(read, piece) }
    }

    /// Starts writing to the other end's memory.
    ///
    /// # Safety
    /// The local bytes lie in the registered memory and are not written to until the transfer has
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

macro_rules! named {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

named!(Fabric, EventQueue, Domain, Registration, CompletionQueue, Listener, Endpoint);
