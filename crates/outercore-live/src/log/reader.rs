//! Reads the log after an orderly stop or a crash.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use outercore_core::{Context, Error, Result};
use outercore_format::log::{
    self, ALIGNMENT, FRAME_HEADER, Frame, FrameHead, LogEnd, Record, SEGMENT_HEADER, Segment,
};
use outercore_format::{LIVE_DIRECTORY, Live};

use super::end;
use super::segments::{list, path};

/// Bytes read at a time; a larger record is held in memory as a whole.
const PIECE: usize = 1 << 20;

/// The end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The last segment and its length; `None` if the next record needs a new segment.
    pub last: Option<(Segment, u64)>,
    /// Number of the last whole record.
    pub lsn: u64,
    /// Number of bytes after it that were never acknowledged.
    pub torn: u64,
    /// The end recorded outside the log; it is not later than the end found.
    pub noted: Option<LogEnd>,
}

/// Reads, in order, the records that are not in the arrays.
///
/// If the process or the machine stopped while a record was written, that record was never
/// acknowledged, and it ends the log. The reader changes nothing.
///
/// **Cost** memory for one piece of a segment, or for the largest record.
pub struct LogReader<'r> {
    root: &'r Path,
    id: [u8; 16],
    /// Number of the last record in the arrays.
    held: u64,
    /// The first record of each needed segment.
    firsts: Vec<u64>,
    /// Index of the next segment to read.
    next: usize,
    open: Option<Pieces>,
    /// Length of the segment named by [`Recovered::noted`], if it was read.
    noted_len: Option<u64>,
    at: Recovered,
}

