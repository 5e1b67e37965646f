use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use outercore_core::{Bytes, Error, Result};

/// Opens a regular file for reading; links are followed.
///
/// # Errors
/// `NotFound` and `Io` of the file; `Invalid`: it is a pipe, a device or a directory.
pub fn open_regular_file(path: &Path) -> Result<File> {
    // Without this flag, opening a pipe waits for a writer, and no signal ends the wait.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::invalid("expected a regular file, found a pipe, device or directory")
            .hint("write it to a file first"));
    }
    Ok(file)
}

/// Reads a file that people write, such as a list of tokens: a regular file of at most `most`
/// bytes.
///
/// # Errors
/// As [`open_regular_file`]; `Invalid`: it is longer.
pub fn read_small_file(path: &Path, most: Bytes) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.take(most.0 + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most.0 {
        return Err(Error::invalid(format!("expected at most {most}, found more")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use outercore_core::ErrorKind;

    use super::*;

    #[test]
    fn a_small_file_is_read_and_a_longer_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, b"12345678").unwrap();
        assert_eq!(read_small_file(&path, Bytes(8)).unwrap(), b"12345678");
        let error = read_small_file(&path, Bytes(7)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn neither_a_pipe_nor_a_device_nor_a_directory_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: `name` ends with a zero byte and lives until the call returns.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [pipe.as_path(), Path::new("/dev/zero"), directory.path()] {
            let error = read_small_file(path, Bytes(8)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{}", path.display());
        }
    }
}
