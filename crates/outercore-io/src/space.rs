//! Free space of a file system.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use outercore_core::{Bytes, Context, Error, Result};

/// Free bytes that this user may use on the file system of `path`.
///
/// # Errors
/// `path` does not exist.
pub fn free_space(path: &Path) -> Result<Bytes> {
    let describe = || format!("free space of `{}`", path.display());
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::invalid("a path with a zero byte").context(describe()))?;
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `name` is a C string and `found` is writable; both outlive the call.
    let status = unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error()).with_context(describe);
    }
    // SAFETY: all-zero bytes are a valid `statvfs`, and the kernel has written over them.
    let found = unsafe { found.assume_init() };
    Ok(Bytes(found.f_bavail.saturating_mul(found.f_frsize)))
}

#[cfg(test)]
mod tests {
    use outercore_core::ErrorKind;

    use super::*;

    #[test]
    fn there_is_room_where_something_is() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_space(directory.path()).unwrap() > Bytes(0));
        let error = free_space(&directory.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("none`"), "{error}");
    }
}
