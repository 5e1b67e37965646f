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

/// Options of an import of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphImportOptions {
    /// Options of the edges.
    pub edges: EdgeImportOptions,
    /// Types of nodes and edges, if there are several.
    pub types: Option<GraphTypes>,
    /// The id of the first node in the input, 0 or 1, for the manifest. Stored ids start at 0.
    pub first_id: u64,
    /// Whether to replace an existing data set once the new one is complete, and to drop an
    /// unfinished import of other input.
    pub overwrite: bool,
    /// Provenance to record in the manifest.
    pub provenance: Provenance,
}

/// Imports a whole data set: the edges first, then arrays, then the manifest, which commits it.
///
/// To resume an interrupted import, start it again in the same way. Completed arrays are not read
/// again. Until [`GraphImport::commit`] there is no data set, or the previous data set stays
/// complete.
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
    /// Arrays by key, including arrays of an earlier run that this run has not yet given.
    records: BTreeMap<String, ArrayRecord>,
    provenance: Provenance,
}

/// A durable array and its input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayRecord {
    input: String,
    spec: String,
    entry: ArrayEntry,
    summary: ArraySummary,
}

impl GraphImport {
    /// Starts an import into the directory `root`, or resumes the interrupted import there.
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

    /// Ends the import because the caller found a fault in the input and reports it.
    ///
    /// Complete parts are kept for an import of the same edges; an import of other edges replaces
    /// them.
    pub fn end_refused(mut self) {
        self.edges.end_refused();
    }

    /// The import of the edges; give all edges before [`GraphImport::finish_edges`].
    pub fn edges(&mut self) -> &mut EdgeImport {
        &mut self.edges
    }

    /// Starts the edges of a type, by its name in keys. Types must be given in the order of their
    /// names.
    ///
    /// # Errors
    /// `NotFound`: no such type.
    pub fn begin_edge_type(&mut self, name: &str) -> Result<()> {
        self.types()?.begin(name)
    }

    /// Adds edges. In a graph with several types, they belong to the current edge type, and ids
    /// count within the types of their ends.
    ///
    /// # Errors
    /// As [`EdgeImport::push`]; `Invalid` for an id beyond the nodes of its type, with its row.
    pub fn push_edges(&mut self, sources: &[i64], targets: &[i64]) -> Result<()> {
        match &mut self.types {
            None => self.edges.push(sources, targets),
            Some(types) => {
                let pairs = types.pairs(sources, targets);
                match pairs {
                    Ok(pairs) => self.edges.push_pairs(pairs),
                    // Treat the directory as after any refused edge.
                    Err(error) => Err(self.edges.refused(error)),
                }
            }
        }
    }

    /// Number of nodes of a type.
    ///
    /// # Errors
    /// `NotFound`: no such type.
    pub fn nodes_of(&mut self, node_type: &str) -> Result<u64> {
        self.types()?.nodes_of(node_type)
    }

    /// Number of edges so far of an edge type.
    ///
    /// # Errors
    /// `NotFound`: no such type.
    pub fn rows_of(&mut self, edge_type: &str) -> Result<u64> {
        self.types()?.rows_of(edge_type)
    }

    fn types(&mut self) -> Result<&mut TypedEdges> {
        self.types.as_mut().ok_or_else(|| Error::internal("a graph of one type has no others"))
    }

    /// Builds the CSC, which determines the number of nodes.
    ///
    /// # Errors
    /// As [`EdgeImport::finish`].
    pub fn finish_edges(&mut self, on_progress: OnProgress<'_>) -> Result<&EdgeArtifacts> {
        let artifacts = self.edges.finish(on_progress)?;
        Ok(self.artifacts.insert(artifacts))
    }

    /// Reuses the array of an earlier run, if it was made from the same `input`. Returns whether it
    /// did.
    ///
    /// # Errors
    /// `Invalid`: the edges are not finished, or the array was already given.
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

    /// A builder for an array of the data set; pass it to [`GraphImport::add`] when it has all
    /// rows.
    ///
    /// # Errors
    /// `Invalid`: the data set already has an array under this key. As [`ArrayBuilder::create`].
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

    /// Completes an array made from `input`, and records that it is durable.
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

    /// Registers a `.npy` file in place.
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

    /// Writes the manifest, which commits the data set.
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

    /// File name of an array in the new data set.
    fn file_of(&mut self, spec: &ArraySpec) -> Result<String> {
        let key = spec.key();
        let destination = self.edges.destination();
        destination.claim(&[&key])?;
        Ok(destination.files()[&key].clone())
    }

    /// Makes the name of the array durable and records the array.
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

/// Refuses options that have no meaning for edges with types.
fn require_plain(options: &EdgeImportOptions) -> Result<()> {
    if options.undirected || options.self_loops != SelfLoops::Keep || options.num_nodes.is_some() {
        return Err(Error::invalid(
            "edges of several types are directed, keep their loops, and have as many nodes as their \
             tables say",
        ));
    }
    Ok(())
}

/// Text with everything in a specification that affects the stored array.
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
        // An unreadable journal only costs time: the arrays are read again.
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| format!("journal of arrays `{}`", path.display())),
    }
}
