//! Appends to the log.

use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::Update;
use outercore_format::log::{Key, LogEnd, Record, SEGMENT_HEADER, Segment};
use outercore_io::{Disk, WriteFile};

use super::end::EndMark;
use super::reader::Recovered;
use super::segments::{directory, path, write_again};

/// The end of the log, to which one thread appends.
pub struct LogWriter<'a> {
    disk: &'a dyn Disk,
    root: PathBuf,
    segment: Segment,
    file: Box<dyn WriteFile>,
    /// Number of durable bytes.
    len: u64,
    /// Number of the last durable record.
    durable: u64,
    /// Records encoded for the next append.
    pending: Vec<u8>,
    /// Number of the last pending record.
    last: u64,
    /// Reason why the segment accepts no more writes.
    failed: Option<String>,
    end: EndMark,
}

impl<'a> LogWriter<'a> {
    /// Begins a segment after record `durable`; afterwards its file exists and is durable.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn create(disk: &'a dyn Disk, root: &Path, id: [u8; 16], durable: u64) -> Result<Self> {
        let segment = Segment { id, first: durable + 1 };
        disk.create_dir_all(&directory(root))?;
        let file = begin(disk, root, &segment)?;
        disk.sync_dir(root)?;
        let len = SEGMENT_HEADER as u64;
        Ok(Self::of(disk, root, segment, file, (len, durable)))
    }

    /// Continues at the end of the log. Torn bytes are truncated first, so that they cannot
    /// reappear after another crash.
    ///
    /// # Errors
    /// Errors of the disk.
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
        // The records that were read may be only in the system's memory. If their sync has failed,
        // the system considers them written, and another sync would do nothing. All bytes that may
        // not be durable are therefore written again.
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

    /// Adds a record, to be written by the next [`LogWriter::commit`].
    ///
    /// # Errors
    /// As [`Record::encode`]; the record is then not added.
    pub fn push(&mut self, lsn: u64, key: Option<Key>, updates: Vec<Update>) -> Result<()> {
        if lsn != self.last + 1 {
            return Err(Error::internal(format!("record {lsn} after {}", self.last)));
        }
        let record = Record { lsn, durable: self.durable, key, updates };
        record.encode(&self.segment, &mut self.pending)?;
        self.last = lsn;
        Ok(())
    }

    /// Makes the added records durable, with one write and one sync.
    ///
    /// # Errors
    /// Errors of the disk. None of the records is then valid: their bytes are truncated, or
    /// replaced by a new segment. If that fails too, the kind is `Unknown`: the records may be
    /// present after another start. They are not, once a later commit or [`LogWriter::renew`] has
    /// succeeded.
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

    /// Handles a failure that leaves the state of the segment unknown: replaces the written bytes
    /// of the records. The system may consider bytes written that are not on the disk, so a later
    /// sync of the same file proves nothing.
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

    /// Whether the segment has no records.
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

    /// Begins a new segment after the last durable record. Writing continues there, whatever has
    /// happened to the previous segment. An empty segment is replaced.
    ///
    /// # Errors
    /// Errors of the disk. Later records then go into the old segment if the new file name does not
    /// exist, otherwise into another new segment.
    pub fn renew(&mut self) -> Result<()> {
        let segment = Segment { first: self.durable + 1, ..self.segment };
        match begin(self.disk, &self.root, &segment) {
            Ok(file) => self.file = file,
            Err(error) => {
                if path(&self.root, segment.first).exists() {
                    // A reader would expect the records after this name only in that file.
                    self.failed = Some(error.message());
                }
                return Err(error);
            }
        }
        (self.segment, self.len, self.failed) = (segment, SEGMENT_HEADER as u64, None);
        self.end.settle(self.disk, &self.root, self.ended());
        Ok(())
    }

    /// The end of the durable part of the log.
    fn ended(&self) -> LogEnd {
        let Segment { id, first } = self.segment;
        LogEnd { id, lsn: self.durable, first, len: self.len }
    }
}

/// Creates the file of a segment. The file gets its name only after its header is durable. An
/// existing file of the same name is replaced, not truncated, because it may be the only segment.
fn begin(disk: &dyn Disk, root: &Path, segment: &Segment) -> Result<Box<dyn WriteFile>> {
    let path = path(root, segment.first);
    disk.replace(&path, &segment.encode())?;
    disk.open(&path)
}
