use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc as Shared;
use std::time::{SystemTime, UNIX_EPOCH};

use outercore_core::{Context, Error, Result};
use outercore_format::{ArrayEntry, IMPORT_DIRECTORY, Manifest, Provenance, keys, utc_timestamp};
use outercore_io::Disk;
use serde::{Deserialize, Serialize};

use super::artifacts::EdgeArtifacts;
use super::edges::EdgeImport;
use super::input_file::InputFile;
use super::options::{EdgeImportOptions, SelfLoops};
use super::progress::{OnProgress, Phase, Progress, Unit};
use super::typed::{GraphTypes, TypedEdges};
use crate::arrays::{
    ArrayBuilder, ArraySpec, ArraySummary, ImportedArray, import_npy, register_npy,
};
use crate::dataset::{ArrayFile, ArrayRef};
use crate::destination::Request;

/// How a data set is made.
#[derive(Clone, Debug, Default)]
pub struct GraphImportOptions {
    /// How the edges become a graph.
    pub edges: EdgeImportOptions,
    /// The types of nodes and edges, where there are several.
    pub types: Option<GraphTypes>,
    /// What the input calls node 0, 0 or 1, for the manifest; ids are given from 0 on.
    pub first_id: u64,
    /// Whether to replace a data set that is in the directory, once the new one is whole, and to
    /// drop an unfinished import of something else.
    pub overwrite: bool,
    /// What to note in the manifest.
    pub provenance: Provenance,
}

/// Makes a whole data set: edges first, then arrays, then the manifest that makes it one.
///
/// An import that was stopped goes on when it is begun again in the same way; arrays that were
/// complete are not taken again. Until [`GraphImport::commit`] there is no data set, or the one
/// that is to be replaced, whole.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use outercore_format::DType;
/// use outercore_io::RealDisk;
/// use outercore_store::arrays::{ArraySpec, Target};
/// use outercore_store::dataset::DataSet;
/// use outercore_store::import::{GraphImport, GraphImportOptions};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path().join("graph");
/// let options = GraphImportOptions::default();
/// let mut import = GraphImport::begin(Arc::new(RealDisk), &root, options, "example")?;
/// import.edges().push(&[0, 1], &[1, 2])?;
/// let nodes = import.finish_edges(&mut |_| Ok(()))?.num_nodes;
/// let labels = ArraySpec::new(Target::Labels, nodes);
/// if !import.reuse(&labels, "labels of the example")? {
///     let mut builder = import.builder(&labels, DType::U8, &[])?;
///     builder.push_rows(&[0, 1, 1], 3)?;
///     import.add(builder, "labels of the example")?;
/// }
/// import.commit()?;
/// assert_eq!(DataSet::open(&root)?.num_edges(), 2);
/// # Ok(())
/// # }
/// ```
pub struct GraphImport {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    edges: EdgeImport,
    types: Option<TypedEdges>,
    first_id: u64,
    artifacts: Option<EdgeArtifacts>,
    arrays: Vec<ImportedArray>,
    /// By key; also those that an earlier run completed and this one has not asked for.
    records: BTreeMap<String, ArrayRecord>,
    provenance: Provenance,
}

/// An array that is durable, and what it was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayRecord {
    input: String,
    spec: String,
    entry: ArrayEntry,
    summary: ArraySummary,
}

impl GraphImport {
    /// Begins an import into the directory `root`, or goes on with the one that was stopped there.
    ///
    /// # Errors
    /// As [`EdgeImport::new`].
    pub fn begin(
        disk: Shared<dyn Disk>,
        root: &Path,
        options: GraphImportOptions,
        fingerprint: &str,
    ) -> Result<Self> {
        let request = Request {
            overwrite: options.overwrite,
            command: &options.provenance.command,
            inputs: &options.provenance.inputs,
        };
        let types = options.types.as_ref().map(TypedEdges::new).transpose()?;
        let mut of_edges = options.edges;
        if let Some(types) = &types {
            require_plain(&of_edges)?;
            of_edges.num_nodes = Some(types.num_columns());
            of_edges.num_sources = Some(types.num_nodes());
        }
        let edges =
            EdgeImport::requested(Shared::clone(&disk), root, of_edges, fingerprint, request)?;
        let records = load_records(root)?;
        Ok(Self {
            disk,
            root: root.to_owned(),
            edges,
            types,
            first_id: options.first_id,
            artifacts: None,
            arrays: Vec::new(),
            records,
            provenance: options.provenance,
        })
    }

    /// Ends the import for a fault of the input that its caller has found and reports by itself.
    ///
    /// What is worth keeping stays for an import of the same edges; other edges replace it.
    pub fn end_refused(mut self) {
        self.edges.end_refused();
    }

    /// The edges, to be given before [`GraphImport::finish_edges`].
    pub fn edges(&mut self) -> &mut EdgeImport {
        &mut self.edges
    }

