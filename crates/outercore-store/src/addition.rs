//! Adds arrays to an existing data set: checks them as an import does, and commits all of them at
//! once.

use std::path::{Path, PathBuf};

use outercore_core::{Error, ErrorKind, Result, hint};
use outercore_format::{DType, keys};
use outercore_io::Disk;

use crate::arrays::{
    ArrayBuilder, ArraySpec, ArraySummary, ImportedArray, Target, import_npy, register_npy,
    second_file,
};
use crate::editor::ManifestEditor;
use crate::npy::OnBytes;

/// Arrays to add to a data set; none of them belongs to it before [`Addition::commit`].
///
/// An addition that is dropped without a commit removes its files. After a crash the next writer
/// removes them.
///
/// # Example
/// ```
/// use outercore_format::{DType, Manifest};
/// use outercore_io::RealDisk;
/// use outercore_store::addition::Addition;
/// use outercore_store::arrays::{ArraySpec, Target};
/// use outercore_store::dataset::DataSet;
/// # use outercore_store::editor::commit;
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path();
/// # let mut manifest = Manifest::homogeneous(2, 0, false);
/// # manifest.edge_types.clear();
/// # commit(&RealDisk, root, &manifest)?;
/// let mut addition = Addition::begin(&RealDisk, root, false, &mut || Ok(()))?;
/// let target = Target::Node("year".to_owned());
/// let spec = ArraySpec::new(target.clone(), addition.rows(&target, None)?);
/// let mut builder = addition.builder(&spec, DType::U8, &[])?;
/// builder.push_rows(&[19, 20], 2)?;
/// addition.add(builder)?;
/// addition.commit(&["years.csv".to_owned()])?;
/// assert!(DataSet::open(root)?.has_array("year"));
/// # Ok(())
/// # }
/// ```
pub struct Addition<'a> {
    disk: &'a dyn Disk,
    root: PathBuf,
    editor: ManifestEditor<'a>,
    overwrite: bool,
    arrays: Vec<ImportedArray>,
}

impl<'a> Addition<'a> {
    /// Begins to add arrays to the data set in `root`. With `overwrite`, they may replace arrays of
    /// the same name.
    ///
    /// # Errors
    /// As [`ManifestEditor::wait`]. `Unsupported`: the data set has taken updates.
    pub fn begin(
        disk: &'a dyn Disk,
        root: &Path,
        overwrite: bool,
        on_wait: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let editor = ManifestEditor::wait(disk, root, on_wait)?;
        if editor.manifest().live.is_some() {
            let text = format!("data set `{}` takes updates: its arrays stay", root.display());
            return Err(
                Error::new(ErrorKind::Unsupported, text).hint("add arrays before the first update")
            );
        }
        Ok(Self { disk, root: root.to_owned(), editor, overwrite, arrays: Vec::new() })
    }

    /// Number of rows that an array for `target` must have: the nodes, or the input edges for an
    /// edge array. `of_type` is the node type or edge type, in a graph with several types. 0 for
    /// names, which may have any length.
    ///
    /// # Errors
    /// `NotFound`: no such type. `Invalid`: the number of imported edges is unknown.
    pub fn rows(&self, target: &Target, of_type: Option<&str>) -> Result<u64> {
        let manifest = self.editor.manifest();
        let missing = |kind: &str, name: &str, known: Vec<&String>| {
            let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
            Error::new(ErrorKind::NotFound, format!("there is no {kind} `{name}`"))
                .hint(format!("there are {}", known.join(" and ")))
        };
        if matches!(target, Target::Names(_)) {
            return Ok(0);
        }
        if !matches!(target, Target::Edge(_)) {
            let name = of_type.unwrap_or(keys::NODE);
            let nodes = manifest.node_types.get(name);
            return nodes
                .map(|nodes| nodes.count)
                .ok_or_else(|| missing("node type", name, manifest.node_types.keys().collect()));
        }
        let name = of_type.unwrap_or(keys::EDGE);
        let edges = manifest
            .edge_types
            .get(name)
            .ok_or_else(|| missing("edge type", name, manifest.edge_types.keys().collect()))?;
        let are_rows = !manifest.arrays.contains_key(keys::EDGE_IDS);
        edges.rows.or(are_rows.then_some(edges.count)).ok_or_else(|| {
            Error::invalid(format!(
                "data set `{}` does not say how many edges were imported",
                self.root.display()
            ))
            .hint("import it again")
        })
    }

