//! Folding: writes a snapshot as new arrays and commits them to the data set.

use std::borrow::Cow;
use std::path::Path;

use outercore_core::{Context, Error, Result};
use outercore_format::keys::{EDGE, EDGE_IDS, Group, NODE, OFFSETS, SOURCES};
use outercore_format::{DType, Live};
use outercore_io::{Disk, FileLock};
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::delta::{Delta, GRAPHS, List, REMOVED, removed_nodes};
use outercore_store::editor::ManifestEditor;
use outercore_store::npy::ArrayWriter;
use outercore_store::verified::VerifiedReader;

/// Bytes copied at a time.
const COPY: u64 = 1 << 20;

/// Nodes whose lists are written together.
const NODES: u64 = 64 << 10;

/// Called often during long work; an error ends the work.
pub type KeepGoing<'a> = &'a dyn Fn() -> Result<()>;

/// Writes the arrays of `data_set` with the changes of `delta`, and commits them.
///
/// After a crash at any point, the data set has either the previous content or the content with all
/// changes. Unchanged arrays keep their files.
///
/// **Cost** reads and writes the topology, and each array with a changed row. Each is read once
/// completely; the offsets are read three times. If nodes were added, this includes all node
/// arrays.
///
/// # Errors
/// Failed reads and writes. `Invalid` if another process has changed the data set. `Corrupt` if the
/// bytes of a rewritten array differ from the written ones: otherwise damage would get a valid
/// checksum.
pub(crate) fn fold(
    disk: &dyn Disk,
    data_set: &DataSet,
    delta: &Delta,
    lock: &FileLock,
    keep_going: KeepGoing<'_>,
) -> Result<()> {
    let delta = &delta.since(data_set)?;
    let editor = ManifestEditor::open_held(disk, data_set.root(), lock)?;
    if editor.manifest() != data_set.manifest() {
        let text = format!("data set `{}`: changed by somebody else", data_set.root().display());
        return Err(Error::invalid(text).hint("start again"));
    }
    let mut fold = Fold { disk, data_set, delta, editor, keep_going };
    fold.topology()?;
    fold.node_arrays()?;
    fold.edge_arrays()?;
    fold.graph_arrays()?;
    fold.removed()?;
    fold.counts();
    fold.editor.commit()
}

/// A fold in progress.
pub(crate) struct Fold<'a> {
    disk: &'a dyn Disk,
    pub data_set: &'a DataSet,
    pub delta: &'a Delta,
    pub editor: ManifestEditor<'a>,
    keep_going: KeepGoing<'a>,
}

/// Finds the bytes of a row that is new or changed.
pub(crate) type RowOf<'f, 'r> = &'f dyn Fn(u64) -> Result<Option<Cow<'r, [u8]>>>;

