//! The file `graph.json` of a data set, and errors if it is missing.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use outercore_core::{Context, Error, ErrorKind, Result, command, shell_path};
use outercore_format::{IMPORT_DIRECTORY, MANIFEST_FILE, Manifest};

use crate::claims::Claims;
use crate::generations::{self, MAX_MANIFEST, Pinned};
use crate::npy::grouped;

/// Parses `manifest`, the bytes of `graph.json` in `root`.
pub fn parse(root: &Path, manifest: &[u8]) -> Result<Manifest> {
    Manifest::from_json(manifest)
        .with_context(|| format!("`{MANIFEST_FILE}`"))
        .with_context(|| format!("data set `{}`", root.display()))
}

/// The bytes of `graph.json`.
pub fn read_manifest_bytes(root: &Path) -> Result<Vec<u8>> {
    pin_manifest(root).map(|pinned| pinned.bytes)
}

/// The bytes of `graph.json`, and a hold on its generation.
pub fn pin_manifest(root: &Path) -> Result<Pinned> {
    let pinned = match generations::pin(&root.join(MANIFEST_FILE)) {
        Ok(pinned) => pinned,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(no_manifest(root));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(not_imported(root));
        }
        Err(error) => return Err(Error::from(error).context(format!("`{MANIFEST_FILE}`"))),
    };
    if pinned.bytes.len() as u64 > MAX_MANIFEST {
        return Err(Error::corrupt(format!(
            "`{MANIFEST_FILE}` has more than {} bytes",
            grouped(MAX_MANIFEST)
        )));
    }
    Ok(pinned)
}

fn no_manifest(root: &Path) -> Error {
    if !root.exists() {
        return Error::new(ErrorKind::NotFound, "no such directory")
            .hint("make one with `outercore import` or `outercore generate`");
    }
    if Claims::load(root).is_some_and(|claims| claims.refused) {
        return Error::new(ErrorKind::NotFound, "the import was refused, so it is no data set yet")
            .hint("mend what the import has named, then import again");
    }
    if root.join(IMPORT_DIRECTORY).exists() {
        return Error::new(ErrorKind::NotFound, "import was interrupted")
            .hint("run the same command again to resume");
    }
    Error::new(ErrorKind::NotFound, format!("no `{MANIFEST_FILE}` in it, so it is no data set"))
        .hint("make one with `outercore import` or `outercore generate`")
}

/// The error for a path to a file, which has to be imported first.
fn not_imported(root: &Path) -> Error {
    let mut start = Vec::new();
    let read = File::open(root).and_then(|file| file.take(4096).read_to_end(&mut start));
    let what = if read.is_ok() && !start.contains(&0) { "a text file" } else { "a file" };
    let name = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy();
    let stem = name.trim_start_matches('.').split('.').next().filter(|stem| !stem.is_empty());
    let mut out = stem.unwrap_or("graph").to_owned();
    while Path::new(&out).exists() {
        out.push_str("-graph");
    }
    Error::invalid(format!("it is {what}, expected the directory of a data set")).hint(format!(
        "import it first: `{}`",
        command(&format!("import {}", shell_path(root)), &[("out", &out)])
    ))
}
