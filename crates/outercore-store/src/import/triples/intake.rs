//! Phase 1: reads and checks triples, and writes them with numbers in place of names, in chunks
//! that each have a dictionary.

use std::path::{Path, PathBuf};
use std::sync::Arc as Shared;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, sync_channel};

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::IMPORT_DIRECTORY;
use outercore_io::{Disk, WriteFile};
use outercore_text::{
    ByteStream, Dialect, Fields, LineBlocks, Position, Purpose, TextOptions, detect,
};

use super::dictionary::Dictionary;
use super::journal::{Chunk, Journal, Source, SourceRecord, Stage};
use super::line::{Named, triple};
use super::options::{Part, TripleImportOptions, TripleTuning};
use crate::destination::Destination;
use crate::import::input_file::InputFile;
use crate::import::progress::{OnProgress, Phase, Progress, Unit};
use crate::import::sources::{Cursor, any_complete};

/// The numbers of head, relation and tail in the chunk, and the bits of the weight.
pub(crate) type Local = [u32; 4];

/// Reads the sources of triples one after the other.
pub(crate) struct Intake {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    options: TripleImportOptions,
    tuning: TripleTuning,
    /// The journal, equal to the one on disk except for the current source.
    pub journal: Journal,
    pub destination: Destination,
    cursor: Cursor,
    open: Option<Open>,
    /// Position after the last triple of the current source.
    position: Position,
}

/// The current chunk and its files.
struct Open {
    triples: Box<dyn WriteFile>,
    runs: Box<dyn WriteFile>,
    buffer: Vec<u8>,
    count: u64,
    entities: Dictionary,
    relations: Dictionary,
}

impl Open {
    const BUFFER: usize = 256 << 10;

    fn flush(&mut self) -> Result<()> {
        self.triples.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// File of the triples, with the numbers of their chunk.
pub(crate) fn triples_path(root: &Path) -> PathBuf {
    root.join(IMPORT_DIRECTORY).join("triples")
}

/// File of the sorted runs of names.
pub(crate) fn runs_path(root: &Path) -> PathBuf {
    root.join(IMPORT_DIRECTORY).join("runs")
}

impl Intake {
    pub fn new(
        disk: Shared<dyn Disk>,
        root: &Path,
        options: &TripleImportOptions,
        tuning: TripleTuning,
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
            open: None,
            position: Position::default(),
        }
    }

    /// Reads a text file.
    pub fn text(
        &mut self,
        part: Part,
        file: InputFile,
        dialect: Option<Dialect>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let (path, total) = (file.path.clone(), file.bytes);
        self.close_pushed()?;
        let dialect = dialect.map_or_else(|| self.detect(&path), Ok)?;
        if self.begin(part, Source::Text(file, Box::new(dialect.clone())))? {
            return Ok(());
        }
        if self.cursor.taken == 0 {
            self.position = dialect.start;
        }
        let stream = ByteStream::open("triples", &path, self.position.offset, self.options.memory)?;
        let consumed = stream.consumed();
        let blocks = LineBlocks::new(stream, self.tuning.text_block);
        let mut fields = Fields::default();
        std::thread::scope(|scope| {
            let (full, filled) = sync_channel(2);
            let (used, unused) = channel::<Vec<u8>>();
            scope.spawn(move || {
                let mut blocks = blocks;
                loop {
                    let mut bytes = unused.try_recv().unwrap_or_default();
                    let item = match blocks.next(&mut bytes) {
                        Ok(None) => return,
                        Ok(Some(length)) => Ok((bytes, length)),
                        Err(error) => Err(error),
                    };
                    let failed = item.is_err();
                    if full.send(item).is_err() || failed {
                        return;
                    }
                }
            });
            for item in filled {
                let (bytes, length) = item?;
                let end = self.position.offset + length;
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    self.line(&path, line, &mut fields, &dialect)?;
                    // The reader may have added a line break to the last line, which is not in the
                    // file.
                    self.position.offset = (self.position.offset + line.len() as u64).min(end);
                }
                // The reader may already have ended.
                let _ = used.send(bytes);
                let done = consumed.load(Ordering::Relaxed);
                let total = total.max(done);
                let at = Progress { phase: Phase::Read, done, total, unit: Unit::Bytes };
                self.settle(on_progress(at))?;
            }
            Ok::<(), Error>(())
        })?;
        self.end()
    }

