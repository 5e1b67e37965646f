//! Builds a layout within a memory budget.
//!
//! The order is computed with the topology in memory. Then the rows are written by rising place, in
//! parts as large as the memory allows. The rows of a part are read in the order of the array. The
//! manifest is changed last, in one step.

mod measure;
mod rows;

use std::time::Instant;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result, hint};
use outercore_format::keys::{self as format_keys, Group};
use outercore_format::{DType, NpyHeader};
use outercore_io::{Disk, Engine, EngineConfig};
use outercore_store::Topology;
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::editor::ManifestEditor;
use outercore_store::npy::ArrayWriter;
use outercore_store::resident::ResidentTopology;
use outercore_store::verified;
use serde::Serialize;

pub(crate) use self::measure::CHUNK;
use self::measure::measure;
pub(crate) use self::rows::Steps;
use self::rows::{RowWriter, STAGING, Source};
use crate::OnProgress;
use crate::header::LayoutHeader;
use crate::keys::{self, Part};
use crate::order::{Method, Order};
use crate::{Layout, Places, Precision, Scales};

/// Buffers of readers and writers: read buffers, and one chunk each for reading, converting and
/// writing.
const BUFFERS: Bytes = Bytes(STAGING.0 + (4 << 20));

/// Least bytes of rows that are written together.
const LEAST_ROWS: Bytes = Bytes::mib(1);

/// Options of a layout build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The array, by key; the features of the data set by default.
    pub array: Option<String>,
    /// Method for ordering the rows.
    pub method: Method,
    /// Precision of the rows.
    pub precision: Precision,
    /// Memory budget of the build.
    pub memory: Bytes,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            array: None,
            method: Method::Glist,
            precision: Precision::Exact,
            memory: Bytes::gib(1),
        }
    }
}

/// The summary of a built or existing layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildSummary {
    /// Key of the array.
    pub array: String,
    /// Order of its rows.
    pub order: Order,
    /// Precision of the rows.
    pub precision: Precision,
    /// Nodes of the graph.
    pub nodes: u64,
    /// Number of values per row.
    pub columns: u64,
    /// Bytes of the rows of the array.
    pub input: Bytes,
    /// Bytes of the rows of the layout.
    pub bytes: Bytes,
    /// Memory that a server needs for the table of places.
    pub places: Bytes,
    /// Bytes written; 0 if the layout already existed.
    pub written: Bytes,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// Builds a layout of an array. An existing layout that matches the options is left unchanged; any
/// other layout of the same precision is replaced.
///
/// The bytes of the layout depend only on the array, the topology, the order and the precision.
///
/// **Cost** an order reads the topology into memory, see [`Order::nodes`]. `int8` reads the array
/// once more; an exact layout reads it once more to compare its checksum. In the order of the ids,
/// rows are read once. In another order, the array is read at most once for each part that fits
/// into memory. Waits while another process writes to the data set.
///
/// # Errors
/// `Budget`, with the least sufficient budget. `NotFound`: no such array. `Invalid`: an array
/// without one row per node, a value that is not finite (`int8`), a layout that would equal the
/// array. `Unsupported`: 2^32 nodes in another order. `Corrupt`: the bytes differ from the written
/// ones. Errors of the disk and of `on_progress`; the data set then stays unchanged.
pub fn build(
    disk: &dyn Disk,
    data_set: &DataSet,
    options: &BuildOptions,
    on_progress: OnProgress<'_>,
) -> Result<BuildSummary> {
    let started = Instant::now();
    let root = data_set.root();
    let context = || format!("layout in `{}`", root.display());
    let waits = &mut || on_progress("waiting for another writer", 0, 0, "");
    let editor = ManifestEditor::wait(disk, root, waits)?;
    // Another process that wrote to the data set may have built the layout.
    let data_set = &editor.data_set()?;
    if options.method != Method::None {
        data_set.require_one_type("a layout in another order")?;
    }
    let array = array_of(data_set, options).with_context(context)?;
    let order = options.method.order(data_set.num_nodes());
    let mut build = Build { disk, data_set, array, order, options, editor, written: 0 };
    let mut summary = match build.is_there(on_progress).with_context(context)? {
        true => build.summary(),
        false => {
            let summary = build.write(on_progress).with_context(context)?;
            build.editor.commit().with_context(context)?;
            summary
        }
    };
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(summary)
}

