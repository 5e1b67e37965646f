//! The log of updates on disk: segments of records.

mod end;
mod reader;
mod segments;
mod writer;

pub use reader::{LogReader, Recovered, is_pending, verify};
pub use segments::{directory, remove_before};
pub use writer::LogWriter;
