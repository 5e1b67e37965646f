//! Clean-up of an import that was committed but interrupted before its clean-up.

use std::path::Path;

use outercore_format::IMPORT_DIRECTORY;
use outercore_io::Disk;

use crate::claims::{Claims, foreign_state};
use crate::dataset::DataSet;

/// Completes the clean-up of a committed import in `root`. The caller must hold the lock.
pub(crate) fn recover(disk: &dyn Disk, root: &Path) {
    if !root.join(IMPORT_DIRECTORY).exists() || !foreign_state(root).is_empty() {
        return;
    }
    let Ok(manifest) = DataSet::read_manifest(root) else { return };
    // Without claims, only the state directory is left, or an earlier release wrote it.
    let claims = Claims::load(root);
    if claims.as_ref().is_none_or(|claims| claims.is_committed(&manifest)) {
        let claims = claims.unwrap_or_else(|| Claims::new("", false));
        // Files that cannot be removed are unused, and the next writer tries again.
        let _ = claims.clean(disk, root, &manifest);
    }
}
