//! The trait for memory tiers that are nearer than the disk and hold copies of files.

use std::fmt::Debug;

use outercore_core::Result;

use crate::arena::Arena;
use crate::reader::Reader;

/// Memory with copies of files, or of parts of them, such as the memory of another machine.
///
/// # Contract
/// The reader that [`Tier::over`] returns keeps the contract of [`Reader`]. It delivers the same
/// bytes as `disk`, for any content of the tier.
pub trait Tier: Send + Sync + Debug {
    /// A reader that serves the content of the tier and passes all other requests to `disk`.
    ///
    /// The caller leases the buffers from `arena`; up to `depth` reads are in flight at once.
    ///
    /// # Errors
    /// The tier cannot be reached, and the run does not allow a fallback.
    fn over(&self, disk: Box<dyn Reader>, arena: &Arena, depth: usize) -> Result<Box<dyn Reader>>;
}