/// Removes the layouts of an array, of every precision; returns their number.
///
/// # Errors
/// `NotFound`: no such array. Errors of the disk.
pub fn remove(disk: &dyn Disk, data_set: &DataSet, array: Option<&str>) -> Result<u64> {
    let key = key_of(data_set, array)?;
    let mut editor = ManifestEditor::open(disk, data_set.root())?;
    let arrays = &mut editor.manifest_mut().arrays;
    let there =
        |precision: &Precision| arrays.contains_key(&keys::key(&key, *precision, Part::Header));
    let count = Precision::ALL.iter().filter(|precision| there(precision)).count() as u64;
    for precision in Precision::ALL {
        Part::ALL
            .into_iter()
            .for_each(|part| drop(arrays.remove(&keys::key(&key, precision, part))));
    }
    editor.commit()?;
    Ok(count)
}

/// Whether a file is missing, truncated, or damaged.
fn is_of_file(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
}

/// The key of the given array, or of the features.
fn key_of(data_set: &DataSet, array: Option<&str>) -> Result<String> {
    Ok(match array {
        Some(key) => data_set.array(key)?.key,
        None => data_set.features()?.key,
    })
}

/// The array; it must have one row per node.
fn array_of(data_set: &DataSet, options: &BuildOptions) -> Result<ArrayRef> {
    let array = data_set.array(&key_of(data_set, options.array.as_deref())?)?;
    let is_node_array = matches!(Group::of(&array.key), Group::Node { .. });
    if !is_node_array || array.shape.len() > 2 || array.row_elements() == 0 {
        return Err(Error::invalid(format!(
            "array `{}` of shape {:?}, expected a matrix with a row for each node",
            array.key, array.shape
        )));
    }
    if options.method == Method::None && options.precision == Precision::Exact {
        let text =
            format!("a layout of `{}` without an order would be the array itself", array.key);
        return Err(Error::invalid(text).hint("choose an order, or `int8`"));
    }
    Ok(array)
}

struct Build<'a> {
    disk: &'a dyn Disk,
    data_set: &'a DataSet,
    array: ArrayRef,
    order: Order,
    options: &'a BuildOptions,
    editor: ManifestEditor<'a>,
    written: u64,
}

