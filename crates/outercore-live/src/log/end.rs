//! The end of the log, recorded outside the log, so that a truncated log is detected.

use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, Result};
use outercore_format::LIVE_DIRECTORY;
use outercore_format::log::{LOG_END, LogEnd};
use outercore_io::{Disk, WriteFile};

use super::segments::directory;

/// Name of the file in the directory of the log.
pub const FILE: &str = "end";

/// Start of the second of two slots: the slots never share a page of a disk.
const SLOT: usize = 4096;

/// Commits between two syncs of the file. A count instead of a time, so that a test can stop at
/// each disk operation reproducibly.
const SYNC_EVERY: u32 = 256;

fn path(root: &Path) -> PathBuf {
    directory(root).join(FILE)
}

/// The recorded end of the log `id`; `None` if an older version wrote the log.
///
/// # Errors
/// `Corrupt`: both slots are damaged. Failed reads.
pub fn read(root: &Path, id: [u8; 16]) -> Result<Option<LogEnd>> {
    Ok(slots(root)?.into_iter().flatten().flatten().filter(|end| end.id == id).max_by_key(order))
}

/// The slots of the file; `None` if there is no file.
fn slots(root: &Path) -> Result<Option<[Option<LogEnd>; 2]>> {
    let path = path(root);
    let context = || format!("end of the log `{}`", path.display());
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(context),
    };
    let slots = [0, SLOT].map(|at| LogEnd::decode(bytes.get(at..).unwrap_or_default()));
    if slots == [None, None] {
        return Err(Error::corrupt("no whole slot").hint(format!(
            "restore the file from a copy; or remove `{LIVE_DIRECTORY}/{FILE}`: then a log that was \
             cut off is not told from a whole one"
        )))
        .with_context(context);
    }
    Ok(Some(slots))
}

fn order(end: &LogEnd) -> (u64, u64, u64) {
    (end.lsn, end.first, end.len)
}

/// Records the end of the log after each commit.
///
/// It is written after the sync of the log, so it never claims more than is durable. A failure does
/// not fail the commit: the recorded end is then older, and the next write corrects it.
pub struct EndMark {
    /// `None` while the file cannot be created.
    file: Option<Box<dyn WriteFile>>,
    /// The slot to write. The other slot is durable, so a crash tears at most one.
    slot: usize,
    /// Number of writes to the file since its last sync.
    unsynced: u32,
}

impl EndMark {
    /// Opens or creates the file, and records `end` in it.
    pub fn open(disk: &dyn Disk, root: &Path, end: LogEnd) -> Self {
        let mut mark = Self { file: None, slot: 0, unsynced: 0 };
        let newest = slots(root).ok().flatten().and_then(|slots| {
            let own = |slot: usize| slots[slot].filter(|known| known.id == end.id);
            let known = (0..2).filter_map(|slot| Some((slot, own(slot)?)));
            known.max_by_key(|(_, known)| order(known))
        });
        if let Some((newest, known)) = newest
            && let Ok(mut file) = disk.open(&path(root))
            // After a failed sync, the content may be only in the system's memory, so write it
            // again.
            && file.write_at((newest * SLOT) as u64, &known.encode()).is_ok()
            && file.sync().is_ok()
        {
            (mark.file, mark.slot) = (Some(file), 1 - newest);
        }
        mark.settle(disk, root, end);
        mark
    }

    /// Records the current end of the log.
    pub fn note(&mut self, end: LogEnd) {
        let Some(file) = &mut self.file else { return };
        // A failed write tears this slot and leaves the other one intact.
        let _ = file.write_at((self.slot * SLOT) as u64, &end.encode());
        self.unsynced += 1;
        if self.unsynced >= SYNC_EVERY {
            self.sync();
        }
    }

    /// Records the current end of the log and makes it durable; creates the file if it is missing.
    pub fn settle(&mut self, disk: &dyn Disk, root: &Path, end: LogEnd) {
        if self.file.is_none() {
            let mut bytes = vec![0; SLOT + LOG_END];
            bytes[..LOG_END].copy_from_slice(&end.encode());
            if disk.replace(&path(root), &bytes).is_ok() {
                (self.file, self.slot) = (disk.open(&path(root)).ok(), 1);
            }
            return;
        }
        self.note(end);
        self.sync();
    }

    /// Makes the recorded end durable.
    fn sync(&mut self) {
        let Some(file) = self.file.as_mut().filter(|_| self.unsynced > 0) else { return };
        // After a failed sync the slot may not be on disk, so it is written again.
        if file.sync().is_ok() {
            (self.slot, self.unsynced) = (1 - self.slot, 0);
        }
    }
}

impl Drop for EndMark {
    fn drop(&mut self) {
        self.sync();
    }
}
