//! Reads and writes that know no meaning: back ends behind one [`Reader`], the read planner, the
//! device profile, and the write side ([`Disk`]) with its faults.
//!
//! Layer 1. The only crate besides the Python binding that may hold `unsafe`.

pub mod arena;
pub mod disk;
pub mod fault_disk;
pub mod reader;
pub mod real_disk;

pub use arena::{Arena, Lease};
pub use disk::{Disk, WriteFile};
pub use fault_disk::{FaultDisk, FaultKind, FaultPlan};
pub use reader::{Completion, FileId, ReadRequest, Reader};
pub use real_disk::RealDisk;
