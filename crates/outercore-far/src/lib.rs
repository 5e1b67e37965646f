//! Far memory: the memory of another process or machine as an additional tier (Fargraph+).
//!
//! A memory server lends regions of its memory. A client reads and writes them by region key, in
//! chunks, many at a time. [`FarTier`] makes far memory available to the I/O engine.
//!
//! Layer 2. Safe code only; layer 1 contains mappings and foreign libraries.
#![forbid(unsafe_code)]

pub mod auth;
pub mod client;
mod counters;
pub mod data_plane;
mod disk;
pub mod memory;
pub mod options;
pub mod placement;
pub mod probe;
mod protocol;
pub mod queue;
mod region;
pub mod remote;
pub mod segments;
pub mod server;
mod shared;
mod socket;
mod tcp;
pub mod tier;

pub use auth::Token;
pub use client::Connection;
pub use counters::FarCounters;
pub use data_plane::{Access, DataPlane, PlaneClient, PlaneControl, PlaneListener};
pub use memory::{FarMemory, Receive, Ticket};
pub use options::{FarAddress, FarOptions};
pub use probe::{FarPoint, FarProbeConfig, FarProbeStep, FarProfile, probe};
pub use queue::{Arrivals, Queue, Transfer, Transferred};
pub use region::{Region, RegionKey};
pub use remote::{RegionInfo, Remote, ServerStatus};
pub use segments::{FarSegment, SegmentGroup, add_transferable_flag};
pub use server::{ServerConfig, ServerCounters, ServerHandle, serve};
pub use tier::{Contents, FarTier, OnProgress, Placed};