    /// A builder for an array; pass it to [`Addition::add`] when it has all rows.
    ///
    /// # Errors
    /// `Invalid`: the key is already in use. As [`ArrayBuilder::create`].
    pub fn builder(
        &mut self,
        spec: &ArraySpec,
        dtype: DType,
        row_shape: &[u64],
    ) -> Result<ArrayBuilder> {
        let file = self.claim(spec)?;
        ArrayBuilder::create(self.disk, &self.root, &file, spec.clone(), dtype, row_shape)
    }

    /// Completes an array.
    ///
    /// # Errors
    /// As [`ArrayBuilder::finish`].
    pub fn add(&mut self, builder: ArrayBuilder) -> Result<ArraySummary> {
        let array = builder.finish(self.disk)?;
        Ok(self.enter(array))
    }

    /// Copies a `.npy` file into the data set.
    ///
    /// # Errors
    /// `Invalid`: the key is already in use. As [`import_npy`].
    pub fn array_from_npy(
        &mut self,
        spec: &ArraySpec,
        source: &Path,
        progress: OnBytes<'_>,
    ) -> Result<ArraySummary> {
        let file = self.claim(spec)?;
        let array = import_npy(self.disk, &self.root, &file, spec.clone(), source, progress)?;
        Ok(self.enter(array))
    }

    /// Registers a `.npy` file in place.
    ///
    /// # Errors
    /// `Invalid`: the key is already in use. As [`register_npy`].
    pub fn array_in_place(
        &mut self,
        spec: &ArraySpec,
        source: &Path,
        progress: OnBytes<'_>,
    ) -> Result<ArraySummary> {
        self.require_free(&spec.key())?;
        let array = register_npy(spec.clone(), source, progress)?;
        Ok(self.enter(array))
    }

    /// Adds all arrays to the data set at once, and the `inputs` to its provenance.
    ///
    /// # Errors
    /// As [`ManifestEditor::commit`].
    pub fn commit(mut self, inputs: &[String]) -> Result<()> {
        let manifest = self.editor.manifest_mut();
        if self.arrays.iter().any(|array| array.target == Target::Labels) {
            // Remove the class names of the old labels. New labels bring class names, if they have
            // any.
            let names = format!("names/{}.", keys::CLASS);
            manifest.arrays.retain(|key, _| !key.starts_with(&names));
        }
        for array in &self.arrays {
            array.add_to(manifest);
            // Remove the origin of an older array of this name: batches leave out arrays with an
            // origin, because these are results of algorithms.
            manifest.provenance.options.remove(&array.key);
        }
        let new = inputs.iter().filter(|input| !manifest.provenance.inputs.contains(input));
        let new: Vec<String> = new.cloned().collect();
        manifest.provenance.inputs.extend(new);
        manifest.version = manifest.version.max(manifest.needed_version());
        self.editor.commit()
    }

    fn claim(&mut self, spec: &ArraySpec) -> Result<String> {
        let key = spec.key();
        keys::validate(&key)?;
        self.require_free(&key)?;
        match spec.target {
            Target::Labels => self.editor.claim_two(&key, second_file),
            _ => self.editor.claim_file(&key),
        }
    }

    /// # Errors
    /// `Invalid`: the key is in use or belongs to the topology.
    fn require_free(&self, key: &str) -> Result<()> {
        if keys::is_topology(key) {
            return Err(Error::invalid(format!("array `{key}` is the topology"))
                .hint("choose another name"));
        }
        if self.arrays.iter().any(|array| array.key == key) {
            return Err(Error::invalid(format!("array `{key}` is given twice"))
                .hint("call one of them otherwise, or leave it out"));
        }
        if self.editor.manifest().arrays.contains_key(key) && !self.overwrite {
            return Err(Error::invalid(format!("array `{key}` is in the data set already"))
                .hint(hint!("choose another name, or " {overwrite = true})));
        }
        Ok(())
    }

    fn enter(&mut self, array: ImportedArray) -> ArraySummary {
        let summary = array.summary;
        self.arrays.push(array);
        summary
    }
}
