//! An open data set: its manifest and its array files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{Context, Error, ErrorKind, Result, command, hint, shell_path};
use outercore_format::keys::{self, Group};
use outercore_format::{ArrayEntry, Checksum, DType, Manifest, Schema};

use crate::generations::{self, Pin, Pinned};
use crate::linked::LinkedDirectory;
use crate::manifest_file::{parse, pin_manifest, read_manifest_bytes};
use crate::npy::grouped;

pub use crate::array_file::{ArrayFile, ArrayRef};

/// A data set with a parsed manifest, whose files have the lengths that the manifest requires.
///
/// # Example
/// ```
/// use outercore_store::dataset::DataSet;
/// # fn main() -> outercore_core::Result<()> {
/// # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/format-1");
/// let graph = DataSet::open(root)?;
/// assert_eq!(graph.num_nodes(), 5);
/// let x = graph.features()?;
/// let rows = graph.read_rows(&x.key, &[3, 0])?;
/// assert_eq!(rows.len() as u64, 2 * x.row_bytes());
/// # Ok(())
/// # }
/// ```
///
/// While this or a clone is open, the files that its manifest names stay on disk, even if newer
/// generations are committed ([`crate::generations`]).
#[derive(Clone, Debug)]
pub struct DataSet {
    root: PathBuf,
    manifest: Arc<Manifest>,
    schema: Arc<Schema>,
    generation: Arc<str>,
    /// `None` if the file system has no locks.
    _pin: Option<Pin>,
    /// The directory of a private copy.
    linked: Option<Arc<LinkedDirectory>>,
}

