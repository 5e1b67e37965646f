//! The journal of an unfinished import, of edges or of triples; `.import/journal.json`.

use std::path::Path;

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_io::Disk;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::destination::{drop_it, way_on};
use crate::hold::journal_path;

const VERSION: u32 = 3;

#[derive(Deserialize)]
struct Header {
    /// Version 2 had none for edges.
    #[serde(default)]
    kind: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct File<S> {
    kind: String,
    version: u32,
    state: S,
}

/// The state of the interrupted import of this kind in `root`, if there is one.
///
/// # Errors
/// `Invalid`: an import of another kind was started there. `Version`, `Corrupt`: the journal
/// cannot be read.
pub(crate) fn load<S: DeserializeOwned>(root: &Path, kind: &str) -> Result<Option<S>> {
    let path = journal_path(root);
    let describe = || format!("import journal `{}`", path.display());
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(describe),
    };
    let corrupt = |error| Error::corrupt(format!("{}: {error}", describe())).hint(drop_it());
    let found: Header = serde_json::from_slice(&text).map_err(corrupt)?;
    if found.version != VERSION {
        let text = format!("{}: version {}, expected {VERSION}", describe(), found.version);
        return Err(Error::new(ErrorKind::Version, text).hint(drop_it()));
    }
    if found.kind != kind {
        return Err(other_import(root));
    }
    let file: File<S> = serde_json::from_slice(&text).map_err(corrupt)?;
    Ok(Some(file.state))
}

/// Replaces the journal on disk.
pub(crate) fn save<S: Serialize>(
    state: &S,
    kind: &str,
    disk: &dyn Disk,
    root: &Path,
) -> Result<()> {
    let file = File { kind: kind.to_owned(), version: VERSION, state };
    let text = serde_json::to_vec(&file)
        .map_err(|error| Error::internal(format!("import journal: {error}")))?;
    disk.replace(&journal_path(root), &text)
}

/// The error if another import was interrupted in `root`.
pub(crate) fn other_import(root: &Path) -> Error {
    Error::invalid(format!(
        "`{}` holds the unfinished import of other input or with other options",
        root.display()
    ))
    .hint(way_on(root))
}
