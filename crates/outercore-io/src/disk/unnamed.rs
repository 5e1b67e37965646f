//! Files without a name, for scratch data: they disappear when the process ends, for any reason.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use outercore_core::{Context, Result};

use crate::disk::WriteFile;

/// A file without a directory entry. Its space is freed when it is closed everywhere.
pub struct Unnamed {
    /// The file, open for writing.
    pub file: Box<dyn WriteFile>,
    handle: File,
}

impl Unnamed {
    pub(crate) fn new(file: Box<dyn WriteFile>, handle: File) -> Self {
        Self { file, handle }
    }

    /// A path by which this process can open the file while this value exists.
    pub fn path(&self) -> PathBuf {
        path_of(&self.handle)
    }

    /// The file, open for reading and writing.
    pub fn into_handle(self) -> File {
        self.handle
    }
}

/// A path by which this process can reopen an open file, with or without a name.
///
/// # Example
/// ```
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// use outercore_io::{Disk, RealDisk, path_of};
/// let mut unnamed = RealDisk.create_unnamed(directory.path())?;
/// unnamed.file.write_all(b"scratch")?;
/// let file = unnamed.into_handle();
/// assert_eq!(std::fs::read(path_of(&file))?, b"scratch");
/// assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
/// # Ok(())
/// # }
/// ```
pub fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Creates a file whose name is to be removed at once, for file systems without unnamed files.
/// Returns the path and the file, open for reading and writing. Other users cannot open the file.
///
/// A killed process may have left a file with the same process number in its name. Existing files
/// are therefore never reused.
pub(crate) fn create_passing(directory: &Path) -> Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("scratch-{}-{number}", std::process::id()));
        match options.open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("create `{}`", path.display()));
            }
        }
    }
}

/// Opens a file that never has a name; `None` if the file system does not support such files.
pub(crate) fn open_unnamed(directory: &Path) -> Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    match options.open(directory) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_unknown(&error) => Ok(None),
        Err(error) => {
            Err(error).with_context(|| format!("create a file in `{}`", directory.display()))
        }
    }
}

/// Whether `error` means that unnamed files are not supported. File systems refuse the flag in
/// several ways, and an old kernel opens the directory itself for writing and fails.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::disk::Disk;
    use crate::fault_disk::FaultDisk;
    use crate::real_disk::unnamed_in;

    /// Creates a file in a directory where a killed process with the same number has left the next
    /// names.
    fn among_left_names(make: impl Fn(&Path) -> Result<Unnamed>) {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (path, _) = create_passing(directory).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let (stem, number) = name.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        // Other tests take numbers as well.
        let left: Vec<PathBuf> =
            (number..number + 64).map(|at| directory.join(format!("{stem}-{at}"))).collect();
        left.iter().for_each(|path| std::fs::write(path, "somebody's").unwrap());
        let mut made = make(directory).unwrap();
        made.file.write_all(b"scratch").unwrap();
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), left.len());
        for path in left {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "somebody's");
        }
        let file = made.into_handle();
        assert_eq!(std::fs::read(path_of(&file)).unwrap(), b"scratch");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_system_that_knows_only_names_gives_a_new_one_for_a_moment() {
        among_left_names(|directory| unnamed_in(directory, None));
    }

    #[test]
    fn a_disk_that_knows_only_names_gives_a_new_one_for_a_moment() {
        among_left_names(|directory| FaultDisk::counting(directory).create_unnamed(directory));
    }

    #[test]
    fn a_file_without_a_name_is_for_this_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = crate::RealDisk.create_unnamed(directory.path()).unwrap().into_handle();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("none");
        let error = unnamed_in(&missing, None).err().unwrap().to_string();
        assert!(error.contains("none/scratch-"), "{error}");
    }
}
