//! The library, loaded at run time and never linked.

use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use outercore_core::{Error, ErrorKind, Result};

use crate::ffi;
use crate::signals::keep_handlers;

/// The file name in every distribution; the number is the version of the binary interface.
const FILE: &str = "libfabric.so.1";

const INSTALL: &str = "install libfabric 1.17 or later (Debian, Ubuntu: libfabric1; Fedora: \
                       libfabric), or use tcp://HOST:PORT";

/// libfabric's five exported functions. All other functions are reached through its objects.
pub(crate) struct Library {
    getinfo: ffi::GetInfo,
    freeinfo: ffi::FreeInfo,
    dupinfo: ffi::DupInfo,
    open_fabric: ffi::OpenFabric,
    strerror: ffi::StrError,
    /// Never unloaded: providers have threads and exit hooks that need the code until the process
    /// ends.
    _code: ManuallyDrop<libloading::Library>,
}

impl Library {
    /// Loads the library.
    ///
    /// # Errors
    /// `Unsupported`: it is missing or too old, with the packages to install.
    pub(crate) fn load() -> Result<Arc<Self>> {
        Self::load_file(FILE)
    }

    fn load_file(file: &str) -> Result<Arc<Self>> {
        // SAFETY: the initialisers of libfabric register its providers; changes to signals by the
        // libraries behind it are undone.
        let code = keep_handlers(|| unsafe { libloading::Library::new(file) });
        let code = code.map_err(|error| {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Error::new(ErrorKind::Unsupported, format!("libfabric cannot be loaded: {why}"))
                .hint(INSTALL)
        })?;
        let code = ManuallyDrop::new(code);
        // SAFETY: `fi_version` has this type in every version.
        let version: ffi::Version = unsafe { symbol(&code, "fi_version") }?;
        // SAFETY: it takes nothing and returns a number.
        let version = unsafe { version() };
        if version < ffi::API_VERSION {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{FILE} is version {}.{}, expected 1.17 or later",
                    version >> 16,
                    version & 0xffff
                ),
            )
            .hint(INSTALL));
        }
        Ok(Arc::new(Self {
            // SAFETY: declared so in `rdma/fabric.h`.
            getinfo: unsafe { symbol(&code, "fi_getinfo") }?,
            // SAFETY: declared so in `rdma/fabric.h`.
            freeinfo: unsafe { symbol(&code, "fi_freeinfo") }?,
            // SAFETY: declared so in `rdma/fabric.h`.
            dupinfo: unsafe { symbol(&code, "fi_dupinfo") }?,
            // SAFETY: declared so in `rdma/fabric.h`.
            open_fabric: unsafe { symbol(&code, "fi_fabric") }?,
            // SAFETY: declared so in `rdma/fi_errno.h`.
            strerror: unsafe { symbol(&code, "fi_strerror") }?,
            _code: code,
        }))
    }

    /// Converts a result of the library: negative numbers are errors while doing `what`.
    pub(crate) fn check(&self, result: impl Into<i64>, what: &str) -> Result<()> {
        match result.into() {
            0.. => Ok(()),
            error => Err(self.error(error.unsigned_abs() as c_int, what)),
        }
    }

    /// The error for an error number of the library.
    pub(crate) fn error(&self, number: c_int, what: &str) -> Error {
        let error = Error::new(ErrorKind::Io, format!("{what}: {}", self.describe(number)));
        match number {
            libc::ENOMEM | libc::EPERM if what.contains("register") => {
                error.hint("raise the limit on locked memory (ulimit -l) to the size of the memory")
            }
            _ => error,
        }
    }

    /// The library's text for an error number.
    pub(crate) fn describe(&self, number: c_int) -> String {
        // SAFETY: any number is allowed.
        let text = unsafe { (self.strerror)(number) };
        if text.is_null() {
            return format!("libfabric error {number}");
        }
        // SAFETY: a constant string of the library or of libc, ended by a zero.
        let text = unsafe { CStr::from_ptr(text) };
        format!("libfabric: {} ({number})", text.to_string_lossy())
    }

    /// The best way to reach `host`, or to be reached there: connected endpoints with one-sided
    /// operations, safe for several threads, of `provider` if one is given.
    ///
    /// # Errors
    /// `Unsupported`: no such provider on this machine. `Io`: the host is unknown or cannot be
    /// reached.
    pub(crate) fn info(
        self: &Arc<Self>,
        host: &str,
        port: u16,
        side: Side,
        provider: Option<&str>,
    ) -> Result<Arc<Info>> {
        let what = match side {
            Side::Server => format!("listening on fabric://{host}"),
            Side::Client => format!("reaching fabric://{host}"),
        };
        let hints = self.hints(provider)?;
        let node = c_string(host)?;
        let service = c_string(&port.to_string())?;
        let flags = match side {
            Side::Server => ffi::FI_SOURCE,
            Side::Client => 0,
        };
        let mut found = ptr::null_mut();
        // SAFETY: the strings and the hints live until the call returns; `found` is ours.
        let result = keep_handlers(|| unsafe {
            (self.getinfo)(
                ffi::API_VERSION,
                node.as_ptr(),
                service.as_ptr(),
                flags,
                hints.0.first.as_ptr(),
                &mut found,
            )
        });
        if result == -libc::ENODATA {
            let name = provider.unwrap_or("any provider");
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{what}: libfabric has no connected endpoints with one-sided reads there ({name})"),
            )
            .hint("give an address of the RDMA interface; `fi_info -t FI_EP_MSG` lists what there is"));
        }
        self.check(result, &what)?;
        let first = NonNull::new(found).ok_or_else(|| Error::internal("no fi_info"))?;
        Ok(Arc::new(Info { first, library: Arc::clone(self) }))
    }

    fn hints(self: &Arc<Self>, provider: Option<&str>) -> Result<Hints> {
        // SAFETY: without a model it allocates an empty one.
        let first = unsafe { (self.dupinfo)(ptr::null()) };
        let first = NonNull::new(first)
            .ok_or_else(|| Error::new(ErrorKind::Io, "libfabric is out of memory"))?;
        let mut hints = Hints(Info { first, library: Arc::clone(self) });
        hints.fill(provider)?;
        Ok(hints)
    }

    /// Opens the fabric of `info`.
    pub(crate) fn open_fabric(&self, info: &Info) -> Result<NonNull<ffi::FabricFid>> {
        let mut fabric = ptr::null_mut();
        let attributes = info.raw().fabric_attr;
        // SAFETY: the attributes belong to `info`, which lives until the call returns.
        let result = unsafe { (self.open_fabric)(attributes, &mut fabric, ptr::null_mut()) };
        self.check(result, "opening the fabric")?;
        NonNull::new(fabric).ok_or_else(|| Error::internal("no fabric"))
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library(libfabric)")
    }
}

