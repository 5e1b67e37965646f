//! Reads and writes of plain bytes: back ends behind one [`Reader`], the read planner, the device
//! profile, the write side ([`Disk`]) with its faults, and a lock against other processes.
//!
//! Layer 1. Only this crate, `outercore-fabric` and the Python binding may contain `unsafe`.

pub mod arena;
mod backend;
mod direct_disk;
pub mod disk;
mod engine;
pub mod fault_disk;
mod huge;
mod kept;
mod lock;
mod open;
mod plan;
mod prefetch;
mod probe;
mod profile;
mod progress;
pub mod reader;
pub mod real_disk;
pub mod sim;
mod small_file;
mod space;
mod tier;

pub use arena::{Arena, Lease};
pub use backend::{Availability, Backend, available_backends};
pub use backend::{MmapReader, ThreadsReader, UringReader};
pub use direct_disk::DirectDisk;
pub use disk::{Disk, WriteFile};
pub use disk::{Unnamed, path_of};
pub use engine::{Engine, EngineConfig};
pub use fault_disk::{FaultDisk, FaultKind, FaultPlan};
pub use huge::{prefer_huge_pages, return_free_memory};
pub use kept::{Kept, KeptRead, Slots};
pub use lock::FileLock;
pub use plan::{CostModel, PlannedRead, RowLayout, RowPlan, plan_range, plan_rows};
pub use prefetch::{prefetch, prefetch_early};
pub use probe::{ProbeConfig, ProbeStep, probe};
pub use profile::{DeviceProfile, ProfilePoint, reads_in_flight};
pub use reader::{Completion, FileId, ReadRequest, Reader};
pub use real_disk::RealDisk;
pub use small_file::{open_regular_file, read_small_file};
pub use space::free_space;
pub use tier::Tier;
