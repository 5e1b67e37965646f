//! Interprets a read's result: finished, to be continued, or the file ends early.

use std::path::Path;

use outercore_core::{Error, ErrorKind};

/// Progress of one request. Pure; shared by the back ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    done: usize,
    len: usize,
    /// The kernel accepts positions in multiples of this (1 for buffered files).
    step: usize,
}

/// The next step after a read returned a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// All bytes are there.
    Finished,
    /// Read again at [`Progress::position`].
    Continue,
    /// The file ends this many bytes after the request's offset.
    EndsAt(usize),
}

impl Progress {
    pub(crate) fn new(len: usize, step: usize) -> Self {
        debug_assert!(step.is_power_of_two());
        Self { done: 0, len, step }
    }

    /// Where to read next, in bytes after the start of the destination and of the request.
    pub(crate) fn position(&self) -> usize {
        self.done
    }

    /// How many bytes to request: the rest, rounded up for direct I/O.
    pub(crate) fn wanted(&self) -> usize {
        (self.len - self.done).next_multiple_of(self.step)
    }

    /// Records that a read at `position` brought `bytes`.
    ///
    /// A short read continues at the last aligned position. Direct I/O cannot continue from an
    /// unaligned one. A second read that gets no further therefore means the end of the file.
    pub(crate) fn advance(&mut self, bytes: usize) -> Next {
        let end = self.done + bytes;
        if end >= self.len {
            return Next::Finished;
        }
        let aligned = end - end % self.step;
        if aligned == self.done {
            return Next::EndsAt(end);
        }
        self.done = aligned;
        Next::Continue
    }
}

/// The error for a file that ends before the requested bytes.
pub(crate) fn ends_early(path: &Path, offset: u64, wanted: usize, found: usize) -> Error {
    Error::corrupt(format!(
        "file `{}` ends early: {wanted} bytes wanted at offset {offset}, found {found}",
        path.display(),
    ))
    .hint("the file was cut short after it was opened; run `outercore check DATASET`")
}

/// The error for a read that the operating system refused.
pub(crate) fn refused(path: &Path, offset: u64, wanted: usize, error: std::io::Error) -> Error {
    Error::from(error)
        .context(format!("file `{}`: read of {wanted} bytes at offset {offset}", path.display()))
}

/// The error for a wait that passed its deadline.
pub(crate) fn overdue(deadline: std::time::Duration, in_flight: usize) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("no read completed within {:.1} s, {in_flight} in flight", deadline.as_secs_f64()),
    )
    .hint("the device does not answer; look into the kernel log")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_read_is_finished_also_when_rounding_brought_more() {
        assert_eq!(Progress::new(100, 512).advance(100), Next::Finished);
        assert_eq!(Progress::new(100, 512).advance(512), Next::Finished);
    }

    #[test]
    fn an_unaligned_end_is_confirmed_by_a_second_read() {
        let mut progress = Progress::new(2000, 512);
        assert_eq!(progress.advance(700), Next::Continue);
        assert_eq!((progress.position(), progress.wanted()), (512, 1536));
        assert_eq!(progress.advance(188), Next::EndsAt(700));
    }

    #[test]
    fn no_bytes_at_all_is_the_end() {
        assert_eq!(Progress::new(10, 1).advance(0), Next::EndsAt(0));
    }

    proptest! {
        #[test]
        fn any_sequence_of_short_reads_finishes_or_finds_the_true_end(
            len in 1usize..20_000,
            file in 0usize..20_000,
            step in prop::sample::select(vec![1usize, 512, 4096]),
            cuts in prop::collection::vec(1usize..5, 0..64),
        ) {
            let mut progress = Progress::new(len, step);
            let mut cuts = cuts.into_iter();
            for _ in 0..200 {
                let left = file.saturating_sub(progress.position()).min(progress.wanted());
                // A device cuts at its own blocks; only the end of the file is unaligned.
                let got = cuts.next().map_or(left, |cut| left.min(cut * step));
                match progress.advance(got) {
                    Next::Finished => { prop_assert!(file >= len); return Ok(()); }
                    Next::EndsAt(end) => { prop_assert!(file < len); prop_assert_eq!(end, file); return Ok(()); }
                    Next::Continue => {}
                }
            }
            prop_assert!(false, "does not end");
        }
    }
}