impl Fold<'_> {
    /// Writes an array that replaces the one under `key`.
    pub fn write(
        &mut self,
        key: &str,
        dtype: DType,
        row_shape: &[u64],
        rows: impl FnOnce(&Self, &mut ArrayWriter) -> Result<()>,
    ) -> Result<()> {
        let file = self.editor.claim_file_from(key, self.delta.lsn())?;
        let root = self.data_set.root();
        let mut writer = ArrayWriter::create(self.disk, root, &file, dtype, row_shape)?;
        rows(self, &mut writer).with_context(|| format!("array `{key}`"))?;
        self.editor.insert(key, writer.finish()?);
        Ok(())
    }

    /// Returns an error if the work should stop; called often during long work.
    pub fn look(&self) -> Result<()> {
        (self.keep_going)()
    }

    fn topology(&mut self) -> Result<()> {
        if self.delta.keeps_topology() {
            return Ok(());
        }
        let changed = self.delta.changed_lists();
        let base = Base::open(self.data_set)?;
        self.write(OFFSETS, DType::U64, &[], |fold, writer| fold.offsets(&base, &changed, writer))?;
        let sources = base.sources.dtype;
        self.write(SOURCES, sources, &[], |fold, writer| {
            fold.elements(&base, &changed, Column::Sources, sources, writer)
        })?;
        let wide = self.delta.edge_bound() > 1 << 32;
        let ids = if wide { DType::U64 } else { DType::U32 };
        self.write(EDGE_IDS, ids, &[], |fold, writer| {
            fold.elements(&base, &changed, Column::Ids, ids, writer)
        })?;
        // The grid was built from the old topology.
        let grid = |key: &String| key.starts_with("grid/");
        self.editor.manifest_mut().arrays.retain(|key, _| !grid(key));
        Ok(())
    }

    fn offsets(&self, base: &Base, changed: &[u64], writer: &mut ArrayWriter) -> Result<()> {
        let mut end = 0u64;
        writer.write_slice(&[end])?;
        self.for_each_node(base, changed, &mut |node, place| {
            end += match place {
                Place::Array { degree } => degree,
                Place::Delta { .. } => self.delta.list(node).map_or(0, List::len),
            };
            writer.write_slice(&[end])
        })
    }

    /// Writes the sources or ids of all edges.
    fn elements(
        &self,
        base: &Base,
        changed: &[u64],
        column: Column,
        dtype: DType,
        writer: &mut ArrayWriter,
    ) -> Result<()> {
        let mut stored = base.column(column)?;
        // Unchanged edges between two changed lists are copied together.
        let (mut start, mut end) = (0, 0);
        self.for_each_node(base, changed, &mut |node, place| {
            match place {
                Place::Array { degree } => end += degree,
                Place::Delta { next } => {
                    stored.copy((start, end), dtype, writer, self.keep_going)?;
                    (start, end) = (next, next);
                    for (source, id) in self.delta.list(node).into_iter().flat_map(List::iter) {
                        let element = if column == Column::Sources { source } else { id };
                        write_id(writer, dtype, element)?;
                    }
                }
            }
            Ok(())
        })?;
        stored.copy((start, end), dtype, writer, self.keep_going)?;
        stored.finish(self.keep_going)
    }

    /// Calls `each(node, place of its list)` for all nodes, ascending.
    fn for_each_node(
        &self,
        base: &Base,
        changed: &[u64],
        each: &mut dyn FnMut(u64, Place) -> Result<()>,
    ) -> Result<()> {
        let mut changed = changed.iter().copied().peekable();
        let mut offsets = Offsets::open(base)?;
        let mut first = 0;
        while first < base.nodes {
            (self.keep_going)()?;
            let end = (first + NODES).min(base.nodes);
            let bounds = offsets.next(end - first)?;
            for (node, bounds) in (first..).zip(bounds.windows(2)) {
                let place = match changed.next_if_eq(&node) {
                    Some(_) => Place::Delta { next: bounds[1] },
                    None => Place::Array { degree: bounds[1] - bounds[0] },
                };
                each(node, place)?;
            }
            first = end;
        }
        offsets.stored.finish(&mut |_, _| (self.keep_going)())?;
        let next = base.sources.rows();
        (base.nodes..self.delta.num_nodes()).try_for_each(|node| each(node, Place::Delta { next }))
    }

    fn node_arrays(&mut self) -> Result<()> {
        let grown = self.delta.num_nodes() > self.delta.schema().nodes;
        let keys: Vec<String> = self.delta.schema().node_arrays.keys().cloned().collect();
        for key in keys.into_iter().filter(|key| grown || self.delta.changes_rows(key)) {
            let array = self.data_set.array(&key)?;
            let changed = self.delta.changed_rows(&key);
            self.write(&key, array.dtype, &array.shape[1..], |fold, writer| {
                let row = |node| Ok(fold.delta.node_row(&key, node).map(Cow::Borrowed));
                fold.rows(&array, &changed, fold.delta.num_nodes(), &row, writer)
            })?;
            self.layouts(&key)?;
        }
        Ok(())
    }

    fn edge_arrays(&mut self) -> Result<()> {
        let schema = self.delta.schema();
        let (before, now) = (schema.edge_rows, self.delta.edge_bound());
        let keys: Vec<String> = schema.edge_arrays.keys().cloned().collect();
        for key in keys.into_iter().filter(|_| now > before) {
            let array = self.data_set.array(&key)?;
            self.write(&key, array.dtype, &array.shape[1..], |fold, writer| {
                let row = |edge| Ok(fold.delta.edge_row(&key, edge).map(Cow::Borrowed));
                fold.rows(&array, &[], now, &row, writer)
            })?;
        }
        Ok(())
    }

    /// Writes the graph of each added node, and appends the rows of new graphs.
    fn graph_arrays(&mut self) -> Result<()> {
        let Some(graphs) = self.delta.graphs() else { return Ok(()) };
        if self.delta.num_nodes() > self.delta.schema().nodes {
            let of_added: Vec<i64> = graphs.of_added().map(|graph| graph as i64).collect();
            self.write(GRAPHS, DType::I64, &[], |_, writer| writer.write_slice(&of_added))?;
        }
        let keys: Vec<String> = self.delta.schema().graph_arrays.keys().cloned().collect();
        for key in keys {
            let array = self.data_set.array(&key)?;
            if array.rows() == graphs.count() {
                continue;
            }
            self.write(&key, array.dtype, &array.shape[1..], |fold, writer| {
                let row = |graph| Ok(fold.delta.graph_row(&key, graph).map(Cow::Borrowed));
                fold.rows(&array, &[], graphs.count(), &row, writer)
            })?;
        }
        Ok(())
    }

    /// Copies an array, replaces the `changed` rows, and appends new rows up to `count`.
    pub fn rows(
        &self,
        array: &ArrayRef,
        changed: &[u64],
        count: u64,
        row: RowOf<'_, '_>,
        writer: &mut ArrayWriter,
    ) -> Result<()> {
        let mut stored = VerifiedReader::open(array.clone())?;
        let row_bytes = array.row_bytes();
        let step = (COPY / row_bytes.max(1)).max(1);
        let row = |at: u64| {
            row(at)?
                .ok_or_else(|| Error::internal(format!("row {at} of `{}` is missing", array.key)))
        };
        let mut changed = changed.iter().copied().peekable();
        let mut first = 0;
        let mut buffer = Vec::new();
        while first < array.rows() {
            (self.keep_going)()?;
            let end = (first + step).min(array.rows());
            buffer.resize(((end - first) * row_bytes) as usize, 0);
            stored.read(&mut buffer)?;
            while let Some(at) = changed.next_if(|at| *at < end) {
                let place = ((at - first) * row_bytes) as usize;
                buffer[place..place + row_bytes as usize].copy_from_slice(&row(at)?);
            }
            writer.write(&buffer)?;
            first = end;
        }
        stored.finish(&mut |_, _| (self.keep_going)())?;
        (first..count).try_for_each(|at| writer.write(&row(at)?))
    }

    /// Writes which nodes were removed, and removes them from the splits. Does the same for
    /// unregistered graphs.
    fn removed(&mut self) -> Result<()> {
        let removed = self.delta.removed();
        if removed.len() == removed_nodes(self.data_set)?.len() {
            return Ok(());
        }
        let ids: Vec<i64> = removed.iter().map(|&node| node as i64).collect();
        self.write(REMOVED, DType::I64, &[], |_, writer| writer.write_slice(&ids))?;
        let (delta, manifest) = (self.delta, self.data_set.manifest());
        for key in manifest.roles.splits.values() {
            self.keep(key, &|node| !delta.is_removed(node))?;
        }
        let is_of_graphs = |key: &&String| matches!(Group::of(key), Group::GraphSplit { .. });
        let Some(graphs) = delta.graphs() else { return Ok(()) };
        for key in manifest.arrays.keys().filter(is_of_graphs) {
            self.keep(key, &|graph| !graphs.is_unregistered(graph))?;
        }
        Ok(())
    }

    /// Rewrites a split with only the ids for which `is_kept` is true.
    fn keep(&mut self, split: &str, is_kept: &dyn Fn(u64) -> bool) -> Result<()> {
        let ids = self.data_set.read_i64(split)?;
        let kept: Vec<i64> = ids.iter().copied().filter(|&id| is_kept(id as u64)).collect();
        if kept.len() == ids.len() {
            return Ok(());
        }
        self.write(split, DType::I64, &[], |_, writer| writer.write_slice(&kept))
    }

    fn counts(&mut self) {
        let delta = self.delta;
        let manifest = self.editor.manifest_mut();
        manifest.node_types.entry(NODE.into()).or_default().count = delta.num_nodes();
        if let Some(edge) = manifest.edge_types.get_mut(EDGE) {
            edge.count = delta.num_edges();
            edge.rows = Some(delta.edge_bound());
        }
        if let Some(Live { lsn, .. }) = &mut manifest.live {
            *lsn = delta.lsn();
        }
    }
}

