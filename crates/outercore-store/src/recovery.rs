//! The end of an import that was committed and not cleaned up.

use std::path::Path;

use outercore_format::IMPORT_DIRECTORY;
use outercore_io::Disk;

use crate::claims::{Claims, foreign_state};
use crate::dataset::DataSet;

/// Ends the clean-up of an import that was committed in `root`, which must be held.
pub(crate) fn recover(disk: &dyn Disk, root: &Path) {
    if !root.join(IMPORT_DIRECTORY).exists() || !foreign_state(root).is_empty() {
        return;
    }
    let Ok(manifest) = DataSet::read_manifest(root) else { return };
    // Without claims it is what was left of them, or an earlier release's.
    let claims = Claims::load(root);
    if claims.as_ref().is_none_or(|claims| claims.is_committed(&manifest)) {
        let claims = claims.unwrap_or_else(|| Claims::new("", false));
        // What stays is unused, and the next writer tries again.
        let _ = claims.clean(disk, root, &manifest);
    }
}
