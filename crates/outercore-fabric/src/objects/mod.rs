//! libfabric's objects as values that close themselves, children before their parents.
//!
//! All of them may be used from several threads: `FI_THREAD_SAFE` is required of every provider.

mod completions;
mod domain;
mod endpoint;
mod events;
mod fabric;
mod listener;
mod waiting;

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use outercore_core::{Error, Result};

pub(crate) use self::completions::{Completion, CompletionQueue};
pub(crate) use self::domain::{Domain, Registration};
pub(crate) use self::endpoint::{Endpoint, Piece, Posted};
pub(crate) use self::events::{EndpointId, Event, EventQueue, Request};
pub(crate) use self::fabric::Fabric;
pub(crate) use self::listener::Listener;
use crate::ffi;
use crate::library::Library;

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
        // SAFETY: the library created it, and only `drop` closes it.
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

    /// The file descriptor for waiting.
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
