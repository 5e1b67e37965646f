//! A build in progress: its passes, and the arrays that it writes.

use std::fs::File;

use outercore_core::{Context, Error, ErrorKind, Result, command, hint};
use outercore_format::{ArrayEntry, DType};
use outercore_io::Disk;
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::editor::ManifestEditor;
use outercore_store::npy::ArrayWriter;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::deal::{Layout, Sink, count, deal};
use super::degrees::{Degrees, Ranks, choose, counted};
use super::encode::{Dealt, Outputs, Written, encode_all};
use super::input::{Input, Pass};
use super::plan::Facts;
use super::record::{Record, Weight};
use super::summary::summary;
use super::weights::Weights;
use super::{BuildOptions, BuildSummary, OnProgress, TEMPORARY};
use crate::header::{
    self, BLOCKS, GridHeader, HEADER, IN_DEGREES, MAX_PARTITIONS, ORDER, OUT_DEGREES, PIECES,
    WEIGHTS, rebuild_command,
};
use crate::open::RECORD_WORDS;
use crate::order::partition_log2;
use crate::shape::{GridShape, Order};
use crate::source::GridSource;

/// Rows written between two checks for a stop request.
const STEP: usize = 1 << 18;

/// A build in progress.
pub(super) struct Builder<'a> {
    disk: &'a dyn Disk,
    data_set: &'a DataSet,
    options: &'a BuildOptions,
    input: Input,
    pool: ThreadPool,
    threads: usize,
    entries: Vec<(&'static str, ArrayEntry)>,
    /// Bytes of the temporary file.
    dealt: u64,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        data_set: &'a DataSet,
        options: &'a BuildOptions,
    ) -> Result<Self> {
        let threads = options.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(2, |threads| threads.get().min(16))
        });
        if threads == 0 {
            return Err(Error::invalid("grid: 0 threads, expected at least 1"));
        }
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Error::new(ErrorKind::Io, error.to_string()).context("threads"))?;
        let source = GridSource::of(data_set, options.relation.as_deref())?;
        let input = Input::open(data_set, source, options.weights.is_some())?;
        Ok(Self { disk, data_set, options, input, pool, threads, entries: Vec::new(), dealt: 0 })
    }

    /// Writes the grid as new files next to those of the manifest, and adds it to the new manifest.
    pub(super) fn write(
        &mut self,
        editor: &mut ManifestEditor<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<BuildSummary> {
        let weight_rows = self.input.edge_rows();
        for key in header::ALL {
            editor.manifest_mut().arrays.remove(key);
        }
        self.disk.remove_dir_all(&self.data_set.root().join(TEMPORARY))?;
        let name = self.options.weights_name();
        let weights = name
            .map(|name| Weights::open(self.data_set, &self.input.source, name, weight_rows))
            .transpose()?;
        let record = match &weights {
            None => size_of::<u32>(),
            Some(weights) if weights.are_wide()? => size_of::<u128>(),
            Some(_) => size_of::<u64>(),
        };
        let facts = Facts {
            memory: self.options.memory,
            threads: self.threads,
            nodes: self.input.nodes,
            columns: self.input.extra_columns(),
            buffer_per_arc: self.input.buffer_per_arc(),
            record: record as u64,
            weights: weights.as_ref().map_or(0, Weights::rows),
        };
        let order = |otherwise| self.options.order.unwrap_or(otherwise);
        // The best order is not known yet. If the smaller need of natural order already fails, the
        // error names the memory of the order by degree, which is enough for both.
        if facts.check_ordering(order(Order::Natural)).is_err() {
            self.check_ordering(&facts, order(Order::Degree))?;
        }
        self.input.verify(&mut |done, total| on_progress("verifying", done, total, "bytes"))?;
        let (mut single, mut double) = (Vec::new(), Vec::new());
        match &weights {
            Some(weights) if record == size_of::<u128>() => double = weights.read()?,
            Some(weights) => single = weights.read()?,
            None => {}
        }
        let (degrees, order) = self.degrees(&facts, on_progress)?;
        let shape = self.shape(&degrees, order)?;
        let ranks = Ranks::new(order, &degrees);
        self.write_nodes(editor, &ranks, &degrees, on_progress)?;
        let nodes = ranks.places(degrees, &shape);
        let source = &self.input.source;
        let topology = source.topology(self.data_set.manifest(), name);
        let mut header = GridHeader::new(&shape, source.relation(), topology);
        header.weights = name.map(str::to_owned);
        let written = match record {
            4 => self.blocks::<u32>(editor, &facts, nodes, single, &mut header, on_progress),
            8 => self.blocks::<u64>(editor, &facts, nodes, single, &mut header, on_progress),
            _ => self.blocks::<u128>(editor, &facts, nodes, double, &mut header, on_progress),
        }?;
        let mut writer = self.create(editor, HEADER, DType::U8, &[])?;
        writer.write(&header.to_json()?)?;
        self.finish(HEADER, writer)?;
        let bytes = self.entries.iter().map(|(_, entry)| {
            entry.data_offset + entry.shape.iter().product::<u64>() * entry.dtype.size() as u64
        });
        let bytes = bytes.sum::<u64>() + self.dealt;
        let input = self.input.bytes() + self.weight_array().map_or(0, |array| array.data_len());
        for (key, entry) in self.entries.drain(..) {
            editor.insert(key, entry);
        }
        Ok(summary(&header.shape(), &written, input, bytes))
    }

    /// The shape of a grid with these degrees, before its edges are counted.
    ///
    /// # Errors
    /// `Unsupported`: more partitions than a grid may have.
    fn shape(&self, degrees: &Degrees, order: Order) -> Result<GridShape> {
        let connected = degrees.connected();
        let shape = GridShape {
            nodes: self.input.nodes,
            connected,
            partition_log2: self
                .options
                .partition_log2
                .unwrap_or_else(|| partition_log2(connected)),
            order,
            symmetric: self.input.symmetric,
            arcs: degrees.arcs(),
            edges: 0,
            weighted: self.options.weights_name().is_some(),
        };
        let partitions = shape.partitions() as u64;
        if partitions > MAX_PARTITIONS {
            let text = format!("{partitions} partitions, expected at most {MAX_PARTITIONS}");
            return Err(Error::new(ErrorKind::Unsupported, text).hint(hint!(
                "leave out " {partition_log2} ", or make it larger"
            )));
        }
        Ok(shape)
    }

    /// The edge array of the weights, if it exists.
    fn weight_array(&self) -> Option<ArrayRef> {
        let name = self.options.weights_name()?;
        self.data_set.array(&self.input.source.edge_array(name).ok()?).ok()
    }

    /// Degrees, and the requested order, or a suitable one.
    fn degrees(&self, facts: &Facts, on_progress: OnProgress<'_>) -> Result<(Degrees, Order)> {
        let Self { input, threads, .. } = self;
        let columns = input.column_degrees(&mut |done| {
            on_progress("in-degrees", done, input.columns(), "nodes")
        })?;
        let pass = self.pass(facts, &columns);
        // Triples have no columns that give the number of arcs into a node.
        let with_into = input.columns() == 0;
        let (out, into) = match input.symmetric {
            true => (None, None),
            false => {
                let mut on_rows = |done| on_progress("out-degrees", done, input.rows, "arcs");
                let (out, into) = counted(&pass, *threads, with_into, &mut on_rows)?;
                (Some(out), into)
            }
        };
        let order = match self.options.order {
            Some(order) => order,
            // The choice depends only on the arcs. If it depended on the memory, sums of floats
            // would depend on the budget.
            None => choose(&pass, input, *threads)?,
        };
        self.check_ordering(facts, order)?;
        let (into, columns) = input.in_degrees(into.unwrap_or(columns))?;
        let degrees = Degrees { into, out, columns };
        Ok((degrees, order))
    }

    fn check_ordering(&self, facts: &Facts, order: Order) -> Result<()> {
        facts.check_ordering(order).map_err(|error| match order {
            Order::Natural => error.hint(hint!("raise " {memory} ", or use fewer threads")),
            Order::Degree => {
                let relation = self.input.source.relation();
                let anew = rebuild_command(self.data_set, relation, self.options.weights_name());
                let natural = command(&anew["outercore ".len()..], &[("order", "natural")]);
                error.hint(hint!(
                    "raise " {memory} ", or run `{natural}`, which takes 4 bytes a node less"
                ))
            }
        })
    }

    fn pass<'b>(&'b self, facts: &Facts, degrees: &'b [u32]) -> Pass<'b> {
        let chunk = facts.chunk();
        Pass { input: &self.input, degrees, pool: &self.pool, chunk, rows: None, places: None }
    }

    /// Writes the order and the degrees.
    fn write_nodes(
        &mut self,
        editor: &mut ManifestEditor<'_>,
        ranks: &Ranks,
        degrees: &Degrees,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let total = self.input.nodes;
        let mut column = |builder: &mut Self, key, value: &dyn Fn(u32, bool) -> Option<u32>| {
            let mut writer = builder.create(editor, key, DType::U32, &[])?;
            let mut rows = Vec::with_capacity(STEP.min(total as usize));
            let mut done = 0;
            ranks.for_each(degrees, |node, has_arcs| {
                rows.extend(value(node, has_arcs));
                done += 1;
                if rows.len() == STEP {
                    writer.write_slice(&rows)?;
                    rows.clear();
                    on_progress("order", done, total, "nodes")?;
                }
                Ok(())
            })?;
            writer.write_slice(&rows)?;
            builder.finish(key, writer)
        };
        if !ranks.is_identity(degrees) {
            column(self, ORDER, &|node, _| Some(node))?;
        }
        column(self, OUT_DEGREES, &|node, has_arcs| {
            has_arcs.then(|| degrees.out_of(node as usize))
        })?;
        if degrees.out.is_some() {
            let into = |node: u32, has_arcs: bool| has_arcs.then(|| degrees.into[node as usize]);
            column(self, IN_DEGREES, &into)?;
        }
        Ok(())
    }

    /// Counts, deals and encodes the edges. Takes ownership of the arcs per column, the places of
    /// the nodes, and the weights, so it can free them early.
    fn blocks<R: Record>(
        &mut self,
        editor: &mut ManifestEditor<'_>,
        facts: &Facts,
        (columns, places): (Vec<u32>, Vec<u32>),
        weights: Vec<R::Weight>,
        header: &mut GridHeader,
        on_progress: OnProgress<'_>,
    ) -> Result<Written> {
        let layout = Layout::new(&header.shape());
        let (total, threads) = (self.input.rows, self.threads);
        let pass = Pass { places: Some(&places), ..self.pass(facts, &columns) };
        let counts = count(&pass, &places, layout, threads, &mut |done| {
            on_progress("count", done, total, "arcs")
        })?;
        header.edges = counts.edges.iter().sum();
        header.loops = counts.loops;
        let plan = facts.dealing(&counts.edges)?;
        let directory = self.data_set.root().join(TEMPORARY);
        let path = directory.join("edges");
        let mut dealt_bytes = 0;
        let mut sink = match plan.buffer {
            None => Sink::<R>::in_memory(&counts.edges),
            Some(capacity) => {
                self.disk.create_dir_all(&directory)?;
                dealt_bytes = header.edges * size_of::<R>() as u64;
                Sink::to_file(self.disk, &path, &counts.edges, capacity)?
            }
        };
        let rows = R::WEIGHTED.then_some(weights.len() as u64);
        let pass = Pass { rows, ..pass };
        deal(&pass, &places, layout, threads, &weights, &mut sink, &mut |done| {
            on_progress("deal", done, total, "arcs")
        })?;
        self.dealt = dealt_bytes;
        drop((columns, places, weights));
        let dealt = match sink.into_memory() {
            Some(records) => Dealt::Memory(records),
            None => {
                Dealt::File(File::open(&path).with_context(|| format!("`{}`", path.display()))?)
            }
        };
        let weights = match R::WEIGHTED {
            true => Some(self.create(editor, WEIGHTS, R::Weight::DTYPE, &[])?),
            false => None,
        };
        let mut outputs = Outputs {
            blocks: self.create(editor, BLOCKS, DType::U8, &[])?,
            pieces: self.create(editor, PIECES, DType::U64, &[RECORD_WORDS as u64])?,
            weights,
            written: Written::default(),
        };
        let edges = header.edges;
        encode_all(
            dealt,
            &counts.edges,
            layout,
            plan.batch,
            &self.pool,
            &mut outputs,
            &mut |done| on_progress("encode", done, edges, "edges"),
        )?;
        self.finish(BLOCKS, outputs.blocks)?;
        self.finish(PIECES, outputs.pieces)?;
        if let Some(weights) = outputs.weights {
            self.finish(WEIGHTS, weights)?;
        }
        header.codec_bytes = outputs.written.bytes;
        header.least_weight = outputs.written.least_weight;
        Ok(outputs.written)
    }

    fn create(
        &mut self,
        editor: &mut ManifestEditor<'_>,
        key: &str,
        dtype: DType,
        row_shape: &[u64],
    ) -> Result<ArrayWriter> {
        let file = editor.claim_file(key)?;
        ArrayWriter::create(self.disk, self.data_set.root(), &file, dtype, row_shape)
    }

    fn finish(&mut self, key: &'static str, writer: ArrayWriter) -> Result<()> {
        self.entries.push((key, writer.finish()?));
        Ok(())
    }
}