/// The place of a node's list.
enum Place {
    /// In the arrays, with `degree` edges.
    Array { degree: u64 },
    /// In the delta; a new node without a list has no edges.
    Delta {
        /// The start of the next node's list in the arrays.
        next: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Sources,
    Ids,
}

/// The topology on disk.
struct Base {
    nodes: u64,
    offsets: ArrayRef,
    sources: ArrayRef,
    /// `None` if each id equals its position.
    ids: Option<ArrayRef>,
}

impl Base {
    fn open(data_set: &DataSet) -> Result<Self> {
        Ok(Self {
            nodes: data_set.num_nodes(),
            offsets: data_set.array(OFFSETS)?,
            sources: data_set.array(SOURCES)?,
            ids: data_set.has_array(EDGE_IDS).then(|| data_set.array(EDGE_IDS)).transpose()?,
        })
    }

    /// Opens a column for reading it once, from its first edge to its last.
    fn column(&self, column: Column) -> Result<Stored> {
        let array = match column {
            Column::Sources => Some(&self.sources),
            Column::Ids => self.ids.as_ref(),
        };
        Ok(Stored(array.cloned().map(VerifiedReader::open).transpose()?))
    }
}

/// The offsets of the topology, read once in order.
struct Offsets {
    stored: VerifiedReader,
    edges: u64,
    /// The start of the next node's list.
    last: u64,
}

impl Offsets {
    fn open(base: &Base) -> Result<Self> {
        let mut stored = VerifiedReader::open(base.offsets.clone())?;
        let mut last = [0; 8];
        stored.read(&mut last)?;
        Ok(Self { stored, edges: base.sources.rows(), last: u64::from_le_bytes(last) })
    }

