//! The log of updates: frames of bytes, each with its length, checksum and sequence number.
//!
//! `docs/format.md`, section 11, is the specification.

use outercore_core::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::Update;

/// Bytes at the start of a segment.
pub const SEGMENT_HEADER: usize = 64;

/// Bytes of a frame without its updates.
pub const FRAME_HEADER: usize = 40;

/// Frames start at multiples of this.
pub const ALIGNMENT: usize = 8;

/// Most bytes of the updates of one record.
pub const MOST_BODY: usize = 256 << 20;

/// Bytes of a [`LogEnd`].
pub const LOG_END: usize = 64;

/// Most bytes of a [`Key`].
pub const MOST_KEY: usize = 64;

const SEGMENT_MAGIC: [u8; 8] = *b"OCLOG\0\0\x01";
const FRAME_MAGIC: [u8; 4] = *b"OCR\x01";
const END_MAGIC: [u8; 8] = *b"OCEND\0\0\x01";

/// Byte before the key of a record, at the position where an update has its kind. A version without
/// keys rejects the record.
const KEY: u8 = 9;

/// The header of a segment: the data set that it belongs to, and its place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Id of the data set.
    pub id: [u8; 16],
    /// Sequence number of its first record.
    pub first: u64,
}

impl Segment {
    /// The bytes at the start of the segment's file.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..24].copy_from_slice(&self.id);
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        let checksum = xxh3_64_with_seed(&bytes[..56], 0);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header written by [`Segment::encode`].
    ///
    /// # Errors
    /// `Version`: a newer log. `Corrupt`: not a segment, or its checksum differs.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER]) -> Result<Self> {
        if bytes[..7] != SEGMENT_MAGIC[..7] {
            return Err(Error::corrupt("not a log of updates"));
        }
        if bytes[7] > SEGMENT_MAGIC[7] {
            let text = format!("log of version {}, expected {}", bytes[7], SEGMENT_MAGIC[7]);
            return Err(Error::new(ErrorKind::Version, text)
                .hint("a newer Outercore wrote it: pip install --upgrade outercore"));
        }
        if xxh3_64_with_seed(&bytes[..56], 0) != number(&bytes[56..]) {
            return Err(Error::corrupt("the start of the log has another checksum"));
        }
        let id = bytes[8..24].try_into().expect("16 bytes");
        Ok(Self { id, first: number(&bytes[24..]) })
    }

    /// Seed for the checksums of the frames, so a frame of another log fails the check.
    fn seed(&self) -> u64 {
        xxh3_64_with_seed(&self.id, 0)
    }
}

/// The end of the log at its last sync, stored outside the log.
///
/// All records up to this end are durable. A log that ends earlier has lost acknowledged updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Id of the data set.
    pub id: [u8; 16],
    /// Number of the last durable record.
    pub lsn: u64,
    /// Number of the first record of the last segment.
    pub first: u64,
    /// Bytes of the last segment.
    pub len: u64,
}

impl LogEnd {
    /// The encoded bytes.
    pub fn encode(&self) -> [u8; LOG_END] {
        let mut bytes = [0; LOG_END];
        bytes[..8].copy_from_slice(&END_MAGIC);
        bytes[8..24].copy_from_slice(&self.id);
        bytes[24..32].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.len.to_le_bytes());
        let checksum = xxh3_64_with_seed(&bytes[..56], 0);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes bytes written by [`LogEnd::encode`]; `None` for other or too few bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<LOG_END>()?;
        if bytes[..8] != END_MAGIC || xxh3_64_with_seed(&bytes[..56], 0) != number(&bytes[56..]) {
            return None;
        }
        let id = bytes[8..24].try_into().expect("16 bytes");
        let (lsn, first) = (number(&bytes[24..]), number(&bytes[32..]));
        Some(Self { id, lsn, first, len: number(&bytes[40..]) })
    }
}

/// A client's name for a request. With it, the client can repeat the request without changing the
/// graph twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Creates a key from `text`.
    ///
    /// # Errors
    /// `Invalid`: the text is empty, or longer than [`MOST_KEY`] bytes.
    pub fn new(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > MOST_KEY {
            let text = format!("a key of {} bytes, expected 1 to {MOST_KEY}", text.len());
            return Err(Error::invalid(text));
        }
        Ok(Self(text.into()))
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Appends the length as one byte, then the text.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.0.len() as u8);
        bytes.extend(self.0.as_bytes());
    }

    /// Decodes a key from the front of `bytes` and advances `bytes` past it.
    ///
    /// # Errors
    /// `Corrupt`: the bytes end too early, or are not a valid key.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("a damaged key of a request");
        let len = *bytes.split_off_first().ok_or_else(damaged)?;
        let text = bytes.split_off(..usize::from(len)).ok_or_else(damaged)?;
        Self::new(std::str::from_utf8(text).map_err(|_| damaged())?).map_err(|_| damaged())
    }
}

/// Updates that take effect together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Log sequence number: the previous record's number plus one.
    pub lsn: u64,
    /// Number of the last durable record when this record was written. It separates a write that
    /// was never acknowledged from a damaged one.
    pub durable: u64,
    /// The client's key.
    pub key: Option<Key>,
    /// The updates, in order.
    pub updates: Vec<Update>,
}

impl Record {
    /// Appends the record's frame.
    ///
    /// # Errors
    /// `Invalid`: above [`MOST_BODY`] bytes, or as [`Update::encode`]. `bytes` are unchanged in
    /// this case.
    pub fn encode(&self, segment: &Segment, bytes: &mut Vec<u8>) -> Result<()> {
        let start = bytes.len();
        let encoded = self.try_encode(segment, bytes, start);
        if encoded.is_err() {
            bytes.truncate(start);
        }
        encoded
    }

