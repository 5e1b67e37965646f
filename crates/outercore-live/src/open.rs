//! Opening a data set at its last acknowledged update, for readers of its arrays.

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

/// Memory that a writer takes besides the changes.
pub const WRITER_MEMORY: Bytes = Bytes(STAGING.0 + WORKING.0);

/// Between two looks whether a request was answered.
const WAIT: Duration = Duration::from_millis(20);

/// Suffix of the files by which a reader asks the writing process to fold.
const REQUEST: &str = ".request";

/// Suffix that such a file gets where the fold has failed.
const REFUSED: &str = "refused";

/// Opens the data set in `root` at its last acknowledged update.
///
/// Updates that are only in the log are folded into the arrays first. Where a server has the data
/// set, it is asked to do so.
///
/// **Cost** nothing more than [`DataSet::open`] unless updates wait in the log. Then about twice
/// [`REPLAY_MEMORY`] at most, and a fold each time that the updates take more than it.
///
/// # Errors
/// As [`DataSet::open`]; a damaged log; failed writes; those of `keep_going`, which is called often
/// meanwhile.
pub fn open(root: &Path, keep_going: KeepGoing<'_>) -> Result<DataSet> {
    open_on(&RealDisk, root, keep_going, &|| {
        std::thread::sleep(WAIT);
        Ok(())
    })
}

/// [`open`] on another disk. Calls `wait` between two looks whether a server has answered.
///
/// # Errors
/// As [`open`]; those of `wait`.
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
            // What cannot be removed now is removed by the next writer.
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

/// Whether the log holds more than the arrays.
fn is_pending(data_set: &DataSet, live: &outercore_format::Live) -> Result<bool> {
    match log::is_pending(data_set.root(), live) {
        // A segment was removed meanwhile: another process is folding.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        found => found,
    }
}

/// Looks at the log of a data set: the updates that it holds beyond the arrays, 0 without a log.
/// Changes nothing, and works beside a process that writes.
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
        // Another process may have folded meanwhile, and removed what was folded.
        let now = DataSet::open(data_set.root())?;
        if now.manifest().live == data_set.manifest().live {
            return Err(error);
        }
        data_set = now;
    }
}

/// A file that asks the process with the lock to fold; removed when dropped.
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

    /// Whether the updates are in the arrays now.
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
        // Only one of them is there, or none.
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(self.refused());
    }
}

/// The files by which readers ask for a fold.
pub fn requests(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(log::directory(root)).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.to_string_lossy().ends_with(REQUEST)).collect()
}

/// Tells readers that what they asked for is in the arrays.
pub fn answer(disk: &dyn Disk, requests: &[PathBuf]) {
    for request in requests {
        // Its reader may have gone.
        let _ = disk.remove_file(request);
    }
}

/// Tells readers that what they asked for could not be written. It takes no space on a full disk.
pub fn refuse(disk: &dyn Disk, requests: &[PathBuf]) {
    for request in requests {
        // Its reader may have gone.
        let _ = disk.rename(request, &request.with_extension(REFUSED));
    }
}

/// Folds what the log holds into the arrays of the data set in `root`, which `lock` holds.
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
    // Also those that came meanwhile: no update was acknowledged since.
    answer(disk, &requests(root));
    Ok(())
}
