//! Registered memory, and the domain that shares it.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use outercore_core::Result;

use super::{Fabric, Object};
use crate::ffi;
use crate::library::Info;

/// What shares memory registrations: a protection domain.
pub(crate) struct Domain {
    pub(super) object: Object<ffi::DomainFid>,
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

    /// What the provider knows it by in a transfer.
    pub(super) fn descriptor(&self) -> *mut c_void {
        self.object.get().mem_desc
    }
}
