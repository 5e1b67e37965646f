//! Registered memory, and its domain.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use outercore_core::Result;

use super::{Fabric, Object};
use crate::ffi;
use crate::library::Info;

/// A protection domain: the scope of memory registrations.
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

    /// Registers memory for `access`. `key` gives others access to it, unless the provider chooses
    /// the key.
    ///
    /// # Safety
    /// The memory must stay mapped until the registration is gone, and also every endpoint of the
    /// domain that could still move its bytes. No code may hold a reference to bytes while a
    /// transfer writes them.
    ///
    /// # Errors
    /// `Io`: refused by the provider or by the limit on locked memory.
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
    /// The key that gives others access.
    pub(crate) fn key(&self) -> u64 {
        self.object.get().key
    }

    /// The provider's handle of the memory in a transfer.
    pub(super) fn descriptor(&self) -> *mut c_void {
        self.object.get().mem_desc
    }
}
