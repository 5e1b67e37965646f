//! Opens a data set at its last acknowledged update, for readers of its arrays.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_io::{Disk, FileLock, RealDisk};
use outercore_store::dataset::DataSet;
use outercore_store::generations;

use crate::committer::{Committer, REPLAY_MEMORY};
use crate::fold::KeepGoing;
use crate::log;
use crate::replay::{STAGING, WORKING};

/// Memory of a writer in addition to the changes.
pub const WRITER_MEMORY: Bytes = Bytes(STAGING.0 + WORKING.0);

/// Time between two checks whether a request was answered.
const WAIT: Duration = Duration::from_millis(20);

/// Suffix of the files with which a reader requests a fold from the writing process.
const REQUEST: &str = ".request";

/// Suffix of such a file after the fold has failed.
const REFUSED: &str = "refused";

/// Opens the data set in `root` at its last acknowledged update.
///
/// Updates that are only in the log are first folded into the arrays. If a server has locked the
/// data set, it is requested to do so.
///
/// **Cost** the cost of [`DataSet::open`] if no updates wait in the log. Otherwise memory of at
/// most about twice [`REPLAY_MEMORY`], and a fold each time that the updates need more than it.
///
/// # Errors
/// As [`DataSet::open`]; a damaged log; failed writes; errors of `keep_going`, which is called
/// often.
pub fn open(root: &Path, keep_going: KeepGoing<'_>) -> Result<DataSet> {
    open_on(&RealDisk, root, keep_going, &|| {
        std::thread::sleep(WAIT);
        Ok(())
    })
}

/// [`open`] on another disk. Calls `wait` between two checks whether a server has answered.
///
/// # Errors
/// As [`open`]; errors of `wait`.
pub fn open_on(
    disk: &dyn Disk,
    root: &Path,
    keep_going: KeepGoing<'_>,
    wait: KeepGoing<'_>,
) -> Result<DataSet> {
    let data_set = DataSet::open(root)?;
    let Some(live) = &data_set.manifest().live else { return Ok(data_set) };
    if !is_pending(&data_set, live)? {
        return Ok(data_set);
    }
    let mut request = None;
    loop {
        keep_going()?;
        if let Some(lock) = FileLock::try_directory(root)? {
            drop(request);
            fold_log(disk, root, &lock, keep_going)
                .context("updates in the log cannot be folded into the arrays")?;
            drop(data_set);
            // If this fails, the next writer removes the files.
            let _ = generations::tidy_held(disk, root, &lock);
            return DataSet::open(root);
        }
        match &request {
            None => request = Some(Request::make(root)?),
            Some(request) if request.is_answered()? => return DataSet::open(root),
            Some(_) => {}
        }
        wait()?;
    }
}

/// Whether the log contains updates that are not in the arrays.
fn is_pending(data_set: &DataSet, live: &outercore_format::Live) -> Result<bool> {
    match log::is_pending(data_set.root(), live) {
        // A segment was removed meanwhile, so another process is folding.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        found => found,
    }
}

/// Checks the log of a data set. Returns the number of its records that are not in the arrays; 0
/// without a log. Changes nothing, and may run while another process writes.
///
/// # Errors
/// As [`DataSet::open`]. `Corrupt`: a damaged log. Failed reads.
pub fn verify(data_set: &DataSet) -> Result<u64> {
    let mut data_set = data_set.clone();
    loop {
        let Some(live) = &data_set.manifest().live else { return Ok(0) };
        let error = match log::verify(data_set.root(), live) {
            Ok(updates) => return Ok(updates),
            Err(error) => error,
        };
        // Another process may have folded meanwhile, and removed the folded segments.
        let now = DataSet::open(data_set.root())?;
        if now.manifest().live == data_set.manifest().live {
            return Err(error);
        }
        data_set = now;
    }
}

/// A file that requests a fold from the process with the lock; removed when dropped.
struct Request {
    file: PathBuf,
}

impl Request {
    fn make(root: &Path) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}{REQUEST}", std::process::id());
        let file = log::directory(root).join(name);
        std::fs::write(&file, b"").with_context(|| {
            format!("the data set is being served; asking for its updates by `{}`", file.display())
        })?;
        Ok(Self { file })
    }

    fn refused(&self) -> PathBuf {
        self.file.with_extension(REFUSED)
    }

    /// Whether the updates are in the arrays.
    ///
    /// # Errors
    /// `Io`: the server could not write them.
    fn is_answered(&self) -> Result<bool> {
        if self.file.exists() {
            return Ok(false);
        }
        if !self.refused().exists() {
            return Ok(true);
        }
        let text = "the server could not write its updates into the arrays";
        Err(Error::new(ErrorKind::Io, text).hint(
            "the server's own messages say why; `outercore info` shows the data set as it is",
        ))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // At most one of the files exists.
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(self.refused());
    }
}

/// The files with which readers request a fold.
pub fn requests(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(log::directory(root)).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.to_string_lossy().ends_with(REQUEST)).collect()
}

/// Reports to readers that the requested updates are in the arrays.
pub fn answer(disk: &dyn Disk, requests: &[PathBuf]) {
    for request in requests {
        // The reader may have ended.
        let _ = disk.remove_file(request);
    }
}

/// Reports to readers that the requested updates could not be written. Needs no space on a full
/// disk.
pub fn refuse(disk: &dyn Disk, requests: &[PathBuf]) {
    for request in requests {
        // The reader may have ended.
        let _ = disk.rename(request, &request.with_extension(REFUSED));
    }
}

/// Folds the log into the arrays of the data set in `root`, locked by `lock`.
///
/// # Errors
/// As [`Committer::open`] and [`Committer::fold`].
fn fold_log(
    disk: &dyn Disk,
    root: &Path,
    lock: &FileLock,
    keep_going: KeepGoing<'_>,
) -> Result<()> {
    Committer::open_within(disk, root, lock, REPLAY_MEMORY, keep_going)?.fold(lock, keep_going)?;
    // Includes later requests, because no update has been acknowledged since.
    answer(disk, &requests(root));
    Ok(())
}
