//! What a run may use.

use std::path::PathBuf;

use outercore_core::{Bytes, Context, Error, Result};
use outercore_far::FarOptions;
use outercore_far::segments::check_ratio;
use outercore_io::Backend;
use serde::{Deserialize, Serialize};

use crate::plan::FarShare;

/// What a run may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Everything that is kept in memory, the result included.
    pub memory: Bytes,
    /// The edge type that counts, by its name in keys; by default all of them.
    pub relation: Option<String>,
    /// Threads that compute; by default one per core.
    pub threads: Option<usize>,
    /// How to read.
    pub backend: Backend,
    /// Whether to build a grid that is missing, stale or without the weights asked for.
    pub build: bool,
    /// Far memory for the blocks that do not stay in memory, where there is any.
    pub far: Option<FarOptions>,
    /// Share of the blocks' bytes that goes to far memory, even where the budget would keep more;
    /// by default what the budget does not keep.
    pub far_ratio: Option<f64>,
    /// Whether to read while others compute, within a pass and from one to the next; without, a
    /// segment is read, then computed (the baseline of Fargraph+ 6.2).
    pub buffering: bool,
    /// Whether to count what passes want of each segment: [`Outcome::profile`](crate::Outcome::profile).
    pub profile: bool,
    /// The profile of an earlier run on the same grid, by which to choose what stays in memory.
    pub reads_by_segment: Option<Vec<u32>>,
    /// Directory of scratch files: state and results that memory has no room for. By default that
    /// of the data set.
    pub scratch: Option<PathBuf>,
    /// Whether to leave checkpoints.
    pub checkpoint: Option<CheckpointConfig>,
}

/// Where and when to leave checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// A directory of its own.
    pub directory: PathBuf,
    /// Seconds from one to the next; more where they would take a tenth of the time.
    pub seconds: f64,
    /// Whether to go on from the one that is there.
    pub resume: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            memory: Bytes::gib(1),
            relation: None,
            threads: None,
            backend: Backend::Auto,
            build: true,
            far: None,
            far_ratio: None,
            buffering: true,
            profile: false,
            reads_by_segment: None,
            scratch: None,
            checkpoint: None,
        }
    }
}

impl RunConfig {
    /// Threads to start.
    ///
    /// # Errors
    /// `Invalid`: none.
    pub fn effective_threads(&self) -> Result<usize> {
        match self.threads {
            Some(0) => Err(Error::invalid("threads is 0, expected at least 1")),
            Some(threads) => Ok(threads),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }

    /// How much goes to far memory.
    ///
    /// # Errors
    /// `Invalid`: options out of range, a share of what is not there.
    pub fn far_share(&self) -> Result<Option<FarShare>> {
        self.far.as_ref().map_or(Ok(()), |far| far.validate().context("far memory"))?;
        self.share_of(self.far.is_some())
    }

    /// The same, where it is known whether there is far memory.
    pub(crate) fn share_of(&self, far: bool) -> Result<Option<FarShare>> {
        let Some(ratio) = self.far_ratio else { return Ok(far.then_some(FarShare::Rest)) };
        check_ratio(ratio)?;
        if !far {
            return Err(Error::invalid(format!("far ratio {ratio} without far memory"))
                .hint("say where the memory server listens: --far HOST:PORT"));
        }
        Ok(Some(FarShare::Ratio(ratio)))
    }
}
