//! Appending to the log.

use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::Update;
use outercore_format::log::{Key, LogEnd, Record, SEGMENT_HEADER, Segment};
use outercore_io::{Disk, WriteFile};

use super::end::EndMark;
use super::reader::Recovered;
use super::segments::{directory, path, write_again};

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
    /// Why nothing more may be written to the segment.
    failed: Option<String>,
    end: EndMark,
}

impl<'a> LogWriter<'a> {
    /// Begins a segment after record `durable`; its file is there and durable after that.
    ///
    /// # Errors
    /// The disk's own.
    pub fn create(disk: &'a dyn Disk, root: &Path, id: [u8; 16], durable: u64) -> Result<Self> {
        let segment = Segment { id, first: durable + 1 };
        disk.create_dir_all(&directory(root))?;
        let file = begin(disk, root, &segment)?;
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
        let path = path(root, segment.first);
        let mut file = disk.open(&path)?;
        if recovered.torn > 0 {
            file.set_len(len)?;
        }
        // Records that were read may be in the system's memory alone. If their sync has failed, the
        // system takes them for written, and another sync would do nothing: so they are written
        // again, all that may not be durable.
        let noted = recovered.noted.filter(|noted| noted.first == segment.first);
        let durable = noted.map_or(SEGMENT_HEADER as u64, |noted| noted.len);
        write_again(&path, &mut *file, durable..len)?;
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
        let (pending, last, failed) = (Vec::new(), durable, None);
        let end = LogEnd { id: segment.id, lsn: durable, first: segment.first, len };
        let (root, end) = (root.to_owned(), EndMark::open(disk, root, end));
        Self { disk, root, segment, file, len, durable, pending, last, failed, end }
    }

    /// Takes a record in, to be written by the next [`LogWriter::commit`].
    ///
    /// # Errors
    /// As [`Record::encode`]; nothing is taken in then.
    pub fn push(&mut self, lsn: u64, key: Option<Key>, updates: Vec<Update>) -> Result<()> {
        if lsn != self.last + 1 {
            return Err(Error::internal(format!("record {lsn} after {}", self.last)));
        }
        let record = Record { lsn, durable: self.durable, key, updates };
        record.encode(&self.segment, &mut self.pending)?;
        self.last = lsn;
        Ok(())
    }

    /// Makes the records that were taken in durable, all by one write and one sync.
    ///
    /// # Errors
    /// The disk's own. None of the records counts then: what was written of them is cut off, or
    /// replaced by a new segment. Where that fails too the kind is `Unknown`: the records may be there
    /// after another start. They are not, once a later commit or [`LogWriter::renew`] has succeeded.
    pub fn commit(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.write();
        self.pending.clear();
        match written {
            Ok(()) => {
                self.durable = self.last;
                self.end.note(self.ended());
            }
            Err(_) => self.last = self.durable,
        }
        written.with_context(|| format!("log `{}`", path(&self.root, self.segment.first).display()))
    }

    fn write(&mut self) -> Result<()> {
        if let Some(why) = self.failed.clone() {
            self.renew().map_err(|error| {
                Error::new(error.kind(), format!("writing has stopped: {why}; {}", error.message()))
                    .hint("writing continues once the disk takes a new file")
            })?;
        }
        if let Err(error) = self.file.write_at(self.len, &self.pending) {
            let cut = self.file.set_len(self.len).and_then(|()| self.file.sync());
            return Err(if cut.is_err() { self.fail(error) } else { error });
        }
        if let Err(error) = self.file.sync() {
            return Err(self.fail(error));
        }
        self.len += self.pending.len() as u64;
        Ok(())
    }

    /// After a failure that leaves the state of the segment unknown: replaces what was written of the
    /// records. The system may hold for written what is not on the disk, so that no later sync of
    /// the same file tells anything.
    fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.message());
        match self.renew() {
            Ok(()) => error,
            Err(_) => Error::new(ErrorKind::Unknown, error.to_string()),
        }
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

    /// Begins a new segment, unless this one is empty or cannot be written to.
    ///
    /// # Errors
    /// As [`LogWriter::renew`].
    pub fn rotate(&mut self) -> Result<()> {
        if self.is_empty() || self.failed.is_some() {
            return Ok(());
        }
        self.renew()
    }

    /// Begins a new segment after the last durable record, in which writing continues whatever has
    /// happened to the one before. An empty one is replaced.
    ///
    /// # Errors
    /// The disk's own. Later records then go into the old segment where no new one is there by name,
    /// else into another new one.
    pub fn renew(&mut self) -> Result<()> {
        let segment = Segment { first: self.durable + 1, ..self.segment };
        match begin(self.disk, &self.root, &segment) {
            Ok(file) => self.file = file,
            Err(error) => {
                if path(&self.root, segment.first).exists() {
                    // A reader would take the records after this name from that file alone.
                    self.failed = Some(error.message());
                }
                return Err(error);
            }
        }
        (self.segment, self.len, self.failed) = (segment, SEGMENT_HEADER as u64, None);
        self.end.settle(self.disk, &self.root, self.ended());
        Ok(())
    }

    /// Where the durable part of the log ends.
    fn ended(&self) -> LogEnd {
        let Segment { id, first } = self.segment;
        LogEnd { id, lsn: self.durable, first, len: self.len }
    }
}

/// Makes the file of a segment. It has its name only once its header is durable. A file of the same
/// name is replaced and not emptied: it may be the only segment.
fn begin(disk: &dyn Disk, root: &Path, segment: &Segment) -> Result<Box<dyn WriteFile>> {
    let path = path(root, segment.first);
    disk.replace(&path, &segment.encode())?;
    disk.open(&path)
}
