//! Reading the log after a stop, orderly or not.

use std::path::Path;

use outercore_core::{Context, Error, Result};
use outercore_format::log::{self, Frame, Record, SEGMENT_HEADER, Segment};
use outercore_format::{LIVE_DIRECTORY, Live};

use super::segments::{list, path};

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The last segment and its bytes; `None`: the next record needs a new one.
    pub last: Option<(Segment, u64)>,
    /// Number of the last whole record.
    pub lsn: u64,
    /// Bytes after it that were never acknowledged.
    pub torn: u64,
}

/// Gives `each` the records after those that the arrays hold, in order.
///
/// A record that was being written when the process or the machine stopped was never acknowledged,
/// and ends the log. Reads, changes nothing.
///
/// # Errors
/// `Corrupt`: a segment is missing or damaged, a record is damaged that later ones show to have been
/// acknowledged, or one of another log. Those of `each`.
pub fn recover(
    root: &Path,
    live: &Live,
    each: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<Recovered> {
    let id = live.id_bytes().ok_or_else(|| Error::corrupt("a log with a damaged id"))?;
    let mut firsts = list(root)?;
    let needed = firsts.partition_point(|first| *first <= live.lsn + 1);
    if needed == 0 {
        let text = format!("`{LIVE_DIRECTORY}`: the log after update {} is missing", live.lsn);
        return Err(Error::corrupt(text).hint("copy the data set again, whole"));
    }
    firsts.drain(..needed - 1);
    let mut at = Recovered { last: None, lsn: firsts[0] - 1, torn: 0 };
    for (place, &first) in firsts.iter().enumerate() {
        let is_last = place + 1 == firsts.len();
        let path = path(root, first);
        let context = || format!("log `{}`", path.display());
        let bytes = std::fs::read(&path).with_context(context)?;
        let segment = Segment { id, first };
        if first != at.lsn + 1 {
            let text = format!("begins with update {first}, expected {}", at.lsn + 1);
            return Err(Error::corrupt(text)).with_context(context);
        }
        match header(&segment, &bytes) {
            Ok(()) => {}
            // It was being made: its name may be there before its bytes, and nothing else is. The
            // first one was whole before the manifest asked for it.
            Err(_) if place > 0 && is_last && !holds_records(&segment, &bytes) => {
                at.torn = bytes.len() as u64;
                return Ok(Recovered { last: None, ..at });
            }
            Err(error) => return Err(error).with_context(context),
        }
        let end = read(&segment, &bytes, live.lsn, &mut at.lsn, each).with_context(context)?;
        let rest = &bytes[end..];
        if !rest.is_empty() && (!is_last || log::is_followed(&segment, rest, at.lsn + 1)) {
            let text = format!("byte {end}: update {} is damaged", at.lsn + 1);
            return Err(
                Error::corrupt(text).hint("it was acknowledged: restore the file from a copy")
            )
            .with_context(context);
        }
        at.torn = rest.len() as u64;
        at.last = Some((segment, end as u64));
    }
    if at.lsn < live.lsn {
        let text = format!("the log ends with update {}, the arrays hold {}", at.lsn, live.lsn);
        return Err(Error::corrupt(text).hint("copy the data set again, whole"));
    }
    Ok(at)
}

/// Looks at the log without using it: the updates that it holds beyond the arrays.
///
/// # Errors
/// As [`recover`].
pub fn verify(root: &Path, live: &Live) -> Result<u64> {
    let mut records = 0;
    recover(root, live, &mut |_| {
        records += 1;
        Ok(())
    })?;
    Ok(records)
}

fn header(expected: &Segment, bytes: &[u8]) -> Result<()> {
    let Some(header) = bytes.first_chunk::<SEGMENT_HEADER>() else {
        return Err(Error::corrupt(format!("has {} bytes, expected a header", bytes.len())));
    };
    let found = Segment::decode(header)?;
    if found.id != expected.id {
        return Err(
            Error::corrupt("belongs to another data set").hint("put back the log of this data set")
        );
    }
    if found.first != expected.first {
        return Err(Error::corrupt(format!("begins with update {}", found.first)));
    }
    Ok(())
}

/// Whether there is a record after the header, even if the header is damaged.
fn holds_records(segment: &Segment, bytes: &[u8]) -> bool {
    bytes.get(SEGMENT_HEADER..).is_some_and(|rest| log::is_followed(segment, rest, 0))
}

/// Reads whole records; returns where they end.
fn read(
    segment: &Segment,
    bytes: &[u8],
    held: u64,
    lsn: &mut u64,
    each: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<usize> {
    let mut at = SEGMENT_HEADER;
    while let Frame::Whole(record, len) = log::decode_frame(segment, &bytes[at..])? {
        if record.lsn != *lsn + 1 {
            // Left from before the log was cut off here; the cut was not durable.
            break;
        }
        *lsn = record.lsn;
        at += len;
        if record.lsn > held {
            each(record)?;
        }
    }
    Ok(at)
}