/// # Safety
/// The symbol must have the type `T`, a function pointer.
unsafe fn symbol<T: Copy>(code: &libloading::Library, name: &str) -> Result<T> {
    // SAFETY: the caller knows the type.
    let found = unsafe { code.get::<T>(name) };
    found.map(|symbol| *symbol).map_err(|error| {
        Error::new(ErrorKind::Unsupported, format!("libfabric without {name}: {error}"))
            .hint(INSTALL)
    })
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| Error::invalid(format!("`{}` has a zero byte", text.escape_debug())))
}

/// The end that makes the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// Results of libfabric, best first; freed when dropped.
///
/// All objects opened from it keep it alive, because some providers keep its pointers instead of a
/// copy.
pub(crate) struct Info {
    first: NonNull<ffi::InfoRaw>,
    library: Arc<Library>,
}

// SAFETY: plain memory that is not shared with anything else.
unsafe impl Send for Info {}
// SAFETY: shared references only read it.
unsafe impl Sync for Info {}

impl Info {
    /// Takes ownership of an `fi_info` from an event.
    ///
    /// # Safety
    /// `raw` is null, or a whole `fi_info` of this library that no other code frees.
    pub(crate) unsafe fn adopt(library: &Arc<Library>, raw: *mut ffi::InfoRaw) -> Option<Self> {
        Some(Self { first: NonNull::new(raw)?, library: Arc::clone(library) })
    }

