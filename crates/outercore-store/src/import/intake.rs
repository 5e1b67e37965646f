//! Phase 1: checks and counts the edges, and writes edges without a binary file to the spill.

use std::path::{Path, PathBuf};
use std::sync::Arc as Shared;

use outercore_core::{Error, Result, hint};
use outercore_format::IMPORT_DIRECTORY;
use outercore_io::Disk;
use outercore_text::{EdgeLayout, EdgeSettings, Mirror, Position, out_of_range, read_edges};

use super::artifacts::EdgeText;
use super::histogram::Histogram;
use super::journal::{Journal, Source, SourceRecord, Stage, TextSource};
use super::options::{EdgeImportOptions, MAX_NODES, Tuning};
use super::progress::{OnProgress, Phase, Progress, Unit};
use super::segment::{Segment, read_segments};
use super::sources::{Cursor, any_complete};
use super::spill::Spill;
use crate::destination::Destination;

/// Reads the sources of edges one after the other.
pub(crate) struct Intake {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    options: EdgeImportOptions,
    tuning: Tuning,
    /// The journal, equal to the one on disk except for the current source.
    pub journal: Journal,
    pub destination: Destination,
    cursor: Cursor,
    counted: Option<Counted>,
    /// Bytes of the spill when the journal was last saved.
    saved_bytes: u64,
}

/// Counts of the edges so far. A resumed import computes them again from the durable edges.
struct Counted {
    histogram: Histogram,
    spill: Spill,
}

impl Intake {
    pub fn new(
        disk: Shared<dyn Disk>,
        root: &Path,
        options: &EdgeImportOptions,
        tuning: Tuning,
        journal: Journal,
        destination: Destination,
    ) -> Self {
        Self {
            disk,
            root: root.to_owned(),
            options: options.clone(),
            tuning,
            journal,
            destination,
            cursor: Cursor::default(),
            counted: None,
            saved_bytes: 0,
        }
    }

    pub fn is_resumed(&self) -> bool {
        !self.journal.sources.is_empty()
    }

    /// Reads a text file.
    pub fn text(&mut self, source: TextSource, on_progress: OnProgress<'_>) -> Result<()> {
        let (path, total) = (source.file.path.clone(), source.file.bytes);
        let text = source.text.clone();
        self.close_pushed()?;
        if self.begin(Source::Text(Box::new(source)))? {
            return Ok(());
        }
        self.count_durable(&mut *on_progress)?;
        let layout = self.layout(&path, text)?;
        let dialect = &layout.dialect;
        let record = &mut self.journal.sources[self.cursor.current()];
        record.num_nodes = dialect.nodes().unwrap_or(0);
        let start = if record.edges > 0 { record.position } else { dialect.start };
        if record.edges == 0 {
            record.comments = dialect.comment_lines;
        }
        let settings = EdgeSettings {
            block: self.tuning.text_block,
            threads: self.options.threads,
            memory: self.options.memory,
        };
        let mut position = start;
        read_edges(&path, start, &layout, settings, &mut |block| {
            self.take(block.edges, |_| "edge".to_owned())?;
            position = block.end;
            let record = &mut self.journal.sources[self.cursor.current()];
            record.comments += block.comments;
            record.repeated_headers += block.repeated_headers;
            record.padded_ids += block.padded_ids;
            let report = Progress {
                phase: Phase::Read,
                done: block.consumed,
                total: total.max(block.consumed),
                unit: Unit::Bytes,
            };
            self.settle(position, on_progress(report))
        })?;
        if let Some(entries) = dialect.entries().filter(|&entries| entries != position.entries) {
            let error = Error::corrupt(format!(
                "edge list `{}`: found {} entries, but its header says {entries}",
                path.display(),
                position.entries,
            ));
            return Err(error.hint(if position.entries < entries {
                "the copy was cut short; copy it again"
            } else {
                "there are more lines than the header says; correct the header, or take out what \
                 was added"
            }));
        }
        self.end(position)
    }

    fn layout(&self, path: &Path, text: EdgeText) -> Result<EdgeLayout> {
        let stated = text.dialect.nodes();
        if let (Some(nodes), Some(stated)) = (self.options.num_nodes, stated)
            && stated > nodes
        {
            return Err(Error::invalid(format!(
                "edge list `{}`: its header says {stated} nodes, but the graph has only {nodes}",
                path.display()
            )));
        }
        // An undirected import adds the reverse of every edge anyway.
        let mirrored = !self.options.undirected;
        if text.dialect.mirror() == Mirror::Negated && !mirrored {
            return Err(Error::invalid(format!(
                "edge list `{}`: a skew-symmetric matrix has other values in the other direction, \
                 and an undirected edge has one value",
                path.display()
            ))
            .hint(hint!("import it with " {undirected = false})));
        }
        Ok(EdgeLayout {
            num_nodes: stated.or(self.options.num_nodes),
            source: text.source,
            target: text.target,
            dialect: text.dialect,
            mirrored,
        })
    }