    fn line(
        &mut self,
        path: &Path,
        line: &[u8],
        fields: &mut Fields,
        dialect: &Dialect,
    ) -> Result<()> {
        self.position.lines += 1;
        let number = self.position.lines;
        if dialect.repeats_header(line) {
            self.journal.sources[self.cursor.current()].repeated_headers += 1;
            return Ok(());
        }
        if dialect.is_comment_or_blank(line.trim_ascii_start()) {
            return Ok(());
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let place = || format!("triples `{}`: line {number}", path.display());
        let columns = self.options.columns.clone();
        let named = triple(line, fields, dialect, &columns).with_context(place)?;
        // If this triple starts a new chunk, the previous chunk ends before this line.
        self.position.lines -= 1;
        self.take(&named)?;
        self.position.lines += 1;
        Ok(())
    }

    fn detect(&self, path: &Path) -> Result<Dialect> {
        let columns = Some(self.options.columns.count());
        let options = TextOptions { columns, ..TextOptions::default() };
        detect(path, Purpose::Triples, &options, self.options.memory)
    }

    /// Adds a triple of the caller. It is skipped if an earlier run made that many triples of the
    /// source durable.
    pub fn push(&mut self, part: Part, named: &Named<'_>) -> Result<()> {
        self.begin_push(part)?;
        let pushed = self.cursor.pushed.unwrap_or(0) + 1;
        self.cursor.pushed = Some(pushed);
        if pushed <= self.cursor.durable {
            return Ok(());
        }
        let record = &self.journal.sources[self.cursor.current()];
        if record.complete {
            let error = self.cursor.other_count::<SourceRecord>(record.triples, pushed);
            return Err(self.destination.mismatch(error));
        }
        named
            .check()
            .with_context(|| format!("triples handed over for `{part}`: row {}", pushed - 1))?;
        self.take(named)?;
        self.settle(Ok(()))
    }

    /// Starts a pushed source for `part`, unless it is already the current source.
    pub fn begin_push(&mut self, part: Part) -> Result<()> {
        let current = self.cursor.started().map(|index| self.journal.sources[index].part);
        if self.cursor.pushed.is_some() && current == Some(part) {
            return Ok(());
        }
        self.close_pushed()?;
        self.begin(part, Source::Push)?;
        self.cursor.pushed = Some(0);
        Ok(())
    }

    /// Makes all sources durable and complete. No more sources may follow.
    pub fn close(&mut self) -> Result<()> {
        self.close_pushed()?;
        // The files are complete, so free their memory.
        self.open = None;
        let given = self.cursor.require_end(&self.journal.sources);
        given.map_err(|error| self.destination.mismatch(error))
    }

    /// Starts the next source; returns whether an earlier run read all of it.
    fn begin(&mut self, part: Part, source: Source) -> Result<bool> {
        let fresh = SourceRecord {
            part,
            source,
            triples: 0,
            position: Position::default(),
            complete: false,
            repeated_headers: 0,
        };
        let is_reading = self.journal.stage == Stage::Read;
        let begun = self.cursor.begin(&mut self.journal.sources, fresh, is_reading);
        let begun = begun.map_err(|error| self.destination.mismatch(error))?;
        if begun.is_replaced {
            self.journal.trim_chunks();
        }
        self.position = self.journal.sources[self.cursor.current()].position;
        Ok(begun.is_complete)
    }

    /// Whether a source is complete, so that it is kept if the next source is refused.
    pub fn has_whole_source(&self) -> bool {
        self.journal.stage != Stage::Read || any_complete(&self.journal.sources)
    }

    /// Adds a checked triple.
    fn take(&mut self, named: &Named<'_>) -> Result<()> {
        let ends = named.head.len() + named.tail.len();
        let open = self.opened()?;
        if !open.entities.has_room(2, ends) || !open.relations.has_room(1, named.relation.len()) {
            self.end_chunk()?;
        }
        let open = self.opened()?;
        let local: Local = [
            open.entities.number(named.head),
            open.relations.number(named.relation),
            open.entities.number(named.tail),
            named.weight.to_bits(),
        ];
        open.buffer.extend_from_slice(bytemuck::bytes_of(&local));
        open.count += 1;
        if open.buffer.len() >= Open::BUFFER {
            open.flush()?;
        }
        self.cursor.taken += 1;
        Ok(())
    }

    /// Opens the files and truncates them to their durable parts.
    fn opened(&mut self) -> Result<&mut Open> {
        if self.open.is_none() {
            let directory = self.root.join(IMPORT_DIRECTORY);
            self.destination.make()?;
            let bytes = self.journal.triples() * size_of::<Local>() as u64;
            let triples = self.file(&triples_path(&self.root), bytes)?;
            let runs = self.file(&runs_path(&self.root), self.journal.run_bytes())?;
            self.disk.sync_dir(&directory)?;
            self.open = Some(Open {
                triples,
                runs,
                buffer: Vec::with_capacity(Open::BUFFER + size_of::<Local>()),
                count: 0,
                entities: Dictionary::new(self.tuning.entities),
                relations: Dictionary::new(self.tuning.relations),
            });
        }
        self.open.as_mut().ok_or_else(|| Error::internal("triples taken without a file for them"))
    }

    fn file(&self, path: &Path, bytes: u64) -> Result<Box<dyn WriteFile>> {
        let mut file = if bytes == 0 { self.disk.create(path)? } else { self.disk.open(path)? };
        file.set_len(bytes)?;
        Ok(file)
    }

    /// Makes a durable point if enough bytes were written, or if the task stops.
    fn settle(&mut self, going: Result<()>) -> Result<()> {
        let count = self.open.as_ref().map_or(0, |open| open.count);
        if going.is_ok() && count * (size_of::<Local>() as u64) < self.tuning.checkpoint {
            return Ok(());
        }
        let saved = self.end_chunk();
        // Return the error that stopped the task, not an error of the durable point.
        going.and(saved)
    }

    /// Writes the dictionaries of the chunk, makes everything durable and records the progress of
    /// the current source.
    fn end_chunk(&mut self) -> Result<()> {
        let part = self.journal.sources[self.cursor.current()].part;
        let offset = self.journal.run_bytes();
        if let Some(open) = self.open.as_mut().filter(|open| open.count > 0) {
            open.flush()?;
            let entities = open.entities.write(&mut *open.runs, offset)?;
            let relations = open.relations.write(&mut *open.runs, offset + entities.bytes)?;
            open.triples.sync()?;
            open.runs.sync()?;
            self.journal.chunks.push(Chunk { part, triples: open.count, entities, relations });
            open.count = 0;
            open.entities.clear();
            open.relations.clear();
        }
        let record = &mut self.journal.sources[self.cursor.current()];
        record.triples = self.cursor.taken;
        record.position = self.position;
        self.journal.save(&*self.disk, &self.root)
    }

    /// Marks the current source as complete.
    fn end(&mut self) -> Result<()> {
        self.journal.sources[self.cursor.current()].complete = true;
        // The journal needs its directory, even if the source has no triples.
        self.opened()?;
        self.end_chunk()
    }

    /// Ends the pushed source, if the current source is pushed.
    fn close_pushed(&mut self) -> Result<()> {
        let ended = self.cursor.end_pushed(&self.journal.sources);
        let is_new = ended.map_err(|error| self.destination.mismatch(error))?;
        if is_new { self.end() } else { Ok(()) }
    }
}

/// The error for columns of a batch that do not fit together.
pub(crate) fn uneven(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("a batch of triples: {what}"))
}