    /// The first and best result.
    pub(crate) fn raw(&self) -> &ffi::InfoRaw {
        // SAFETY: the library created it completely, and only `drop` frees it.
        unsafe { self.first.as_ref() }
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::InfoRaw {
        self.first.as_ptr()
    }

    /// The provider's name.
    pub(crate) fn provider(&self) -> String {
        // SAFETY: part of `self`, or null.
        let fabric = unsafe { self.raw().fabric_attr.as_ref() };
        let Some(name) = fabric.map(|fabric| fabric.prov_name).filter(|name| !name.is_null())
        else {
            return String::new();
        };
        // SAFETY: a string of the library, ended by a zero, that lives as long as `self`.
        let name = unsafe { CStr::from_ptr(name.cast_const().cast::<c_char>()) };
        name.to_string_lossy().into_owned()
    }

    /// The provider's requirements for registering memory, and the bytes of a key.
    pub(crate) fn registration(&self) -> (c_int, usize) {
        // SAFETY: part of `self`, or null.
        let domain = unsafe { self.raw().domain_attr.as_ref() };
        domain.map_or((0, 8), |domain| (domain.mr_mode, domain.mr_key_size))
    }

    /// Most operations that an endpoint accepts at once.
    pub(crate) fn queue_size(&self) -> usize {
        // SAFETY: part of `self`, or null.
        let transmit = unsafe { self.raw().tx_attr.as_ref() };
        transmit.map_or(1, |transmit| transmit.size.max(1))
    }

    /// Longest operation in bytes.
    pub(crate) fn longest(&self) -> usize {
        // SAFETY: part of `self`, or null.
        let endpoint = unsafe { self.raw().ep_attr.as_ref() };
        endpoint.map_or(4096, |endpoint| endpoint.max_msg_size.max(1))
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: allocated by this library and freed once.
        unsafe { (self.library.freeinfo)(self.first.as_ptr()) };
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Info({})", self.provider())
    }
}

/// An `fi_info` with the requirements.
struct Hints(Info);

impl Hints {
    fn fill(&mut self, provider: Option<&str>) -> Result<()> {
        let missing = || Error::internal("fi_allocinfo left out a part");
        // SAFETY: complete, and only we hold it.
        let info = unsafe { self.0.first.as_mut() };
        info.caps = ffi::FI_MSG | ffi::FI_RMA;
        info.mode = ffi::FI_RX_CQ_DATA;
        // SAFETY: part of `self`, or null.
        let transmit = unsafe { info.tx_attr.as_mut() }.ok_or_else(missing)?;
        transmit.msg_order = ffi::FI_ORDER_RAW;
        // SAFETY: part of `self`, or null.
        let receive = unsafe { info.rx_attr.as_mut() }.ok_or_else(missing)?;
        receive.mode = ffi::FI_RX_CQ_DATA;
        receive.msg_order = ffi::FI_ORDER_RAW;
        // SAFETY: part of `self`, or null.
        let endpoint = unsafe { info.ep_attr.as_mut() }.ok_or_else(missing)?;
        endpoint.kind = ffi::FI_EP_MSG;
        // SAFETY: part of `self`, or null.
        let domain = unsafe { info.domain_attr.as_mut() }.ok_or_else(missing)?;
        domain.threading = ffi::FI_THREAD_SAFE;
        domain.control_progress = ffi::FI_PROGRESS_AUTO;
        domain.data_progress = ffi::FI_PROGRESS_AUTO;
        domain.mr_mode =
            ffi::FI_MR_LOCAL | ffi::FI_MR_VIRT_ADDR | ffi::FI_MR_ALLOCATED | ffi::FI_MR_PROV_KEY;
        if let Some(provider) = provider {
            let name = c_string(provider)?;
            // SAFETY: part of `self`, or null.
            let fabric = unsafe { info.fabric_attr.as_mut() }.ok_or_else(missing)?;
            // SAFETY: a string ended by a zero; `fi_freeinfo` frees the copy.
            fabric.prov_name = unsafe { libc::strdup(name.as_ptr()) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_an_error_says_what_to_install() {
        let error = Library::load_file("libfabric-of-nobody.so.1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        for words in ["libfabric-of-nobody.so.1", "install libfabric 1.17", "tcp://HOST:PORT"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn another_library_is_not_taken_for_it() {
        let error = Library::load_file("libc.so.6").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("fi_version"), "{error}");
    }
}
