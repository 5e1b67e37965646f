//! Opens files for reading: direct if the file system allows it, otherwise buffered.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Context, Error, Result};

use crate::arena::{Arena, UNIT};
use crate::reader::FileId;

/// Least alignment of direct reads. A flash device reads whole pages anyway, and 512-byte reads
/// were measured to be no faster.
pub(crate) const PAGE: usize = 4096;

/// Whether to bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Bypass the cache if the file system can; otherwise read through it and drop the pages at
    /// once.
    Bypass,
    /// Read through it.
    Keep,
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// Length when it was opened.
    pub(crate) len: u64,
    /// Reads must start at multiples of this; 1 if they use the page cache.
    pub(crate) step: usize,
    /// Whether to drop pages from the page cache after reading.
    forget: bool,
}

impl Opened {
    pub(crate) fn open(path: &Path, caching: Caching) -> Result<Self> {
        Self::try_open(path, caching).with_context(|| format!("file `{}`", path.display()))
    }

    fn try_open(path: &Path, caching: Caching) -> Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Error::invalid("not a regular file"));
        }
        let path = path.to_path_buf();
        let len = metadata.len();
        if caching == Caching::Bypass {
            if let Some((file, step)) = open_direct(&path, &file)? {
                return Ok(Self { file, path, len, step, forget: false });
            }
            advise(&file, 0, 0, libc::POSIX_FADV_RANDOM);
        }
        Ok(Self { file, path, len, step: 1, forget: caching == Caching::Bypass })
    }

    /// A stand-in for any `file`, read through the page cache.
    #[cfg(test)]
    pub(crate) fn over(file: File, path: PathBuf, len: u64) -> Self {
        Self { file, path, len, step: 1, forget: false }
    }

    /// An alignment that suits this file and all others: at least a page for direct reads.
    pub(crate) fn alignment(&self) -> usize {
        if self.step == 1 { 1 } else { self.step.max(PAGE) }
    }

    /// Reads at `offset` into `destination`; the read may be short.
    pub(crate) fn read_at(&self, destination: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(destination, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Drops a range from the page cache after reading, if reads could not bypass the cache.
    /// Otherwise memory outside the budget would grow.
    pub(crate) fn forget(&self, offset: u64, len: usize) {
        if self.forget {
            advise(&self.file, offset, len, libc::POSIX_FADV_DONTNEED);
        }
    }
}

/// The files of a reader, by id.
#[derive(Debug, Default)]
pub(crate) struct Files(Vec<std::sync::Arc<Opened>>);

impl Files {
    pub(crate) fn add(&mut self, opened: Opened) -> FileId {
        self.0.push(std::sync::Arc::new(opened));
        FileId(self.0.len() as u32 - 1)
    }

    /// # Panics
    /// If `file` was not registered with this reader.
    pub(crate) fn get(&self, file: FileId) -> &std::sync::Arc<Opened> {
        self.0.get(file.0 as usize).expect("a file registered with this reader")
    }

    /// The alignment that suits all files; a page if there are none.
    pub(crate) fn alignment(&self) -> usize {
        self.0.iter().map(|opened| opened.alignment()).max().unwrap_or(PAGE)
    }
}

/// Opens a file for direct reads and returns the required alignment; `None` if direct reads do not
/// work.
fn open_direct(path: &Path, buffered: &File) -> Result<Option<(File, usize)>> {
    let step = match direct_alignment(buffered) {
        Alignment::Unsupported => return Ok(None),
        Alignment::Unknown => PAGE,
        Alignment::Known(step) => step,
    };
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Some file systems accept the flag but refuse the reads.
    let trial = Arena::new(Bytes(step.max(UNIT) as u64))?;
    let mut lease = trial.lease(step).ok_or_else(|| Error::internal("no memory to try a read"))?;
    match file.read_at(&mut lease[..step], 0) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        // Any other failure is reported, with the file's name, when the bytes are read.
        _ => Ok(Some((file, step))),
    }
}

enum Alignment {
    /// The kernel does not report it.
    Unknown,
    Unsupported,
    Known(usize),
}

/// Asks the kernel for the alignment of direct reads of `file`.
fn direct_alignment(file: &File) -> Alignment {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, the descriptor is open, `found` is writable.
    let status = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            found.as_mut_ptr(),
        )
    };
    // SAFETY: all-zero bytes are a valid `statx`, whether or not the kernel wrote over them.
    let found = unsafe { found.assume_init() };
    if status != 0 || found.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Alignment::Unknown;
    }
    let (memory, offset) = (found.stx_dio_mem_align as usize, found.stx_dio_offset_align as usize);
    if memory == 0 || memory > UNIT || !offset.is_power_of_two() || offset > 1 << 20 {
        return Alignment::Unsupported;
    }
    Alignment::Known(offset.max(512))
}

/// Drops the synced pages of a file from the page cache.
pub(crate) fn drop_cached_pages(file: &File) {
    advise(file, 0, 0, libc::POSIX_FADV_DONTNEED);
}

/// Gives advice that the kernel may ignore, so errors are ignored too.
fn advise(file: &File, offset: u64, len: usize, advice: libc::c_int) {
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), offset as libc::off_t, len as libc::off_t, advice)
    };
}

#[cfg(test)]
mod tests {
    use outercore_core::ErrorKind;

    use super::*;

    #[test]
    fn a_missing_file_is_named() {
        let error = Opened::open(Path::new("/no/such/file"), Caching::Bypass).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("`/no/such/file`"), "{error}");
    }

    #[test]
    fn a_directory_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let error = Opened::open(directory.path(), Caching::Bypass).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn an_empty_file_opens_with_length_zero() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Opened::open(file.path(), Caching::Bypass).unwrap().len, 0);
    }
}