    /// Uses a binary file in place.
    pub fn binary(
        &mut self,
        source: Source,
        segment: Segment,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let name = source.to_string();
        self.close_pushed()?;
        if self.begin(source)? {
            return Ok(());
        }
        self.count_durable(&mut *on_progress)?;
        let total = segment.edges;
        let limit = self.options.num_nodes;
        let segments = [segment];
        let Some(Counted { histogram, .. }) = &mut self.counted else { return Err(not_counted()) };
        read_segments(&segments, 0, self.tuning.edge_block, &mut |first, edges| {
            refuse_out_of_range(edges, limit, |row| {
                format!("edge array {name}: row {}", first + row)
            })?;
            histogram.add(edges);
            let done = first + edges.len() as u64;
            on_progress(Progress { phase: Phase::Read, done, total, unit: Unit::Edges })
        })?;
        let record = &mut self.journal.sources[self.cursor.current()];
        record.edges = total;
        record.segments = segments.into();
        record.complete = true;
        Ok(())
    }

    /// Adds a batch of edges from the caller.
    pub fn push(&mut self, edges: &[[u64; 2]]) -> Result<()> {
        let durable = self.pushed_before()?;
        let pushed = self.cursor.pushed.unwrap_or(0);
        self.cursor.pushed = Some(pushed + edges.len() as u64);
        let known = durable.saturating_sub(pushed).min(edges.len() as u64);
        let fresh = &edges[known as usize..];
        if fresh.is_empty() {
            return Ok(());
        }
        let record = &self.journal.sources[self.cursor.current()];
        if record.complete {
            let error =
                self.cursor.other_count::<SourceRecord>(record.edges, pushed + edges.len() as u64);
            return Err(self.destination.mismatch(error));
        }
        self.count_durable(&mut |_| Ok(()))?;
        for block in fresh.chunks(self.tuning.edge_block) {
            let first = self.cursor.taken;
            self.take(block, |row| format!("edges handed over in batches: row {}", first + row))?;
            self.settle(Position::default(), Ok(()))?;
        }
        Ok(())
    }

    /// As [`Intake::push`], with two columns.
    pub fn push_columns(&mut self, sources: &[i64], targets: &[i64]) -> Result<()> {
        if sources.len() != targets.len() {
            return Err(Error::invalid(format!(
                "a batch of edges has {} sources and {} targets, expected as many of each",
                sources.len(),
                targets.len()
            )));
        }
        let mut edges = Vec::with_capacity(sources.len().min(self.tuning.edge_block));
        let block = self.tuning.edge_block;
        for (sources, targets) in sources.chunks(block).zip(targets.chunks(block)) {
            edges.clear();
            for (row, (&source, &target)) in sources.iter().zip(targets).enumerate() {
                if source.min(target) < 0 {
                    let row = self.cursor.pushed.unwrap_or(0) + row as u64;
                    return Err(Error::invalid(format!(
                        "edges handed over in batches: row {row}: node id {} is negative, expected \
                         0 or more",
                        source.min(target)
                    )));
                }
                edges.push([source as u64, target as u64]);
            }
            self.push(&edges)?;
        }
        Ok(())
    }

    /// Number of pushed edges that an earlier run made durable.
    pub fn pushed_before(&mut self) -> Result<u64> {
        if self.cursor.pushed.is_none() {
            self.begin(Source::Push)?;
            self.cursor.pushed = Some(0);
        }
        Ok(self.cursor.durable)
    }

    /// Skips edges that are already durable.
    pub fn skip_pushed(&mut self, edges: u64) -> Result<()> {
        let durable = self.pushed_before()?;
        let pushed = self.cursor.pushed.unwrap_or(0) + edges;
        if pushed > durable {
            return Err(Error::internal(format!(
                "skipped {pushed} pushed edges, but only {durable} are durable"
            )));
        }
        self.cursor.pushed = Some(pushed);
        Ok(())
    }

    /// Makes all sources durable and complete. No more sources may follow.
    pub fn close(&mut self) -> Result<()> {
        self.close_pushed()?;
        let given = self.cursor.require_end(&self.journal.sources);
        given.map_err(|error| self.destination.mismatch(error))
    }

    /// The histogram, once all edges are durable.
    pub fn take_histogram(&mut self, on_progress: OnProgress<'_>) -> Result<Histogram> {
        self.count_durable(on_progress)?;
        self.save()?;
        let Some(counted) = self.counted.take() else { return Err(not_counted()) };
        Ok(counted.histogram)
    }

    /// Starts the next source, `source`; returns whether an earlier run read all of it.
    fn begin(&mut self, source: Source) -> Result<bool> {
        let is_reading = self.journal.stage == Stage::Read;
        let fresh = SourceRecord::new(source);
        let begun = self.cursor.begin(&mut self.journal.sources, fresh, is_reading);
        Ok(begun.map_err(|error| self.destination.mismatch(error))?.is_complete)
    }

