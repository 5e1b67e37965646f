//! A copy of a data set by hard links, which does not change when the original does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, Result};
use outercore_format::MANIFEST_FILE;

use crate::dataset::DataSet;

/// Prefix of the directories, in the data set that they are of.
const PREFIX: &str = ".linked-";

/// A temporary copy of a data set whose arrays are hard links to the original files.
///
/// Array files never change; updates write new files. So the copy keeps its state, and takes no
/// space for files that the original still has. Dropping it removes its directory.
#[derive(Debug)]
pub struct LinkedDataSet {
    data_set: DataSet,
    directory: PathBuf,
}

impl LinkedDataSet {
    /// Links the arrays of `data_set`, within its directory; `name` must be
    /// unique among the copies that exist.
    ///
    /// # Errors
    /// `NotFound`: an array was replaced meanwhile, and `data_set` is old. `Io`, also where the file
    /// system has no hard links.
    pub fn new(data_set: &DataSet, name: &str) -> Result<Self> {
        let directory = data_set.root().join(format!("{PREFIX}{name}"));
        remove(&directory)?;
        let made = link(data_set, &directory).and_then(|()| DataSet::open(&directory));
        match made {
            Ok(data_set) => Ok(Self { data_set, directory }),
            Err(error) => {
                // What is left is removed before the next one of this name.
                let _ = remove(&directory);
                Err(error)
            }
        }
    }

    /// Removes the copies of killed processes from the data set in `root`.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_left(root: &Path) -> Result<()> {
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The data set.
    pub fn data_set(&self) -> &DataSet {
        &self.data_set
    }
}

impl Drop for LinkedDataSet {
    fn drop(&mut self) {
        // What is left is removed at the next start.
        let _ = remove(&self.directory);
    }
}

fn link(data_set: &DataSet, directory: &Path) -> Result<()> {
    let manifest = data_set.manifest();
    let own = manifest.arrays.values().filter(|entry| !entry.external);
    let files: BTreeSet<&str> = own.map(|entry| entry.file.as_str()).collect();
    fs::create_dir(directory).with_context(|| directory.display().to_string())?;
    for file in files {
        let to = directory.join(file);
        if let Some(above) = to.parent() {
            fs::create_dir_all(above)?;
        }
        fs::hard_link(data_set.root().join(file), &to)
            .map_err(Error::from)
            .with_context(|| format!("hard link of `{file}`"))?;
    }
    // It is thrown away by a crash, so that nothing of it is synced.
    fs::write(directory.join(MANIFEST_FILE), manifest.to_file())?;
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
