//! The first lines of a text, which detection uses.

use std::path::Path;

use outercore_core::{Bytes, Context, Error, Result, hint};

use crate::dialect::Position;
use crate::stream::ByteStream;

/// Least number of lines in a sample, unless the file or [`MOST_BYTES`] ends earlier.
pub(crate) const LEAST_LINES: usize = 2000;
const LEAST_BYTES: usize = 64 << 10;
const MOST_BYTES: u64 = 16 << 20;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line with its positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// The text without the line end.
    pub text: &'a [u8],
    /// The position before it.
    pub start: Position,
    /// The position after it.
    pub end: Position,
}

/// The first whole lines of a text.
pub(crate) struct Sample {
    bytes: Vec<u8>,
    /// Length of a byte order mark, which does not belong to any line.
    mark: usize,
}

impl Sample {
    /// Reads at least [`LEAST_LINES`] lines, or the whole file.
    pub fn read(kind: &'static str, path: &Path, memory: Bytes) -> Result<Self> {
        let place = || format!("{kind} `{}`", path.display());
        let mut stream = ByteStream::open(kind, path, 0, memory)?;
        let most = (memory.0 / 4).clamp(1 << 20, MOST_BYTES) as usize;
        let (mut bytes, mut lines, mut ended) = (Vec::new(), 0, false);
        while !ended && (lines < LEAST_LINES || bytes.len() < LEAST_BYTES) && bytes.len() < most {
            let filled = bytes.len();
            bytes.resize(filled + LEAST_BYTES, 0);
            let read = stream.read(&mut bytes[filled..])?;
            bytes.truncate(filled + read);
            ended = read < LEAST_BYTES;
            lines += memchr::memchr_iter(b'\n', &bytes[filled..]).count();
        }
        refuse_other_encodings(&bytes).with_context(place)?;
        refuse_other_line_ends(&bytes).with_context(place)?;
        if !ended {
            let Some(last) = memchr::memrchr(b'\n', &bytes) else {
                return Err(Error::invalid(format!(
                    "{}: line 1 is longer than {}, expected short lines of text",
                    place(),
                    Bytes(bytes.len() as u64)
                )));
            };
            bytes.truncate(last + 1);
        }
        let mark = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        Ok(Self { bytes, mark })
    }

    /// The lines in their order.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let text = &self.bytes[self.mark..];
        let mut at = Position { offset: self.mark as u64, ..Position::default() };
        text.split_inclusive(|byte| *byte == b'\n').map(move |line| {
            let start = at;
            at.offset += line.len() as u64;
            at.lines += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            Line { text: text.strip_suffix(b"\r").unwrap_or(text), start, end: at }
        })
    }
}

/// Refuses line ends of old Macs. A carriage return before a line feed or at the end is allowed.
fn refuse_other_line_ends(bytes: &[u8]) -> Result<()> {
    let is_alone = |at: &usize| !matches!(bytes.get(at + 1), None | Some(b'\n' | b'\r'));
    let Some(at) = memchr::memchr_iter(b'\r', bytes).find(is_alone) else { return Ok(()) };
    let line = 1 + memchr::memchr_iter(b'\n', &bytes[..at]).count();
    Err(Error::invalid(format!(
        "line {line}: a carriage return (CR) without a line feed (LF): are these the line ends of \
         old Macs?"
    ))
    .hint("convert them: `tr '\\r' '\\n' < FILE > NEW`"))
}

/// The byte order of UTF-16 without a mark, recognised because the high bytes of most Western
/// letters are 0.
fn wide_order(bytes: &[u8]) -> Option<&'static str> {
    let start = &bytes[..bytes.len().min(256) / 2 * 2];
    let zeros = |first: usize| start.iter().skip(first).step_by(2).filter(|b| **b == 0).count();
    let (even, odd, half) = (zeros(0), zeros(1), start.len() / 2);
    match () {
        () if half > 1 && odd == half && even == 0 => Some("LE"),
        () if half > 1 && even == half && odd == 0 => Some("BE"),
        () => None,
    }
}

fn refuse_other_encodings(bytes: &[u8]) -> Result<()> {
    if bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
        return Err(Error::invalid("the text is UTF-16, expected UTF-8")
            .hint("convert it: `iconv -f UTF-16 -t UTF-8 FILE > NEW`"));
    }
    if let Some(order) = wide_order(bytes) {
        return Err(Error::invalid("every second byte is 0: the text is UTF-16, expected UTF-8")
            .hint(format!("convert it: `iconv -f UTF-16{order} -t UTF-8 FILE > NEW`")));
    }
    if let Some(at) = memchr::memchr(0, bytes) {
        return Err(Error::invalid(format!("byte {at} is 0: this is no text"))
            .hint(hint!("name the format where the suffix does not: " {format})));
    }
    Ok(())
}
