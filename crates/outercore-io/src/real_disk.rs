//! The real [`Disk`]: `std::fs` with errors that name the operation and the path.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result};

use crate::disk::{Disk, WriteFile};
use crate::disk::{Unnamed, create_passing, open_unnamed};

/// The operating system's file system.
///
/// # Example
/// ```
/// use outercore_io::{Disk, RealDisk};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("graph.json");
/// RealDisk.replace(&path, b"{}")?;
/// assert_eq!(std::fs::read(&path)?, b"{}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = File::create(path).with_context(|| doing("create", path))?;
        Ok(Box::new(RealFile { file, path: path.to_owned(), position: 0 }))
    }

    fn create_unnamed(&self, directory: &Path) -> Result<Unnamed> {
        unnamed_in(directory, open_unnamed(directory)?)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file =
            OpenOptions::new().write(true).open(path).with_context(|| doing("open", path))?;
        let position = file.metadata().with_context(|| doing("open", path))?.len();
        Ok(Box::new(RealFile { file, path: path.to_owned(), position }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(path).with_context(|| doing("create directory", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to)
            .with_context(|| format!("rename `{}` to `{}`", from.display(), to.display()))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        // Errors of file systems without hard links, or with a limit on their number.
        const UNSUPPORTED: [i32; 4] = [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS, libc::EMLINK];
        let doing = || format!("link `{}` to `{}`", to.display(), from.display());
        match std::fs::hard_link(from, to) {
            Err(error) if error.raw_os_error().is_some_and(|os| UNSUPPORTED.contains(&os)) => {
                Err(Error::new(ErrorKind::Unsupported, error.to_string()).context(doing()))
            }
            linked => linked.with_context(doing),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        missing_is_fine(std::fs::remove_file(path)).with_context(|| doing("remove", path))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        missing_is_fine(std::fs::remove_dir_all(path))
            .with_context(|| doing("remove directory", path))
    }

    fn remove_empty_dir(&self, path: &Path) -> Result<()> {
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => missing_is_fine(other).with_context(|| doing("remove directory", path)),
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        File::open(path)
            .and_then(|directory| directory.sync_all())
            .with_context(|| doing("sync directory", path))
    }
}

/// The unnamed file `opened`. Without it, creates a file and removes its name, for file systems
/// without unnamed files.
pub(crate) fn unnamed_in(directory: &Path, opened: Option<File>) -> Result<Unnamed> {
    let handle = match opened {
        Some(handle) => handle,
        None => {
            let (path, handle) = create_passing(directory)?;
            RealDisk.remove_file(&path)?;
            handle
        }
    };
    let file = handle.try_clone().with_context(|| doing("create a file in", directory))?;
    let path = directory.join("(unnamed)");
    Ok(Unnamed::new(Box::new(RealFile { file, path, position: 0 }), handle))
}

struct RealFile {
    file: File,
    path: PathBuf,
    /// Position of the next append. It is stored here and not in the descriptor, so `write_at`
    /// cannot move it.
    position: u64,
}

impl WriteFile for RealFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.position).with_context(|| doing("write", &self.path))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).with_context(|| doing("write", &self.path))
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.file.set_len(len).with_context(|| doing("resize", &self.path))?;
        self.position = len;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().with_context(|| doing("sync", &self.path))
    }
}

fn doing(verb: &str, path: &Path) -> String {
    format!("{verb} `{}`", path.display())
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use outercore_core::ErrorKind;

    use super::*;

    #[test]
    fn appends_and_writes_at_offsets_do_not_disturb_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let mut file = RealDisk.create(&path).unwrap();
        file.write_all(b"0123").unwrap();
        file.write_at(1, b"xx").unwrap();
        file.write_all(b"45").unwrap();
        file.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0xx345");
        file.set_len(3).unwrap();
        file.write_all(b"!").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0xx!");
    }

    #[test]
    fn an_opened_file_is_appended_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, b"abc").unwrap();
        RealDisk.open(&path).unwrap().write_all(b"d").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcd");
    }

    #[test]
    fn removing_what_is_not_there_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        RealDisk.remove_file(&directory.path().join("a")).unwrap();
        RealDisk.remove_dir_all(&directory.path().join("b")).unwrap();
        RealDisk.remove_empty_dir(&directory.path().join("c")).unwrap();
    }

    #[test]
    fn a_directory_with_something_in_it_is_not_taken_for_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::create_dir_all(path.join("b")).unwrap();
        RealDisk.remove_empty_dir(&path).unwrap();
        assert!(path.exists());
        RealDisk.remove_empty_dir(&path.join("b")).unwrap();
        RealDisk.remove_empty_dir(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_full_device_is_reported_as_no_space_with_the_path() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let error = RealDisk.open(full).unwrap().write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().starts_with("write `/dev/full`: "), "{error}");
    }

    #[test]
    fn errors_name_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("no/such/file");
        for error in [
            RealDisk.create(&missing).err().unwrap(),
            RealDisk.open(&missing).err().unwrap(),
            RealDisk.rename(&missing, &directory.path().join("x")).unwrap_err(),
            RealDisk.sync_dir(&missing).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains("no/such/file"), "{error}");
        }
    }
}
