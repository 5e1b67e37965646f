//! Appending to the log.

use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::log::{Record, SEGMENT_HEADER, Segment};
use outercore_io::{Disk, WriteFile};

use super::recovery::Recovered;
use super::segments::{directory, path};

/// The end of the log, where one thread appends.
pub struct LogWriter<'a> {
    disk: &'a dyn Disk,
    root: PathBuf,
    segment: Segment,
    file: Box<dyn WriteFile>,
    /// Bytes that are durable.
    len: u64,
    /// Number of the last durable record.
    durable: u64,
    /// Records encoded for the next append.
    pending: Vec<u8>,
    /// Number of the last of them.
    last: u64,
    /// Why nothing more may be written.
    failed: Option<String>,
}

impl<'a> LogWriter<'a> {
    /// Begins a segment after record `durable`; its file is there and durable after that.
    ///
    /// # Errors
    /// The disk's own.
    pub fn create(disk: &'a dyn Disk, root: &Path, id: [u8; 16], durable: u64) -> Result<Self> {
        let segment = Segment { id, first: durable + 1 };
        disk.create_dir_all(&directory(root))?;
        let mut file = disk.create(&path(root, segment.first))?;
        file.write_all(&segment.encode())?;
        file.sync()?;
        disk.sync_dir(&directory(root))?;
        disk.sync_dir(root)?;
        let len = SEGMENT_HEADER as u64;
        Ok(Self::of(disk, root, segment, file, (len, durable)))
    }

    /// Goes on where the log ends. What was torn there is cut off first, so that it cannot come back
    /// after another crash.
    ///
    /// # Errors
    /// The disk's own.
    pub fn open(
        disk: &'a dyn Disk,
        root: &Path,
        id: [u8; 16],
        recovered: &Recovered,
    ) -> Result<Self> {
        let Some((segment, len)) = recovered.last else {
            return Self::create(disk, root, id, recovered.lsn);
        };
        let mut file = disk.open(&path(root, segment.first))?;
        if recovered.torn > 0 {
            file.set_len(len)?;
        }
        // Records that were read may be in the system's memory alone.
        file.sync()?;
        Ok(Self::of(disk, root, segment, file, (len, recovered.lsn)))
    }

    fn of(
        disk: &'a dyn Disk,
        root: &Path,
        segment: Segment,
        file: Box<dyn WriteFile>,
        (len, durable): (u64, u64),
    ) -> Self {
        let (root, pending, last, failed) = (root.to_owned(), Vec::new(), durable, None);
        Self { disk, root, segment, file, len, durable, pending, last, failed }
    }

    /// Takes a record in, to be written by the next [`LogWriter::commit`].
    ///
    /// # Errors
    /// As [`Record::encode`]; nothing is taken in then.
    pub fn push(&mut self, lsn: u64, updates: Vec<outercore_format::Update>) -> Result<()> {
        if lsn != self.last + 1 {
            return Err(Error::internal(format!("record {lsn} after {}", self.last)));
        }
        let record = Record { lsn, durable: self.durable, updates };
        record.encode(&self.segment, &mut self.pending)?;
        self.last = lsn;
        Ok(())
    }

    /// Makes the records that were taken in durable, all by one write and one sync.
    ///
    /// # Errors
    /// The disk's own. None of the records counts then: what was written of them is cut off. Where
    /// that fails too, or the sync has failed, nothing is written until the log is opened anew,
    /// since the state of the file is unknown.
    pub fn commit(&mut self) -> Result<()> {
        let written = self.write();
        self.pending.clear();
        match written {
            Ok(()) => self.durable = self.last,
            Err(_) => self.last = self.durable,
        }
        written.with_context(|| format!("log `{}`", path(&self.root, self.segment.first).display()))
    }

    fn write(&mut self) -> Result<()> {
        if let Some(why) = &self.failed {
            return Err(Error::new(ErrorKind::Io, format!("writing has stopped: {why}"))
                .hint("mend the disk, then start the server again"));
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.write_at(self.len, &self.pending) {
            let cut = self.file.set_len(self.len).and_then(|()| self.file.sync());
            if cut.is_err() {
                self.failed = Some(error.to_string());
            }
            return Err(error);
        }
        if let Err(error) = self.file.sync() {
            self.failed = Some(error.to_string());
            return Err(error);
        }
        self.len += self.pending.len() as u64;
        Ok(())
    }

    /// Number of the first record of the segment.
    pub fn first(&self) -> u64 {
        self.segment.first
    }

    /// Bytes of the segment.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the segment has no record.
    pub fn is_empty(&self) -> bool {
        self.len == SEGMENT_HEADER as u64
    }

    /// Begins a new segment, unless this one is empty.
    ///
    /// # Errors
    /// The disk's own; later records then go into the old segment.
    pub fn rotate(&mut self) -> Result<()> {
        if self.is_empty() || self.failed.is_some() {
            return Ok(());
        }
        *self = Self::create(self.disk, &self.root, self.segment.id, self.durable)?;
        Ok(())
    }
}