impl<'r> LogReader<'r> {
    /// Opens the log for reading.
    ///
    /// # Errors
    /// `Corrupt`: a segment is missing. Failed reads.
    pub fn open(root: &'r Path, live: &Live) -> Result<Self> {
        let id = live.id_bytes().ok_or_else(|| Error::corrupt("a log with a damaged id"))?;
        // Read this before the log: a concurrent writer records an end only after its records are
        // in the log.
        let noted = end::read(root, id)?;
        let mut firsts = list(root)?;
        let needed = firsts.partition_point(|first| *first <= live.lsn + 1);
        if needed == 0 {
            let text = format!("`{LIVE_DIRECTORY}`: the log after update {} is missing", live.lsn);
            return Err(Error::corrupt(text).hint("copy the data set again, whole"));
        }
        firsts.drain(..needed - 1);
        let at = Recovered { last: None, lsn: firsts[0] - 1, torn: 0, noted };
        let (held, noted_len) = (live.lsn, None);
        Ok(Self { root, id, held, firsts, next: 0, open: None, noted_len, at })
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`: a damaged segment or record, if later ones prove that it was acknowledged; a
    /// segment of another log; or a log that ends too early. Failed reads.
    pub fn next(&mut self) -> Result<Option<Record>> {
        loop {
            let Some(mut pieces) = self.open.take() else {
                match self.next_segment()? {
                    Some(pieces) => self.open = Some(pieces),
                    None => return self.require_whole().map(|()| None),
                }
                continue;
            };
            let first = pieces.segment.first;
            let context = || format!("log `{}`", path(self.root, first).display());
            let record = self.next_of(&mut pieces).with_context(context)?;
            match record {
                None => self.end_of(&pieces),
                Some(record) => {
                    self.open = Some(pieces);
                    if record.lsn > self.held {
                        return Ok(Some(record));
                    }
                }
            }
        }
    }

    /// The end of the log, after [`LogReader::next`] has returned `None`.
    pub fn end(&self) -> Recovered {
        self.at
    }

    /// Opens the next segment; `None` after the last.
    fn next_segment(&mut self) -> Result<Option<Pieces>> {
        let Some(&first) = self.firsts.get(self.next) else { return Ok(None) };
        self.next += 1;
        let path = path(self.root, first);
        let context = || format!("log `{}`", path.display());
        if first != self.at.lsn + 1 {
            let text = format!("begins with update {first}, expected {}", self.at.lsn + 1);
            return Err(Error::corrupt(text)).with_context(context);
        }
        let segment = Segment { id: self.id, first };
        let mut pieces = Pieces::open(&path, segment).with_context(context)?;
        let header = pieces.require_header();
        let is_last = self.next == self.firsts.len();
        // An older version created this file and was stopped before it wrote the header, so the
        // file contains nothing else. This cannot be the first segment, which was complete before
        // the manifest referred to it.
        if header.is_err() && self.next > 1 && is_last && !pieces.is_followed(0).unwrap_or(true) {
            self.at = Recovered { last: None, torn: pieces.len, ..self.at };
            self.note(first, 0);
            return Ok(None);
        }
        header.with_context(context)?;
        Ok(Some(pieces))
    }

    /// The next record of a segment; `None` at its end.
    fn next_of(&mut self, pieces: &mut Pieces) -> Result<Option<Record>> {
        let expected = self.at.lsn + 1;
        let next_segment = self.firsts.get(self.next);
        if next_segment == Some(&expected) {
            // Bytes after this point are a write whose sync failed. The next segment replaces it.
            return Ok(None);
        }
        match pieces.frame()? {
            Frame::Whole(record, len) if record.lsn == expected => {
                self.at.lsn = expected;
                pieces.at += len as u64;
                return Ok(Some(record));
            }
            // A record with another number is left from before the log was truncated here, because
            // the truncation was not durable.
            Frame::Whole(..) | Frame::Torn => {}
        }
        if next_segment.is_some() || pieces.is_followed(expected)? {
            let text = format!("byte {}: update {expected} is damaged or missing", pieces.at);
            let hint = "it was acknowledged: restore the file from a copy";
            return Err(Error::corrupt(text).hint(hint));
        }
        Ok(None)
    }

    fn end_of(&mut self, pieces: &Pieces) {
        self.at.torn = pieces.len - pieces.at;
        self.at.last = Some((pieces.segment, pieces.at));
        self.note(pieces.segment.first, pieces.at);
    }

    /// Stores the length of a segment, if the recorded end names it.
    fn note(&mut self, first: u64, len: u64) {
        if self.at.noted.is_some_and(|noted| noted.first == first) {
            self.noted_len = Some(len);
        }
    }

    /// Checks that nothing is missing at the end.
    fn require_whole(&self) -> Result<()> {
        let (lsn, held) = (self.at.lsn, self.held);
        if lsn < held {
            let text = format!("the log ends with update {lsn}, the arrays hold {held}");
            return Err(Error::corrupt(text).hint("copy the data set again, whole"));
        }
        let Some(noted) = self.at.noted else { return Ok(()) };
        // A fold may have removed the segment.
        let is_missing = self.firsts.last().is_some_and(|last| *last < noted.first);
        let is_cut = self.noted_len.is_some_and(|len| len < noted.len);
        if noted.lsn <= lsn && !is_missing && !is_cut {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "`{LIVE_DIRECTORY}`: the log ends with update {lsn} at byte {}, but update {} was \
             acknowledged, at byte {} of the segment of update {}",
            self.at.last.map_or(0, |(_, len)| len),
            noted.lsn,
            noted.len,
            noted.first
        ))
        .hint(format!(
            "restore `{LIVE_DIRECTORY}` from a copy; or remove `{LIVE_DIRECTORY}/{}` to accept that \
             the updates after {lsn} are lost",
            end::FILE
        )))
    }
}

/// Whether the log may contain updates that are not in the arrays, or should contain them. Checks
/// only lengths and the recorded end.
///
/// # Errors
/// As [`end::read`]. Errors of listing the log.
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
    // A log without segments is damaged, and recovery reports it.
    Ok(firsts.is_empty())
}

/// Checks the log without using it. Returns the number of records that are not in the arrays.
///
/// # Errors
/// As [`LogReader::open`] and [`LogReader::next`].
pub fn verify(root: &Path, live: &Live) -> Result<u64> {
    let mut reader = LogReader::open(root, live)?;
    let mut records = 0;
    while reader.next()?.is_some() {
        records += 1;
    }
    Ok(records)
}

/// A segment that is read piece by piece.
struct Pieces {
    file: File,
    /// Bytes of the file.
    len: u64,
    segment: Segment,
    /// Position of the next frame.
    at: u64,
    /// Position of the bytes in memory.
    start: u64,
    bytes: Vec<u8>,
}

impl Pieces {
    fn open(path: &Path, segment: Segment) -> Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let at = SEGMENT_HEADER as u64;
        Ok(Self { file, len, segment, at, start: 0, bytes: Vec::new() })
    }

    /// `count` bytes from `at` on; fewer at the end of the file.
    fn bytes(&mut self, at: u64, count: usize) -> Result<&[u8]> {
        let end = at.saturating_add(count as u64).min(self.len);
        let is_there = self.start <= at && end <= self.start + self.bytes.len() as u64;
        if !is_there {
            self.start = at;
            // The memory of a large record must not be kept.
            self.bytes = Vec::new();
            self.bytes.resize(PIECE.max(count).min(self.len.saturating_sub(at) as usize), 0);
            let read = read_most(&self.file, at, &mut self.bytes)?;
            if read < self.bytes.len() {
                // A concurrent writer has truncated bytes that it could not write.
                self.bytes.truncate(read);
                self.len = at + read as u64;
            }
        }
        let end = end.min(self.len);
        let (from, to) = ((at - self.start) as usize, (end.max(at) - self.start) as usize);
        Ok(self.bytes.get(from..to).unwrap_or_default())
    }

    fn require_header(&mut self) -> Result<()> {
        let len = self.len;
        let expected = self.segment;
        let Some(header) = self.bytes(0, SEGMENT_HEADER)?.first_chunk::<SEGMENT_HEADER>() else {
            return Err(Error::corrupt(format!("has {len} bytes, expected a header")));
        };
        let found = Segment::decode(header)?;
        if found.id != expected.id {
            return Err(Error::corrupt("belongs to another data set")
                .hint("put back the log of this data set"));
        }
        if found.first != expected.first {
            return Err(Error::corrupt(format!("begins with update {}", found.first)));
        }
        Ok(())
    }

    /// The frame at the current position.
    fn frame(&mut self) -> Result<Frame> {
        let (at, segment) = (self.at, self.segment);
        let Some(head) = self.head(at)? else { return Ok(Frame::Torn) };
        // A damaged length must not allocate memory.
        if head.frame_len() > PIECE as u64 && !self.is_whole(at, &head)? {
            return Ok(Frame::Torn);
        }
        log::decode_frame(&segment, self.bytes(at, head.frame_len() as usize)?)
    }

    /// The start of a frame that ends within the file.
    fn head(&mut self, at: u64) -> Result<Option<FrameHead>> {
        let head = FrameHead::decode(self.bytes(at, FRAME_HEADER)?);
        Ok(head.filter(|head| head.frame_len() <= self.len.saturating_sub(at)))
    }

    /// Whether the bytes of a frame match its checksum.
    fn is_whole(&mut self, at: u64, head: &FrameHead) -> Result<bool> {
        let mut check = head.check(&self.segment);
        let mut done = FRAME_HEADER as u64;
        while done < head.frame_len() {
            let count = (head.frame_len() - done).min(PIECE as u64) as usize;
            let piece = self.bytes(at + done, count)?;
            if piece.is_empty() {
                return Ok(false);
            }
            done += piece.len() as u64;
            check.update(piece);
        }
        Ok(check.is_whole())
    }

    /// Whether any record after the current position was written after record `lsn` became durable.
    /// If so, missing records up to `lsn` were acknowledged.
    fn is_followed(&mut self, lsn: u64) -> Result<bool> {
        let mut at = self.at;
        while at < self.len {
            if let Some(head) = self.head(at)?
                && head.durable() >= lsn
                && head.lsn() > lsn
                && self.is_whole(at, &head)?
            {
                return Ok(true);
            }
            at += ALIGNMENT as u64;
        }
        Ok(false)
    }
}

/// Fills `bytes` from position `at` on, up to the end of the file.
fn read_most(file: &File, at: u64, bytes: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