    /// Begins the edges of a type, by its name in keys; types come in the order of their names.
    ///
    /// # Errors
    /// `NotFound`: no such type.
    pub fn begin_edge_type(&mut self, name: &str) -> Result<()> {
        self.types()?.begin(name)
    }

    /// Takes edges: of a graph of several types those of the type under way, by ids within the types
    /// of their ends.
    ///
    /// # Errors
    /// As [`EdgeImport::push`]; `Invalid` for an id that its type does not have, named with its row.
    pub fn push_edges(&mut self, sources: &[i64], targets: &[i64]) -> Result<()> {
        match &mut self.types {
            None => self.edges.push(sources, targets),
            Some(types) => {
                let pairs = types.pairs(sources, targets);
                match pairs {
                    Ok(pairs) => self.edges.push_pairs(pairs),
                    // The directory is left as a refused edge leaves it.
                    Err(error) => Err(self.edges.refused(error)),
                }
            }
        }
    }

    /// Nodes of a type.
    ///
    /// # Errors
    /// `NotFound`: no such type.
    pub fn nodes_of(&mut self, node_type: &str) -> Result<u64> {
        self.types()?.nodes_of(node_type)
    }

    /// Rows taken of an edge type.
    ///
    /// # Errors
    /// `NotFound`: no such type.
    pub fn rows_of(&mut self, edge_type: &str) -> Result<u64> {
        self.types()?.rows_of(edge_type)
    }

    fn types(&mut self) -> Result<&mut TypedEdges> {
        self.types.as_mut().ok_or_else(|| Error::internal("a graph of one type has no others"))
    }

    /// Builds the CSC, which tells how many nodes there are.
    ///
    /// # Errors
    /// As [`EdgeImport::finish`].
    pub fn finish_edges(&mut self, on_progress: OnProgress<'_>) -> Result<&EdgeArtifacts> {
        let artifacts = self.edges.finish(on_progress)?;
        Ok(self.artifacts.insert(artifacts))
    }

    /// Takes the array as an earlier run left it, if it was made of the same `input`; says whether
    /// it was.
    ///
    /// # Errors
    /// `Invalid`: the edges are not finished, or the array is given twice.
    pub fn reuse(&mut self, spec: &ArraySpec, input: &str) -> Result<bool> {
        self.artifacts()?;
        let key = spec.key();
        self.require_new(&key)?;
        let described = describe(spec);
        let known = self.records.get(&key);
        let Some(record) = known.filter(|r| r.input == input && r.spec == described) else {
            return Ok(false);
        };
        if !record.entry.external {
            let file = std::fs::metadata(self.root.join(&record.entry.file));
            if file.map_or(0, |file| file.len()) != record.entry.file_len() {
                return Ok(false);
            }
        }
        self.arrays.push(ImportedArray {
            target: spec.target.clone(),
            key,
            entry: record.entry.clone(),
            summary: record.summary,
            given: spec.given.clone(),
            times: spec.times.clone(),
        });
        Ok(true)
    }

    /// A builder for an array of the data set; hand it to [`GraphImport::add`] when it is full.
    ///
    /// # Errors
    /// `Invalid`: the data set has an array of this key. As [`ArrayBuilder::create`].
    pub fn builder(
        &mut self,
        spec: &ArraySpec,
        dtype: outercore_format::DType,
        row_shape: &[u64],
    ) -> Result<ArrayBuilder> {
        self.require_new(&spec.key())?;
        let file = self.file_of(spec)?;
        ArrayBuilder::create(&*self.disk, &self.root, &file, spec.clone(), dtype, row_shape)
    }

    /// Completes an array, made of `input`, and notes that it is durable.
    ///
    /// # Errors
    /// As [`ArrayBuilder::finish`].
    pub fn add(&mut self, builder: ArrayBuilder, input: &str) -> Result<ArraySummary> {
        let spec = builder.spec().clone();
        let array = builder.finish(&*self.disk)?;
        self.enter(&spec, array, input)
    }