    fn try_encode(&self, segment: &Segment, bytes: &mut Vec<u8>, start: usize) -> Result<()> {
        bytes.resize(start + FRAME_HEADER, 0);
        if let Some(key) = &self.key {
            bytes.push(KEY);
            key.encode(bytes);
        }
        for update in &self.updates {
            update.encode(bytes)?;
        }
        let len = bytes.len() - start - FRAME_HEADER;
        if len > MOST_BODY {
            let text = format!("{len} bytes of updates at once, expected at most {MOST_BODY}");
            return Err(Error::invalid(text).hint("send them in several requests"));
        }
        bytes.resize(start + frame_len(len), 0);
        let frame = &mut bytes[start..];
        frame[..4].copy_from_slice(&FRAME_MAGIC);
        frame[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        frame[16..24].copy_from_slice(&self.lsn.to_le_bytes());
        frame[24..32].copy_from_slice(&self.durable.to_le_bytes());
        frame[32..36].copy_from_slice(&(self.updates.len() as u32).to_le_bytes());
        let checksum = checksum_of(segment, frame);
        frame[8..16].copy_from_slice(&checksum.to_le_bytes());
        Ok(())
    }
}

/// Result of decoding a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole record, and the bytes of its frame.
    Whole(Record, usize),
    /// Not a record: bytes are missing or differ from the written ones.
    Torn,
}

/// Decodes the frame at the front of `bytes`, which extend to the end of the segment.
///
/// # Errors
/// `Corrupt`: the checksum of the frame is right, but its updates are invalid.
pub fn decode_frame(segment: &Segment, bytes: &[u8]) -> Result<Frame> {
    if bytes.len() < FRAME_HEADER || bytes[..4] != FRAME_MAGIC {
        return Ok(Frame::Torn);
    }
    let len = u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")) as usize;
    let whole = frame_len(len);
    if len > MOST_BODY || bytes.len() < whole {
        return Ok(Frame::Torn);
    }
    let frame = &bytes[..whole];
    if checksum_of(segment, frame) != number(&frame[8..]) {
        return Ok(Frame::Torn);
    }
    let mut body = &frame[FRAME_HEADER..FRAME_HEADER + len];
    let key = match body.first() {
        Some(&KEY) => {
            body = &body[1..];
            Some(Key::decode(&mut body)?)
        }
        _ => None,
    };
    let count = u32::from_le_bytes(frame[32..36].try_into().expect("4 bytes"));
    let updates = (0..count).map(|_| Update::decode(&mut body)).collect::<Result<_>>()?;
    if !body.is_empty() {
        return Err(Error::corrupt("a record with bytes after its last update"));
    }
    let (lsn, durable) = (number(&frame[16..]), number(&frame[24..]));
    let record = Record { lsn, durable, key, updates };
    Ok(Frame::Whole(record, whole))
}

/// The start of a frame, for readers that do not hold the whole frame in memory.
#[derive(Clone, Copy, Debug)]
pub struct FrameHead([u8; FRAME_HEADER]);

impl FrameHead {
    /// Decodes the start of a frame; `None` if the bytes cannot start a frame.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let head = Self(*bytes.first_chunk()?);
        (head.0[..4] == FRAME_MAGIC && head.body() <= MOST_BODY).then_some(head)
    }

    fn body(&self) -> usize {
        u32::from_le_bytes(self.0[4..8].try_into().expect("4 bytes")) as usize
    }

    /// Bytes of the frame.
    pub fn frame_len(&self) -> u64 {
        frame_len(self.body()) as u64
    }

    /// Number of the record, if the frame is whole.
    pub fn lsn(&self) -> u64 {
        number(&self.0[16..])
    }

    /// [`Record::durable`] of the record.
    pub fn durable(&self) -> u64 {
        number(&self.0[24..])
    }

    /// Starts the check of the frame's checksum.
    pub fn check(&self, segment: &Segment) -> FrameCheck {
        let mut hash = Xxh3::with_seed(xxh3_64_with_seed(&self.0[..8], segment.seed()));
        hash.update(&self.0[16..]);
        FrameCheck { expected: number(&self.0[8..]), hash }
    }
}

/// The checksum of a frame that is read piece by piece.
pub struct FrameCheck {
    expected: u64,
    hash: Xxh3,
}

impl FrameCheck {
    /// Adds the next bytes after [`FRAME_HEADER`].
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Whether the added bytes match the checksum.
    pub fn is_whole(&self) -> bool {
        self.hash.digest() == self.expected
    }
}

/// A frame with the right checksum and any bytes as its body.
pub(crate) fn sealed_frame(segment: &Segment, lsn: u64, count: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; FRAME_HEADER];
    frame[..4].copy_from_slice(&FRAME_MAGIC);
    frame[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    frame[16..24].copy_from_slice(&lsn.to_le_bytes());
    frame[24..32].copy_from_slice(&(lsn - 1).to_le_bytes());
    frame[32..36].copy_from_slice(&count.to_le_bytes());
    frame.extend(body);
    frame.resize(frame_len(body.len()), 0);
    let checksum = checksum_of(segment, &frame);
    frame[8..16].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// Length of a frame whose updates have `len` bytes.
fn frame_len(len: usize) -> usize {
    (FRAME_HEADER + len).next_multiple_of(ALIGNMENT)
}

/// Covers everything in a frame except for the checksum, including magic and length.
fn checksum_of(segment: &Segment, frame: &[u8]) -> u64 {
    let head = xxh3_64_with_seed(&frame[..8], segment.seed());
    xxh3_64_with_seed(&frame[16..], head)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}
