//! The served model, which newer weights may replace.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use outercore_core::{Error, ErrorKind, Result};
use outercore_infer::{Manifest, Model, Precision};

/// Digits of a version.
const VERSION_DIGITS: usize = 12;

/// The first digits of the model's digest, enough to tell two models apart. The precision is added
/// if it differs from the one of the training, because answers of one version are equal to the bit.
fn version_of(model: &Model) -> Arc<str> {
    let digits = model.version().rsplit(':').next().unwrap_or_default();
    let digits: String = digits.chars().take(VERSION_DIGITS).collect();
    match model.precision() {
        Precision::Float32 => digits.into(),
        Precision::Int8 => format!("{digits}-{}", Precision::Int8).into(),
    }
}

/// A model with its version.
#[derive(Clone)]
pub struct Versioned {
    /// The network.
    pub model: Arc<Model>,
    /// Its version.
    pub version: Arc<str>,
}

impl Versioned {
    /// Adds the version to a model.
    pub fn of(model: Arc<Model>) -> Self {
        let version = version_of(&model);
        Self { model, version }
    }
}

/// The served model: its directory, and the version that answers.
pub struct Served {
    directory: PathBuf,
    manifest: Manifest,
    precision: Precision,
    version: RwLock<Arc<str>>,
}

impl Served {
    /// The model that was opened from `directory`.
    pub fn new(directory: &Path, served: &Versioned) -> Self {
        Self {
            directory: directory.to_owned(),
            manifest: served.model.manifest().clone(),
            precision: served.model.precision(),
            version: RwLock::new(Arc::clone(&served.version)),
        }
    }

    /// The version that answers now.
    pub fn version(&self) -> Arc<str> {
        Arc::clone(&self.version.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the version that answers from now on.
    pub fn set_version(&self, version: &Arc<str>) {
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(version);
    }

    /// Reads the current model from the directory and checks that it can replace the served model.
    ///
    /// # Errors
    /// As [`Model::open`]. `Unsupported` if the network, the inputs or the outputs differ: they
    /// need a newly planned server. `Unsupported` also for int8, because it is compared with
    /// float32 only at the start.
    pub fn read(&self) -> Result<Versioned> {
        if self.precision == Precision::Int8 {
            return Err(needs_restart("int8 is compared with float32 when a server starts"));
        }
        let model = Model::open(&self.directory, self.precision)?;
        let (new, now) = (model.manifest(), &self.manifest);
        let parts = [
            ("network", new.network == now.network),
            ("head", new.head == now.head),
            ("input", new.input == now.input),
            ("task", new.task.kind == now.task.kind),
        ];
        if let Some((part, _)) = parts.iter().find(|(_, is_same)| !is_same) {
            return Err(needs_restart(&format!(
                "the model has another {part} than the one served"
            )));
        }
        Ok(Versioned::of(Arc::new(model)))
    }
}

fn needs_restart(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{why}; restart the server to serve the new model"))
}