impl Build<'_> {
    /// Whether an undamaged layout with these options exists, and a new build would give the same
    /// bytes.
    fn is_there(&self, on_progress: OnProgress<'_>) -> Result<bool> {
        // A layout that cannot be opened is replaced.
        let Ok(Some(layout)) = Layout::open(self.data_set, &self.array.key, self.options.precision)
        else {
            return Ok(false);
        };
        let header = layout.header();
        if header.order != self.order || header.made_of != self.made_of()? {
            return Ok(false);
        }
        // A check of a damaged layout suggests this command, so verify the files before keeping
        // them.
        for array in [Some(layout.rows()), layout.places()].into_iter().flatten() {
            let on_bytes = &mut |done, total| on_progress("verifying", done, total, "bytes");
            match verified::verify(array.clone(), on_bytes) {
                Ok(()) => {}
                Err(error) if is_of_file(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Checksums of the arrays from which order and scales are computed.
    fn made_of(&self) -> Result<Vec<String>> {
        let mut checksums = Vec::new();
        if self.options.precision == Precision::Int8 {
            checksums.push(self.array.checksum.clone());
        }
        if self.order != Order::None {
            for key in [format_keys::OFFSETS, format_keys::SOURCES] {
                checksums.push(self.data_set.array(key)?.checksum);
            }
        }
        Ok(checksums)
    }

    fn write(&mut self, on_progress: OnProgress<'_>) -> Result<BuildSummary> {
        let nodes = self.nodes(on_progress)?;
        for part in Part::ALL {
            let key = self.key(part);
            self.editor.manifest_mut().arrays.remove(&key);
        }
        if let Some(nodes) = &nodes {
            self.places(nodes)?;
        }
        let scales = match self.options.precision {
            Precision::Exact => {
                // Rows are read by place, in an order that does not allow computing a checksum.
                verified::verify(self.array.clone(), &mut |done, total| {
                    on_progress("verifying", done, total, "bytes")
                })?;
                None
            }
            Precision::Int8 => {
                let scales = measure(&self.array, on_progress)?;
                self.floats(Part::Scale, scales.scale())?;
                self.floats(Part::Offset, scales.offset())?;
                Some(scales)
            }
        };
        self.rows(nodes.as_deref(), scales.as_ref(), on_progress)?;
        let made_of = self.made_of()?;
        let header = LayoutHeader::new(&self.array, self.options.precision, self.order, made_of);
        let json = header.to_json()?;
        self.array(Part::Header, DType::U8, &[], |_, writer| writer.write(&json))?;
        Ok(self.summary())
    }

    /// The nodes by place; `None` for the order of the ids.
    fn nodes(&self, on_progress: OnProgress<'_>) -> Result<Option<Vec<u32>>> {
        if self.order == Order::None {
            self.require(self.least_for_rows(0))?;
            return Ok(None);
        }
        let (nodes, edges) = (self.data_set.num_nodes(), self.data_set.num_edges());
        let sources = self.data_set.array(format_keys::SOURCES)?.data_len();
        let topology = ResidentTopology::offsets_memory(nodes, edges).0 + sources;
        // The topology is freed before rows are written.
        self.require(self.least_for_rows(nodes).max(BUFFERS.0 + topology))?;
        let reading = EngineConfig { staging: STAGING, ..EngineConfig::default() };
        let mut engine = Engine::open(reading)?;
        on_progress("reading the topology", 0, sources, "bytes")?;
        let resident = ResidentTopology::load(self.data_set, &mut engine, false)?;
        drop(engine);
        let taken = BUFFERS.0 + resident.memory().0;
        let room = Bytes(self.options.memory.0.saturating_sub(taken));
        let ordered = self.order.nodes(&resident as &dyn Topology, room, on_progress);
        ordered.map_err(|error| match error.needed() {
            Some(needed) => self.too_small(taken + needed.0),
            None => error,
        })
    }

    /// Memory for writing rows with a table of `ordered` nodes.
    fn least_for_rows(&self, ordered: u64) -> u64 {
        // For a while, both the order and the table of places computed from it are in memory.
        BUFFERS.0
            + LEAST_ROWS.0.max(rows::slot_bytes(&self.array))
            + 2 * Places::memory_of(ordered).0
    }

    fn require(&self, least: u64) -> Result<()> {
        if least <= self.options.memory.0 { Ok(()) } else { Err(self.too_small(least)) }
    }

    fn too_small(&self, least: u64) -> Error {
        let least = Bytes(least).readable();
        let memory = self.options.memory;
        let text = format!("a budget of {memory} is too small; the least that works is {least}");
        Error::new(ErrorKind::Budget, text).needs(least).hint(hint!("raise " {memory}))
    }

    fn key(&self, part: Part) -> String {
        keys::key(&self.array.key, self.options.precision, part)
    }

    /// Writes a part of the layout.
    fn array(
        &mut self,
        part: Part,
        dtype: DType,
        row_shape: &[u64],
        content: impl FnOnce(&Self, &mut ArrayWriter) -> Result<()>,
    ) -> Result<()> {
        let key = self.key(part);
        let file = self.editor.claim_file(&key)?;
        let root = self.data_set.root();
        let mut writer = ArrayWriter::create(self.disk, root, &file, dtype, row_shape)?;
        content(self, &mut writer).with_context(|| format!("array `{key}`"))?;
        let entry = writer.finish()?;
        self.written += NpyHeader::encode(dtype, &entry.shape).len() as u64 + entry.data_len();
        self.editor.insert(&key, entry);
        Ok(())
    }

    fn places(&mut self, nodes: &[u32]) -> Result<()> {
        let mut places = vec![0u32; nodes.len()];
        for (place, &node) in (0..).zip(nodes) {
            places[node as usize] = place;
        }
        self.array(Part::Places, DType::U32, &[], |_, writer| writer.write_slice(&places))
    }

    fn floats(&mut self, part: Part, values: &[f32]) -> Result<()> {
        self.array(part, DType::F32, &[], |_, writer| writer.write_slice(values))
    }

    fn rows(
        &mut self,
        nodes: Option<&[u32]>,
        scales: Option<&Scales>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let dtype = if scales.is_some() { DType::I8 } else { self.array.dtype };
        let table = nodes.map_or(0, |nodes| size_of_val(nodes) as u64);
        let room = Bytes(self.options.memory.0.saturating_sub(BUFFERS.0 + table)).max(LEAST_ROWS);
        let row_shape = self.array.shape[1..].to_vec();
        self.array(Part::Rows, dtype, &row_shape, |build, writer| {
            let mut writer = RowWriter::new(writer, &build.array, scales);
            let source = Source { root: build.data_set.root(), array: &build.array };
            match nodes {
                None => source.in_order(&mut writer, on_progress),
                Some(nodes) => source.by_place(nodes, room, &mut writer, on_progress),
            }
        })
    }

    fn summary(&self) -> BuildSummary {
        let Self { array, order, options, .. } = self;
        let (rows, columns) = (array.rows(), array.row_elements());
        let has_places = *order != Order::None;
        BuildSummary {
            array: array.key.clone(),
            order: *order,
            precision: options.precision,
            nodes: rows,
            columns,
            input: Bytes(array.data_len()),
            bytes: match options.precision {
                Precision::Exact => Bytes(array.data_len()),
                Precision::Int8 => Bytes(rows * columns),
            },
            places: if has_places { Places::memory_of(rows) } else { Bytes(0) },
            written: Bytes(self.written),
            seconds: 0.0,
        }
    }
}