    /// Whether a source is complete, so that it is kept if the next source is refused.
    pub fn has_whole_source(&self) -> bool {
        self.journal.stage != Stage::Read || any_complete(&self.journal.sources)
    }

    /// Counts the durable edges of an earlier run and opens the spill after them; only the first
    /// call does this.
    fn count_durable(&mut self, on_progress: OnProgress<'_>) -> Result<()> {
        if self.counted.is_some() {
            return Ok(());
        }
        let directory = self.root.join(IMPORT_DIRECTORY);
        self.destination.make()?;
        let options = &self.options;
        let slots = self.tuning.histogram_slots;
        let mut histogram = Histogram::new(slots, options.undirected, options.self_loops);
        let sources = &self.journal.sources;
        let segments: Vec<_> = sources.iter().flat_map(|s| s.segments.iter().cloned()).collect();
        let total = segments.iter().map(|segment| segment.edges).sum();
        read_segments(&segments, 0, self.tuning.edge_block, &mut |first, edges| {
            histogram.add(edges);
            let done = first + edges.len() as u64;
            on_progress(Progress { phase: Phase::Read, done, total, unit: Unit::Edges })
        })?;
        let spilled = sources.iter().filter(|record| record.source.is_spilled());
        let bytes = spilled.flat_map(|record| &record.segments).map(Segment::bytes).sum();
        let current =
            sources.last().filter(|record| record.source.is_spilled() && !record.complete);
        let segments = current.map_or(Vec::new(), |record| record.segments.clone());
        let spill = Spill::open(&*self.disk, &directory.join("spill"), bytes, segments)?;
        self.saved_bytes = bytes;
        self.counted = Some(Counted { histogram, spill });
        Ok(())
    }

    /// Adds edges to the current source; `place` names the edge with a bad id.
    fn take(&mut self, edges: &[[u64; 2]], place: impl Fn(u64) -> String) -> Result<()> {
        refuse_out_of_range(edges, self.options.end_of_ids(), place)?;
        let Some(counted) = &mut self.counted else { return Err(not_counted()) };
        counted.histogram.add(edges);
        counted.spill.append(edges)?;
        self.cursor.taken += edges.len() as u64;
        Ok(())
    }

    /// Makes a durable point at `position` if enough bytes were written, or if the task stops.
    fn settle(&mut self, position: Position, going: Result<()>) -> Result<()> {
        let bytes = self.counted.as_ref().map_or(0, |counted| counted.spill.bytes());
        if going.is_ok() && bytes - self.saved_bytes < self.tuning.checkpoint {
            return Ok(());
        }
        self.saved_bytes = bytes;
        self.note(position)?;
        let saved = self.save();
        // Return the error that stopped the task, not an error of the durable point.
        going.and(saved)
    }

    /// Records in memory the progress of the current source.
    fn note(&mut self, position: Position) -> Result<()> {
        let Some(counted) = &self.counted else { return Err(not_counted()) };
        let record = &mut self.journal.sources[self.cursor.current()];
        record.edges = self.cursor.taken;
        record.position = position;
        record.segments = counted.spill.segments().to_vec();
        Ok(())
    }

    /// Marks the current source as complete.
    fn end(&mut self, position: Position) -> Result<()> {
        self.note(position)?;
        self.journal.sources[self.cursor.current()].complete = true;
        if let Some(counted) = &mut self.counted {
            counted.spill.next_source();
        }
        Ok(())
    }

    /// Ends the pushed source, if the current source is pushed.
    fn close_pushed(&mut self) -> Result<()> {
        let ended = self.cursor.end_pushed(&self.journal.sources);
        if !ended.map_err(|error| self.destination.mismatch(error))? {
            return Ok(());
        }
        self.count_durable(&mut |_| Ok(()))?;
        self.end(Position::default())
    }

    /// Makes the recorded edges durable, then writes the journal.
    fn save(&mut self) -> Result<()> {
        if let Some(counted) = &mut self.counted {
            counted.spill.sync()?;
        }
        self.journal.save(&*self.disk, &self.root)
    }
}

fn not_counted() -> Error {
    Error::internal("edges taken before the earlier ones were counted")
}

fn refuse_out_of_range(
    edges: &[[u64; 2]],
    num_nodes: Option<u64>,
    place: impl Fn(u64) -> String,
) -> Result<()> {
    let limit = num_nodes.unwrap_or(MAX_NODES);
    let largest = edges.iter().fold(0, |largest, [u, v]| largest.max(*u).max(*v));
    if largest < limit {
        return Ok(());
    }
    let bad = |edge: &&[u64; 2]| edge[0].max(edge[1]) >= limit;
    let Some(row) = edges.iter().position(|edge| bad(&edge)) else { return Ok(()) };
    let id = if edges[row][0] >= limit { edges[row][0] } else { edges[row][1] };
    Err(out_of_range(&format!("{}: ", place(row as u64)), id, limit, 0))
}
