//! The first phase: triples are read and checked, and written with numbers in place of names, in
//! chunks that have dictionaries of their own.

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
use super::journal::{Chunk, Journal, Source, SourceRecord, Stage, other_count, other_source};
use super::line::{Named, triple};
use super::options::{Part, TripleImportOptions, TripleTuning};
use crate::destination::Destination;
use crate::import::input_file::InputFile;
use crate::import::progress::{OnProgress, Phase, Progress, Unit};

/// Head, relation and tail by their numbers in the chunk, and the bits of the weight.
pub(crate) type Local = [u32; 4];

/// Takes the sources of triples one after the other.
pub(crate) struct Intake {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    options: TripleImportOptions,
    tuning: TripleTuning,
    /// As it is on disk, but for the source that is being taken.
    pub journal: Journal,
    pub destination: Destination,
    /// The place of the next source among the sources.
    next: usize,
    open: Option<Open>,
    /// Triples of the current source, durable or not.
    taken: u64,
    /// Triples of the current source that an earlier run left behind.
    durable: u64,
    /// The end of what is taken of the current source.
    position: Position,
    /// Triples that the caller has pushed, while the current source is pushed.
    pushed: Option<u64>,
}

/// The chunk that is being filled, and the files it goes to.
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

/// The file of the triples with numbers of their chunk.
pub(crate) fn triples_path(root: &Path) -> PathBuf {
    root.join(IMPORT_DIRECTORY).join("triples")
}

/// The file of the sorted runs of names.
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
            next: 0,
            open: None,
            taken: 0,
            durable: 0,
            position: Position::default(),
            pushed: None,
        }
    }

    pub fn is_resumed(&self) -> bool {
        !self.journal.sources.is_empty()
    }

    /// Takes a text file.
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
        if self.taken == 0 {
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
                    // The last line of a text may have been given its end.
                    self.position.offset = (self.position.offset + line.len() as u64).min(end);
                }
                // The reader may be done already.
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
            self.journal.sources[self.next - 1].repeated_headers += 1;
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
        // A chunk that ends here ends before this line.
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

    /// Takes a triple of the caller; how many those before it in its source are decides whether it
    /// is durable already.
    pub fn push(&mut self, part: Part, named: &Named<'_>) -> Result<()> {
        self.begin_push(part)?;
        let pushed = self.pushed.unwrap_or(0) + 1;
        self.pushed = Some(pushed);
        if pushed <= self.durable {
            return Ok(());
        }
        let record = &self.journal.sources[self.next - 1];
        if record.complete {
            let error = other_count(self.next - 1, record.triples, pushed);
            return Err(self.destination.mismatch(error));
        }
        named
            .check()
            .with_context(|| format!("triples handed over for `{part}`: row {}", pushed - 1))?;
        self.take(named)?;
        self.settle(Ok(()))
    }

    /// Begins to take batches for `part`, unless that is what is done already.
    pub fn begin_push(&mut self, part: Part) -> Result<()> {
        let current = self.next.checked_sub(1).map(|index| self.journal.sources[index].part);
        if self.pushed.is_some() && current == Some(part) {
            return Ok(());
        }
        self.close_pushed()?;
        self.begin(part, Source::Push)?;
        self.pushed = Some(0);
        Ok(())
    }

    /// Makes all sources durable and complete; no more may follow.
    pub fn close(&mut self) -> Result<()> {
        self.close_pushed()?;
        // The files are complete: what they hold in memory is not needed any more.
        self.open = None;
        if let Some(left) = self.journal.sources.get(self.next) {
            let error = Error::invalid(format!(
                "the unfinished import has {} sources of triples, found {}: {} is missing",
                self.journal.sources.len(),
                self.next,
                left.source
            ));
            return Err(self.destination.mismatch(error));
        }
        Ok(())
    }

    /// Goes on to the next source; says whether an earlier run has all of it.
    fn begin(&mut self, part: Part, source: Source) -> Result<bool> {
        let index = self.next;
        let fresh = SourceRecord {
            part,
            source,
            triples: 0,
            position: Position::default(),
            complete: false,
            repeated_headers: 0,
        };
        let is_last = index + 1 == self.journal.sources.len();
        let is_reading = self.journal.stage == Stage::Read;
        match self.journal.sources.get(index) {
            Some(known) if known.part == part && known.source == fresh.source => {}
            // It was not taken whole, so that nothing builds upon it.
            Some(known) if is_reading && is_last && !known.complete => {
                self.journal.forget_last(fresh);
            }
            Some(known) => {
                let error = other_source(index, known, &fresh);
                return Err(self.destination.mismatch(error));
            }
            None => self.journal.sources.push(fresh),
        }
        self.next += 1;
        let record = &self.journal.sources[index];
        (self.taken, self.durable, self.position) =
            (record.triples, record.triples, record.position);
        Ok(record.complete)
    }

    /// Whether a source was taken whole, so that what was taken is kept if the next one is refused.
    pub fn has_whole_source(&self) -> bool {
        self.journal.stage != Stage::Read || self.journal.sources.iter().any(|s| s.complete)
    }

    /// Takes a triple that was checked.
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
        self.taken += 1;
        Ok(())
    }

    /// The files, cut to what is durable when they are opened.
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

    /// Makes a durable point if it is time to, or if the task is not to go on.
    fn settle(&mut self, going: Result<()>) -> Result<()> {
        let count = self.open.as_ref().map_or(0, |open| open.count);
        if going.is_ok() && count * (size_of::<Local>() as u64) < self.tuning.checkpoint {
            return Ok(());
        }
        let saved = self.end_chunk();
        // Whoever stopped the task is told that, rather than what came of the durable point.
        going.and(saved)
    }

    /// Writes the dictionaries of the chunk, makes all durable and notes how far the current source
    /// is taken.
    fn end_chunk(&mut self) -> Result<()> {
        let part = self.journal.sources[self.next - 1].part;
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
        let record = &mut self.journal.sources[self.next - 1];
        record.triples = self.taken;
        record.position = self.position;
        self.journal.save(&*self.disk, &self.root)
    }

    /// All of the current source is taken.
    fn end(&mut self) -> Result<()> {
        self.journal.sources[self.next - 1].complete = true;
        // A journal needs its directory, also if there was nothing to take.
        self.opened()?;
        self.end_chunk()
    }

    /// Ends the batches, if the current source is pushed.
    fn close_pushed(&mut self) -> Result<()> {
        let Some(pushed) = self.pushed.take() else { return Ok(()) };
        if pushed < self.durable {
            let error = other_count(self.next - 1, self.durable, pushed);
            return Err(self.destination.mismatch(error));
        }
        if self.journal.sources[self.next - 1].complete { Ok(()) } else { self.end() }
    }
}

/// The error for batches that do not fit together.
pub(crate) fn uneven(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("a batch of triples: {what}"))
}
