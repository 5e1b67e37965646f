//! An open provider, from which all other objects are opened.

use std::sync::Arc;

use outercore_core::Result;

use super::Object;
use crate::ffi;
use crate::library::{Info, Library};

/// An open provider.
pub(crate) struct Fabric {
    pub(super) object: Object<ffi::FabricFid>,
    _info: Arc<Info>,
}

impl Fabric {
    pub(crate) fn open(library: &Arc<Library>, info: &Arc<Info>) -> Result<Arc<Self>> {
        let fabric = library.open_fabric(info)?;
        let object = Object { at: fabric, library: Arc::clone(library) };
        Ok(Arc::new(Self { object, _info: Arc::clone(info) }))
    }
}
