//! Which segments there are.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Result};
use outercore_format::log::SEGMENT_HEADER;
use outercore_format::{LIVE_DIRECTORY, Live};
use outercore_io::{Disk, WriteFile};

use super::end;

const SUFFIX: &str = ".log";
const DIGITS: usize = 20;

/// Bytes that are copied at a time.
const COPY: u64 = 1 << 20;

/// The directory of the log of the data set in `root`.
pub fn directory(root: &Path) -> PathBuf {
    root.join(LIVE_DIRECTORY)
}

/// The file of the segment whose first record is `first`.
pub(super) fn path(root: &Path, first: u64) -> PathBuf {
    directory(root).join(format!("{first:0DIGITS$}{SUFFIX}"))
}

/// The first record of each segment, ascending. Other files are passed over.
///
/// # Errors
/// Those of listing the directory; one that is not there has none.
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

/// Whether the log may hold updates that the arrays do not, or should: a look at lengths, and at the
/// noted end.
///
/// # Errors
/// As [`end::read`]. Those of listing the log.
pub fn is_pending(root: &Path, live: &Live) -> Result<bool> {
    if let Some(id) = live.id_bytes()
        && end::read(root, id)?.is_some_and(|noted| noted.lsn > live.lsn)
    {
        return Ok(true);
    }
    let firsts = list(root)?;
    for (place, first) in firsts.iter().enumerate() {
        if firsts.get(place + 1).is_some_and(|next| *next <= live.lsn + 1) {
            // All of it is in the arrays.
            continue;
        }
        let path = path(root, *first);
        let len = std::fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        if *first != live.lsn + 1 || len != SEGMENT_HEADER as u64 {
            return Ok(true);
        }
    }
    // A log without a segment is damaged, which is for recovery to say.
    Ok(firsts.is_empty())
}

/// Removes the segments before the one that begins with `first`.
///
/// # Errors
/// The disk's own.
pub fn remove_before(disk: &dyn Disk, root: &Path, first: u64) -> Result<()> {
    for old in list(root)?.into_iter().filter(|old| *old < first) {
        disk.remove_file(&path(root, old))?;
    }
    Ok(())
}

/// Writes bytes of a file over themselves, so that the next sync takes them to the disk.
///
/// # Errors
/// The disk's own.
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
