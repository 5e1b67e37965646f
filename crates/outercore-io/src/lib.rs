//! Reads and writes that know no meaning: back ends behind one [`Reader`], the read planner, the
//! device profile, and the write side ([`Disk`]) with its faults.
//!
//! Layer 1. The only crate besides the Python binding that may hold `unsafe`.

pub mod arena;
pub mod disk;
pub mod reader;

pub use arena::{Arena, Lease};
pub use disk::{Disk, WriteFile};
pub use reader::{Completion, FileId, ReadRequest, Reader};