    /// Copies a `.npy` file into the data set.
    ///
    /// # Errors
    /// As [`import_npy`].
    pub fn array_from_npy(
        &mut self,
        spec: &ArraySpec,
        source: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<ArraySummary> {
        self.edges.destination().refuse_inside(source)?;
        let input = format!("copy of {:?}", InputFile::of(source)?);
        if self.reuse(spec, &input)? {
            return self.last_summary();
        }
        let file = self.file_of(spec)?;
        let array = import_npy(
            &*self.disk,
            &self.root,
            &file,
            spec.clone(),
            source,
            &mut in_bytes(on_progress),
        )?;
        self.enter(spec, array, &input)
    }

    /// Registers a `.npy` file where it is.
    ///
    /// # Errors
    /// As [`register_npy`].
    pub fn array_in_place(
        &mut self,
        spec: &ArraySpec,
        source: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<ArraySummary> {
        self.edges.destination().refuse_inside(source)?;
        let input = format!("place of {:?}", InputFile::of(source)?);
        if self.reuse(spec, &input)? {
            return self.last_summary();
        }
        let array = register_npy(spec.clone(), source, &mut in_bytes(on_progress))?;
        self.enter(spec, array, &input)
    }

    /// Writes the manifest: from here on there is a data set.
    ///
    /// # Errors
    /// `Invalid`: the edges are not finished. As [`crate::editor::commit`].
    pub fn commit(mut self) -> Result<Manifest> {
        let artifacts = self.artifacts()?;
        let (nodes, edges) = (artifacts.num_nodes, artifacts.num_edges);
        let mut manifest = Manifest::homogeneous(nodes, edges, artifacts.undirected);
        manifest.node_types.entry(keys::NODE.to_owned()).or_default().first_id = self.first_id;
        manifest.edge_types.insert(keys::EDGE.to_owned(), artifacts.edge_type());
        manifest.arrays.extend(artifacts.arrays.clone());
        if let Some(types) = &self.types {
            let offsets = ArrayRef::new(&self.root, keys::OFFSETS, &manifest.arrays[keys::OFFSETS]);
            let offsets = ArrayFile::open(offsets)?;
            let offset = |column: u64| -> Result<u64> {
                let mut bytes = [0; 8];
                offsets.read(column, &mut bytes)?;
                Ok(u64::from_le_bytes(bytes))
            };
            (manifest.node_types, manifest.edge_types) =
                types.in_manifest(|start, end| Ok(offset(end)? - offset(start)?))?;
            manifest.version = manifest.needed_version();
        }
        for array in &self.arrays {
            array.add_to(&mut manifest);
        }
        manifest.provenance = self.provenance;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        manifest.created = utc_timestamp(now);
        self.edges.destination().commit(&manifest)?;
        Ok(manifest)
    }

    fn artifacts(&self) -> Result<&EdgeArtifacts> {
        let missing = || Error::invalid("the edges are not finished: arrays follow them");
        self.artifacts.as_ref().ok_or_else(missing)
    }

    fn require_new(&self, key: &str) -> Result<()> {
        if self.arrays.iter().any(|array| array.key == key) {
            return Err(Error::invalid(format!("array `{key}` is given twice"))
                .hint("call one of them otherwise, or leave it out"));
        }
        Ok(())
    }

    fn last_summary(&self) -> Result<ArraySummary> {
        let last = self.arrays.last().map(|array| array.summary);
        last.ok_or_else(|| Error::internal("no array was added"))
    }

    /// The file of an array in the new data set.
    fn file_of(&mut self, spec: &ArraySpec) -> Result<String> {
        let key = spec.key();
        let destination = self.edges.destination();
        destination.claim(&[&key])?;
        Ok(destination.files()[&key].clone())
    }

    /// Makes the array's name durable and notes it.
    fn enter(
        &mut self,
        spec: &ArraySpec,
        array: ImportedArray,
        input: &str,
    ) -> Result<ArraySummary> {
        if !array.entry.external {
            let above = Path::new(&array.entry.file).ancestors().skip(1);
            for directory in above {
                self.disk.sync_dir(&self.root.join(directory))?;
            }
        }
        let record = ArrayRecord {
            input: input.to_owned(),
            spec: describe(spec),
            entry: array.entry.clone(),
            summary: array.summary,
        };
        self.records.insert(array.key.clone(), record);
        let text = serde_json::to_vec(&self.records)
            .map_err(|error| Error::internal(format!("journal of arrays: {error}")))?;
        self.disk.replace(&records_path(&self.root), &text)?;
        let summary = array.summary;
        self.arrays.push(array);
        Ok(summary)
    }
}

/// Errors: options that mean nothing where edges have types.
fn require_plain(options: &EdgeImportOptions) -> Result<()> {
    if options.undirected || options.self_loops != SelfLoops::Keep || options.num_nodes.is_some() {
        return Err(Error::invalid(
            "edges of several types are directed, keep their loops, and have as many nodes as their \
             tables say",
        ));
    }
    Ok(())
}

/// All of a specification that changes what is stored.
fn describe(spec: &ArraySpec) -> String {
    format!("{spec:?}")
}

fn in_bytes(on_progress: OnProgress<'_>) -> impl FnMut(u64, u64) -> Result<()> {
    |done, total| on_progress(Progress { phase: Phase::Array, done, total, unit: Unit::Bytes })
}

fn records_path(root: &Path) -> PathBuf {
    root.join(IMPORT_DIRECTORY).join("arrays.json")
}

fn load_records(root: &Path) -> Result<BTreeMap<String, ArrayRecord>> {
    let path = records_path(root);
    match std::fs::read(&path) {
        // A journal that cannot be read costs time, no more: the arrays are taken again.
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| format!("journal of arrays `{}`", path.display())),
    }
}
