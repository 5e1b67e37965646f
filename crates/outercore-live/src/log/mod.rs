//! The log of updates on disk: segments of records.

mod end;
mod reader;
mod segments;
mod writer;

pub use reader::{LogReader, Recovered, verify};
pub use segments::{directory, is_pending, remove_before};
pub use writer::LogWriter;