    /// The starts of the next nodes' lists, and the end of the last one.
    fn next(&mut self, nodes: u64) -> Result<Vec<u64>> {
        let first = self.stored.position() - 1;
        let mut bytes = vec![0; (nodes * 8) as usize];
        self.stored.read(&mut bytes)?;
        let read = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let bounds: Vec<u64> = std::iter::once(self.last).chain(read).collect();
        self.last = bounds.last().copied().unwrap_or(self.last);
        if bounds.windows(2).any(|pair| pair[0] > pair[1]) || self.last > self.edges {
            let text = format!("array `{OFFSETS}`: nodes {first} to {}", first + nodes);
            return Err(Error::corrupt(text).hint("run `outercore check DATASET`"));
        }
        Ok(bounds)
    }
}

/// A column of the topology; `None` if each id equals its position.
struct Stored(Option<VerifiedReader>);

impl Stored {
    /// Copies the edges at positions `start..end`, which follow those of the last call, as `dtype`.
    fn copy(
        &mut self,
        (start, end): (u64, u64),
        dtype: DType,
        writer: &mut ArrayWriter,
        keep_going: KeepGoing<'_>,
    ) -> Result<()> {
        let Some(stored) = &mut self.0 else {
            return (start..end).try_for_each(|id| write_id(writer, dtype, id));
        };
        if start == end {
            return Ok(());
        }
        stored.skip_to(start, &mut |_, _| keep_going())?;
        let size = stored.array().dtype.size() as u64;
        let mut buffer = Vec::new();
        let mut at = start;
        while at < end {
            keep_going()?;
            let edges = (COPY / size).min(end - at);
            buffer.resize((edges * size) as usize, 0);
            stored.read(&mut buffer)?;
            if stored.array().dtype == dtype {
                writer.write(&buffer)?;
            } else {
                for id in buffer.chunks_exact(size as usize) {
                    let mut wide = [0; 8];
                    wide[..id.len()].copy_from_slice(id);
                    write_id(writer, dtype, u64::from_le_bytes(wide))?;
                }
            }
            at += edges;
        }
        Ok(())
    }

    /// Compares the checksum of the whole column. This includes lists that the delta replaces,
    /// because the delta has copied their unchanged edges.
    fn finish(self, keep_going: KeepGoing<'_>) -> Result<()> {
        let Some(stored) = self.0 else { return Ok(()) };
        stored.finish(&mut |_, _| keep_going())
    }
}

/// Writes an id as `uint32` or `uint64`; it must fit.
fn write_id(writer: &mut ArrayWriter, dtype: DType, id: u64) -> Result<()> {
    match dtype {
        DType::U32 => writer.write(&(id as u32).to_le_bytes()),
        _ => writer.write(&id.to_le_bytes()),
    }
}

/// Enables updates for a data set: gives it an id and an empty log.
///
/// # Errors
/// Errors of writing; `Unsupported` as for [`Delta::new`].
pub(crate) fn enable(disk: &dyn Disk, root: &Path, lock: &FileLock, id: [u8; 16]) -> Result<()> {
    let mut editor = ManifestEditor::open_held(disk, root, lock)?;
    let manifest = editor.manifest_mut();
    manifest.live = Some(Live { id: Live::id_of(id), lsn: 0 });
    manifest.version = manifest.needed_version();
    editor.commit()
}
