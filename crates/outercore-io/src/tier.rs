//! The seam for memory that is nearer than the disk and holds copies of files.

use std::fmt::Debug;

use outercore_core::Result;

use crate::arena::Arena;
use crate::reader::Reader;

/// Memory that holds copies of files, or of parts of them, such as the memory of another machine.
///
/// # Contract
/// The reader that [`Tier::over`] returns keeps the contract of [`Reader`]; it delivers the same
/// bytes as `disk` would, whatever the tier holds.
pub trait Tier: Send + Sync + Debug {
    /// A reader that serves what the tier holds and leaves everything else to `disk`.
    ///
    /// Its leases will come from `arena`; up to `depth` reads are in flight at once.
    ///
    /// # Errors
    /// The tier cannot be reached, and is not to be done without.
    fn over(&self, disk: Box<dyn Reader>, arena: &Arena, depth: usize) -> Result<Box<dyn Reader>>;
}
