//! The log of updates on disk: segments of records.

mod recovery;
mod segments;
mod writer;

pub use recovery::{Recovered, recover, verify};
pub use segments::{directory, is_pending, remove_before};
pub use writer::LogWriter;
