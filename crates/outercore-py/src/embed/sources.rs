//! Where the triples of an embedding come from.

use std::path::PathBuf;

use outercore_core::Result;
use outercore_embed::{ArrayTriples, Triples};
use serde::Deserialize;

/// Triples by where they are, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TripleSource {
    /// A `.npy` file, int64 [m, 3], and perhaps weights in another, float32 [m].
    Array {
        /// Its path.
        path: PathBuf,
        /// Path of the weights.
        weights: Option<PathBuf>,
        /// What tells it from other triples.
        identity: String,
    },
}

impl TripleSource {
    /// What tells the triples from others.
    pub fn identity(&self) -> String {
        match self {
            Self::Array { identity, .. } => identity.clone(),
        }
    }

    /// The triples, to be gone through.
    pub fn open(&self) -> Result<Box<dyn Triples>> {
        match self {
            Self::Array { path, weights, .. } => {
                Ok(Box::new(ArrayTriples::open(path, weights.as_deref())?))
            }
        }
    }
}