impl DataSet {
    /// Opens the data set in the directory `path`.
    ///
    /// **Cost**: reads the manifest and the length of each file; reads no array.
    ///
    /// # Errors
    /// `NotFound`: no such directory, no data set in it, an unfinished import, or a missing file.
    /// `Corrupt`: a bad manifest, or a file of another length. `Version`: a newer format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let root =
            std::path::absolute(path).with_context(|| format!("data set `{}`", path.display()))?;
        loop {
            let before = read_manifest_bytes(&root);
            match Self::open_once(&root) {
                // Another process replaced the data set after the manifest was read: try again.
                Err(_) if before.is_ok() && read_manifest_bytes(&root).ok() != before.ok() => {}
                opened => return opened,
            }
        }
    }

    /// As [`DataSet::open`], but opens `generation`, so that another process can open the same
    /// state. `None` if that generation is gone: a newer one exists, and no process holds the old
    /// one open.
    ///
    /// # Errors
    /// As [`DataSet::open`].
    pub fn open_generation(path: impl AsRef<Path>, generation: &str) -> Result<Option<Self>> {
        let current = Self::open(path)?;
        if &*current.generation == generation {
            return Ok(Some(current));
        }
        match generations::pin_old(&current.root, generation)
            .map(|old| Self::of(&current.root, old))
        {
            // The files of that generation were being removed.
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            old => old.transpose(),
        }
    }

    /// Whether `newer` equals this data set except for added arrays: the same updates, nodes, edges
    /// and arrays. Grids and layouts are not compared.
    pub fn is_extended_by(&self, newer: &Self) -> bool {
        let (old, new) = (self.manifest(), newer.manifest());
        let is_there = |(key, entry): (&String, &ArrayEntry)| {
            keys::is_derived(key) || new.arrays.get(key) == Some(entry)
        };
        old.lsn() == new.lsn()
            && old.node_types == new.node_types
            && old.edge_types == new.edge_types
            && old.arrays.iter().all(is_there)
    }

    /// Opens the current data set in `root`, for a writer that has locked the directory. It does
    /// not hold the generation, so that the writer's commit can remove the files that it replaces.
    pub(crate) fn open_for_change(root: &Path) -> Result<Self> {
        Ok(Self { _pin: None, ..Self::open(root)? })
    }

    /// Makes a private copy of hard links inside the directory. Commits to the copy, such as a
    /// grid, do not change the original. The arrays of the copy take no space. The copy is removed
    /// with the last `DataSet` opened on it.
    ///
    /// # Errors
    /// `Io`, also if the file system has no hard links or the directory is not writable.
    pub fn linked(&self) -> Result<Self> {
        let directory = LinkedDirectory::make(&self.root, &self.manifest)?;
        let opened = Self::open(directory.path())?;
        Ok(Self { linked: Some(Arc::new(directory)), ..opened })
    }

    /// Opens the current generation of the data set.
    ///
    /// # Errors
    /// As [`DataSet::open`].
    pub fn reopen(&self) -> Result<Self> {
        Ok(Self { linked: self.linked.clone(), ..Self::open(&self.root)? })
    }

    fn open_once(root: &Path) -> Result<Self> {
        let context = || format!("data set `{}`", root.display());
        Self::of(root, pin_manifest(root).with_context(context)?)
    }

    fn of(root: &Path, pinned: Pinned) -> Result<Self> {
        let manifest = parse(root, &pinned.bytes)?;
        for (key, entry) in &manifest.arrays {
            ArrayRef::new(root, key, entry)
                .check_len(entry.external)
                .with_context(|| format!("array `{key}`"))
                .map_err(|error| error.hint("run `outercore check DATASET`"))?;
        }
        let schema = Arc::new(manifest.schema()?);
        Ok(Self {
            root: root.to_owned(),
            manifest: Arc::new(manifest),
            schema,
            generation: generations::name_of(&pinned.bytes).into(),
            _pin: pinned.pin,
            linked: None,
        })
    }

    /// Reads and validates the manifest in `root`, but does not check the arrays.
    ///
    /// # Errors
    /// As [`DataSet::open`].
    pub fn read_manifest(root: &Path) -> Result<Manifest> {
        let context = || format!("data set `{}`", root.display());
        parse(root, &read_manifest_bytes(root).with_context(context)?)
    }

    /// The directory, as an absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Name of the opened generation. Another process can open the same generation by it
    /// ([`DataSet::open_generation`]).
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The types of nodes and edges, as ranges of global ids, columns and rows.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Checks that the graph has one node type and one edge type. `what` names the feature that
    /// needs this.
    ///
    /// # Errors
    /// `Invalid`, naming `what` and the types of the graph.
    pub fn require_one_type(&self, what: &str) -> Result<()> {
        if !self.schema.is_typed() {
            return Ok(());
        }
        let types: Vec<_> = self.schema.edge_types().iter().map(|range| &*range.name).collect();
        Err(Error::invalid(format!(
            "data set `{}`: {what} takes a graph of one type of nodes and edges, found the edge \
             types {}",
            self.root.display(),
            types.join(", ")
        ))
        .hint(format!(
            "import the edges of one type on their own: `{}`",
            command("import EDGES", &[("out", "DIRECTORY")])
        )))
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> u64 {
        self.schema.num_nodes()
    }

    /// Number of columns of the CSC: one per node; with several edge types, one per pair of edge
    /// type and target.
    pub fn num_columns(&self) -> u64 {
        self.schema.num_columns()
    }

    /// Number of arcs of all types.
    pub fn num_edges(&self) -> u64 {
        self.manifest.edge_types.values().map(|edges| edges.count).sum()
    }

    /// Number of feature columns; 0 without features.
    pub fn num_features(&self) -> u64 {
        self.features().map_or(0, |features| features.row_elements())
    }

    /// Number of classes of the labels; 0 without labels.
    pub fn num_classes(&self) -> u64 {
        self.manifest.roles.classes.unwrap_or(0)
    }

    /// Whether an array exists under `key` (see [`DataSet::array`]).
    pub fn has_array(&self, key: &str) -> bool {
        self.manifest.arrays.contains_key(&full_key(key))
    }

    /// The array under `key`. A key without a slash names a node array: `x` is `nodes/node/x`.
    ///
    /// # Errors
    /// `NotFound`, listing the existing keys.
    pub fn array(&self, key: &str) -> Result<ArrayRef> {
        let key = full_key(key);
        let Some(entry) = self.manifest.arrays.get(&key) else {
            if keys::is_topology(&key) && self.has_array(keys::TRIPLES) {
                return Err(self.no_edges());
            }
            let keys = self.manifest.arrays.keys().cloned().collect();
            return Err(self.not_found(&format!("array `{key}`"), keys));
        };
        Ok(ArrayRef::new(&self.root, &key, entry))
    }

    /// The error for a data set without edges; it mentions triples for a knowledge graph.
    pub fn no_edges(&self) -> Error {
        let root = self.root.display();
        if !self.has_array(keys::TRIPLES) {
            return Error::invalid(format!("data set `{root}` has no edge type `{}`", keys::EDGE));
        }
        Error::invalid(format!("data set `{root}` holds triples, expected edges")).hint(hint!(
            "make a graph of them: `"
            {(command(&format!("import {}", shell_path(&self.root)), &[("out", &format!("{root}-graph"))]))}
            "`; " {relation} " takes one relation, else all count"
        ))
    }

    /// The node features.
    ///
    /// # Errors
    /// `NotFound` if the data set has no features.
    pub fn features(&self) -> Result<ArrayRef> {
        let key = self.manifest.roles.features.as_deref();
        self.array(key.ok_or_else(|| {
            self.not_found("features", Vec::new()).hint(hint!(
                "import with " {features = "FILE"} ", or pass `features=` a file or an array "
                "name"
            ))
        })?)
    }

    /// The node labels: classes `int64 [N]` with -1 for none, labels `float32 [N, C]`, or numbers
    /// `float64 [N]` or `[N, C]` with NaN for none.
    ///
    /// # Errors
    /// `NotFound` if the data set has no labels.
    pub fn labels(&self) -> Result<ArrayRef> {
        let key = self.manifest.roles.labels.as_deref();
        self.array(key.ok_or_else(|| {
            self.not_found("labels", Vec::new()).hint(hint!("import with " {labels = "FILE"}))
        })?)
    }

    /// Names of the splits.
    pub fn splits(&self) -> impl Iterator<Item = &str> {
        self.manifest.roles.splits.keys().map(String::as_str)
    }

    /// The node ids of a split, as an array on disk.
    ///
    /// # Errors
    /// `NotFound`, listing the existing splits.
    pub fn split(&self, name: &str) -> Result<ArrayRef> {
        let key = self.manifest.roles.splits.get(name).ok_or_else(|| {
            self.not_found(&format!("split `{name}`"), self.splits().map(str::to_owned).collect())
        })?;
        self.array(key)
    }

    /// The node ids of a split, in the imported order.
    ///
    /// # Errors
    /// As [`DataSet::split`] and [`DataSet::read_i64`].
    pub fn read_split(&self, name: &str) -> Result<Vec<i64>> {
        self.read_i64(&self.split(name)?.key)
    }

    /// The node arrays of the homogeneous graph by name, features and labels included.
    pub fn node_arrays(&self) -> Vec<(String, ArrayRef)> {
        let arrays = self.manifest.arrays.iter();
        arrays
            .filter_map(|(key, entry)| match Group::of(key) {
                Group::Node { node_type: keys::NODE, name } => {
                    Some((name.to_owned(), ArrayRef::new(&self.root, key, entry)))
                }
                _ => None,
            })
            .collect()
    }

    /// All data bytes of an array.
    ///
    /// **Cost**: reads the whole array into memory.
    ///
    /// # Errors
    /// `NotFound`; `Budget` if memory is short; a failed or short read; `Corrupt`: the checksum
    /// does not match.
    pub fn read_array(&self, key: &str) -> Result<Vec<u8>> {
        let array = self.array(key)?;
        let mut bytes = zeroed(&array, array.data_len())?;
        ArrayFile::open(array.clone())?.read(0, &mut bytes)?;
        let mut checksum = Checksum::new();
        checksum.update(&bytes);
        array.require(&checksum)?;
        Ok(bytes)
    }

    /// A whole array of `int64`.
    ///
    /// # Errors
    /// As [`DataSet::read_array`]; `Invalid` if the array has another type.
    pub fn read_i64(&self, key: &str) -> Result<Vec<i64>> {
        let array = self.array(key)?;
        if array.dtype != DType::I64 {
            return Err(Error::invalid(format!(
                "array `{}`: type {}, expected int64",
                array.key, array.dtype
            )));
        }
        let bytes = self.read_array(key)?;
        Ok(bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().expect("8"))).collect())
    }

    /// The rows `ids` of an array, in this order.
    ///
    /// **Cost**: one blocking read for each run of consecutive ids. Meant for a few rows; the
    /// pipeline reads differently.
    ///
    /// # Errors
    /// `NotFound`; `Invalid`: an id beyond the rows; `Budget`; a failed or short read.
    pub fn read_rows(&self, key: &str, ids: &[u64]) -> Result<Vec<u8>> {
        let array = self.array(key)?;
        if let Some((place, id)) = ids.iter().enumerate().find(|(_, id)| **id >= array.rows()) {
            return Err(Error::invalid(format!(
                "array `{}`: row {id} asked for (at position {place}), it has {} rows",
                array.key,
                grouped(array.rows())
            )));
        }
        let row = array.row_bytes();
        let len = row.checked_mul(ids.len() as u64).ok_or_else(|| no_memory(&array, u64::MAX))?;
        let mut bytes = zeroed(&array, len)?;
        let columns = array.row_elements();
        let file = ArrayFile::open(array)?;
        let mut done = 0;
        for run in ids.chunk_by(|a, b| a + 1 == *b) {
            let len = run.len() * row as usize;
            file.read(run[0] * columns, &mut bytes[done..done + len])?;
            done += len;
        }
        Ok(bytes)
    }

    fn not_found(&self, what: &str, there: Vec<String>) -> Error {
        let error = Error::new(
            ErrorKind::NotFound,
            format!("data set `{}` has no {what}", self.root.display()),
        );
        if there.is_empty() { error } else { error.hint(format!("it has {}", there.join(", "))) }
    }
}

fn full_key(key: &str) -> String {
    if key.contains('/') { key.to_owned() } else { keys::node_array(key) }
}

fn zeroed(array: &ArrayRef, len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reserved = usize::try_from(len).map(|len| bytes.try_reserve_exact(len));
    if !matches!(reserved, Ok(Ok(()))) {
        return Err(no_memory(array, len));
    }
    bytes.resize(len as usize, 0);
    Ok(bytes)
}

fn no_memory(array: &ArrayRef, len: u64) -> Error {
    Error::new(
        ErrorKind::Budget,
        format!("array `{}`: no memory for {} bytes", array.key, grouped(len)),
    )
}
