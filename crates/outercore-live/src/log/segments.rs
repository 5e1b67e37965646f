//! Lists and removes segments.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Result};
use outercore_format::LIVE_DIRECTORY;
use outercore_io::{Disk, WriteFile};

const SUFFIX: &str = ".log";
const DIGITS: usize = 20;

/// Bytes copied at a time.
const COPY: u64 = 1 << 20;

/// The directory of the log of the data set in `root`.
pub fn directory(root: &Path) -> PathBuf {
    root.join(LIVE_DIRECTORY)
}

/// The file of the segment whose first record is `first`.
pub(super) fn path(root: &Path, first: u64) -> PathBuf {
    directory(root).join(format!("{first:0DIGITS$}{SUFFIX}"))
}

/// The first record of each segment, ascending. Other files are ignored.
///
/// # Errors
/// Errors of listing the directory; a missing directory has no segments.
pub(super) fn list(root: &Path) -> Result<Vec<u64>> {
    let directory = directory(root);
    let context = || format!("log in `{}`", directory.display());
    let mut firsts = Vec::new();
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(firsts),
        Err(error) => return Err(error).with_context(context),
    };
    for entry in entries {
        let name = entry.with_context(context)?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        firsts.extend(digits.filter(|d| d.len() == DIGITS).and_then(|d| d.parse::<u64>().ok()));
    }
    firsts.sort_unstable();
    Ok(firsts)
}

/// Removes files that an interrupted [`Disk::replace`] left in the directory of the log.
pub fn remove_temporary(disk: &dyn Disk, root: &Path) {
    let entries = std::fs::read_dir(directory(root)).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.extension().is_some_and(|suffix| suffix == "tmp") {
            // A remaining file is unused, and the next writer tries again.
            let _ = disk.remove_file(&path);
        }
    }
}

/// Removes the segments before the one that begins with `first`.
///
/// # Errors
/// Errors of the disk.
pub fn remove_before(disk: &dyn Disk, root: &Path, first: u64) -> Result<()> {
    for old in list(root)?.into_iter().filter(|old| *old < first) {
        disk.remove_file(&path(root, old))?;
    }
    Ok(())
}

/// Writes bytes of a file over themselves, so that the next sync writes them to the disk.
///
/// # Errors
/// Errors of the disk.
pub(super) fn write_again(path: &Path, file: &mut dyn WriteFile, bytes: Range<u64>) -> Result<()> {
    let stored = File::open(path).with_context(|| path.display().to_string())?;
    let mut buffer = Vec::new();
    let mut at = bytes.start;
    while at < bytes.end {
        buffer.resize(COPY.min(bytes.end - at) as usize, 0);
        stored.read_exact_at(&mut buffer, at).with_context(|| path.display().to_string())?;
        file.write_at(at, &buffer)?;
        at += buffer.len() as u64;
    }
    Ok(())
}
