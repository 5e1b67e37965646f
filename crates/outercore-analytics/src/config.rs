//! Configuration of a run.

use std::path::PathBuf;

use outercore_core::{Bytes, Context, Error, Result, hint};
use outercore_far::FarOptions;
use outercore_far::segments::check_ratio;
use outercore_io::Backend;
use serde::{Deserialize, Serialize};

use crate::plan::FarShare;

/// Configuration of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Memory budget, including the result.
    pub memory: Bytes,
    /// The edge type to use, by its name in keys; by default all of them.
    pub relation: Option<String>,
    /// Number of computing threads; by default one per core.
    pub threads: Option<usize>,
    /// Read back end.
    pub backend: Backend,
    /// Whether to build a grid that is missing, stale or without the requested weights.
    pub build: bool,
    /// Far memory for the blocks that do not stay in memory, if available.
    pub far: Option<FarOptions>,
    /// Share of the blocks' bytes in far memory, even if the budget would keep more in memory; by
    /// default the bytes that the budget does not keep.
    pub far_ratio: Option<f64>,
    /// Whether to read while other threads compute, within a pass and across passes. Without
    /// buffering, each segment is read, then computed (the baseline of Fargraph+ 6.2).
    pub buffering: bool,
    /// Whether to count how often passes need each segment:
    /// [`Outcome::profile`](crate::Outcome::profile).
    pub profile: bool,
    /// The profile of an earlier run on the same grid, for choosing the segments that stay in
    /// memory.
    pub reads_by_segment: Option<Vec<u32>>,
    /// Directory of scratch files for state and results that do not fit into memory. By default the
    /// directory of the data set.
    pub scratch: Option<PathBuf>,
    /// Checkpoints, if they are to be written.
    pub checkpoint: Option<CheckpointConfig>,
}

/// Where and when to write checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// A separate directory.
    pub directory: PathBuf,
    /// Seconds between checkpoints; more if checkpoints would take over a tenth of the time.
    pub seconds: f64,
    /// Whether to resume from the existing checkpoint.
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
    /// Number of threads to start.
    ///
    /// # Errors
    /// `Invalid`: no threads.
    pub fn effective_threads(&self) -> Result<usize> {
        match self.threads {
            Some(0) => Err(Error::invalid("threads is 0, expected at least 1")),
            Some(threads) => Ok(threads),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }

    /// The amount of data for far memory.
    ///
    /// # Errors
    /// `Invalid`: options out of range, or a share without far memory.
    pub fn far_share(&self) -> Result<Option<FarShare>> {
        self.far.as_ref().map_or(Ok(()), |far| far.validate().context("far memory"))?;
        self.share_of(self.far.is_some())
    }

    /// The same, given whether there is far memory.
    pub(crate) fn share_of(&self, far: bool) -> Result<Option<FarShare>> {
        let Some(ratio) = self.far_ratio else { return Ok(far.then_some(FarShare::Rest)) };
        check_ratio(ratio)?;
        if !far {
            return Err(Error::invalid(format!("far ratio {ratio} without far memory"))
                .hint(hint!("say where the memory server listens: " {far = "HOST:PORT"})));
        }
        Ok(Some(FarShare::Ratio(ratio)))
    }
}
