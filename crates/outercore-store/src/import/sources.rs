//! The sources of an import, read one after the other.
//!
//! A resumed import is given the same sources again. It skips the complete ones and continues in
//! the first incomplete one.

use outercore_core::{Error, Result};

/// The durable part of one source.
pub(crate) trait SourceRecord {
    /// The rows of a source in messages, such as `edges`.
    const ROWS: &'static str;

    /// Whether both are records of the same source, with the same content.
    fn is_same(&self, other: &Self) -> bool;

    /// Number of durable rows.
    fn rows(&self) -> u64;

    /// Whether this is the whole source.
    fn is_complete(&self) -> bool;

    /// The source in messages.
    fn name(&self) -> String;

    /// The error for a source that differs from the recorded source at this place.
    fn mismatch(&self, index: usize, found: &Self) -> Error;
}

/// The result of starting a source.
pub(crate) struct Begun {
    /// An earlier run read the whole source.
    pub is_complete: bool,
    /// The record of another source, which was incomplete and the last one, was replaced.
    pub is_replaced: bool,
}

/// The place of a reader in the sources.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// Index of the next source.
    next: usize,
    /// Rows so far of the current source, durable or not.
    pub taken: u64,
    /// Rows of the current source that an earlier run made durable.
    pub durable: u64,
    /// Rows that the caller has pushed or skipped, if the current source is pushed.
    pub pushed: Option<u64>,
}

impl Cursor {
    /// Index of the current source.
    pub fn current(&self) -> usize {
        self.next - 1
    }

    /// Index of the current source; `None` before the first.
    pub fn started(&self) -> Option<usize> {
        self.next.checked_sub(1)
    }

    /// Starts the next source, `fresh`.
    ///
    /// # Errors
    /// `Invalid`: the unfinished import had another source there.
    pub fn begin<R: SourceRecord>(
        &mut self,
        records: &mut Vec<R>,
        fresh: R,
        is_reading: bool,
    ) -> Result<Begun> {
        let index = self.next;
        let is_last = index + 1 == records.len();
        let mut is_replaced = false;
        match records.get_mut(index) {
            Some(known) if known.is_same(&fresh) => {}
            // No later source depends on it.
            Some(known) if is_reading && is_last && !known.is_complete() => {
                *known = fresh;
                is_replaced = true;
            }
            Some(known) => return Err(known.mismatch(index, &fresh)),
            None if is_reading => records.push(fresh),
            None => {
                return Err(Error::invalid(format!(
                    "the unfinished import has {index} sources of {}, found another: {}",
                    R::ROWS,
                    fresh.name()
                )));
            }
        }
        self.next += 1;
        let record = &records[index];
        (self.taken, self.durable) = (record.rows(), record.rows());
        Ok(Begun { is_complete: record.is_complete(), is_replaced })
    }

    /// Ends the pushed source, if the current source is pushed; returns whether it is new, so that
    /// it has to be made complete.
    ///
    /// # Errors
    /// `Invalid`: the caller pushed fewer rows than before.
    pub fn end_pushed<R: SourceRecord>(&mut self, records: &[R]) -> Result<bool> {
        let Some(pushed) = self.pushed.take() else { return Ok(false) };
        if pushed < self.durable {
            return Err(self.other_count::<R>(self.durable, pushed));
        }
        Ok(!records[self.current()].is_complete())
    }

    /// Makes sure that all recorded sources were given.
    ///
    /// # Errors
    /// `Invalid`: a source is missing.
    pub fn require_end<R: SourceRecord>(&self, records: &[R]) -> Result<()> {
        match records.get(self.next) {
            None => Ok(()),
            Some(missing) => Err(Error::invalid(format!(
                "the unfinished import has {} sources of {}, found {}: {} is missing",
                records.len(),
                R::ROWS,
                self.next,
                missing.name()
            ))),
        }
    }

    /// The error if the caller pushes fewer or more rows than the unfinished import recorded.
    pub fn other_count<R: SourceRecord>(&self, expected: u64, found: u64) -> Error {
        let rows = R::ROWS;
        Error::invalid(format!(
            "source {} of the {rows} has {found} {rows}, but the unfinished import took {expected} \
             from it",
            self.next
        ))
    }
}

/// Whether a source is complete, so that it is kept if the next source is refused.
pub(crate) fn any_complete<R: SourceRecord>(records: &[R]) -> bool {
    records.iter().any(R::is_complete)
}
