//! Phase 2: merges the sorted runs of all chunks into one dictionary, and maps the numbers of every
//! chunk to ids.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result, hint};
use outercore_format::{ArrayEntry, DType, IMPORT_DIRECTORY};
use outercore_io::{Disk, WriteFile};
use serde::{Deserialize, Serialize};

use super::dictionary::{Run, compare};
use super::intake::runs_path;
use super::journal::Chunk;
use super::options::{Part, TripleTuning};
use crate::import::progress::{OnProgress, Phase, Progress, Unit};
use crate::npy::ArrayWriter;
use outercore_text::shown;

/// The kinds of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// Heads and tails.
    Entity,
    /// Relations.
    Relation,
}

impl Names {
    /// The key of the array with the end of each name: `uint64 [n + 1]`, starting with 0.
    pub fn offsets_key(self) -> String {
        format!("names/{self}.offsets")
    }

    /// The key of the array with the bytes of the names: `uint8`.
    pub fn bytes_key(self) -> String {
        format!("names/{self}.bytes")
    }

    pub(crate) fn run(self, chunk: &Chunk) -> Run {
        match self {
            Self::Entity => chunk.entities,
            Self::Relation => chunk.relations,
        }
    }

    /// The file that maps the numbers of the chunks to ids.
    pub(crate) fn map_path(self, root: &Path) -> PathBuf {
        root.join(IMPORT_DIRECTORY).join(format!("{self}.map"))
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Entity => "entity",
            Self::Relation => "relation",
        })
    }
}

/// A number of a chunk, and the lower and upper half of its id.
pub(crate) type Meaning = [u32; 3];

/// Bit in ids of names that do not occur in `train`.
pub(crate) const STRANGER: u64 = 1 << 63;

/// The id of a name without an id.
pub(crate) const NO_ID: u64 = u64::MAX;

/// Names of a part that do not occur in `train`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strangers {
    pub count: u64,
    /// The first of these names in the order of names, shortened.
    pub first: Vec<String>,
}

/// Result of merging the runs of one kind.
#[derive(Debug)]
pub(crate) struct Merged {
    pub names: u64,
    pub arrays: BTreeMap<String, ArrayEntry>,
    pub strangers: BTreeMap<Part, Strangers>,
}

pub(crate) struct Merge<'a> {
    pub disk: &'a dyn Disk,
    pub root: &'a Path,
    /// The files of the arrays, by key.
    pub files: &'a BTreeMap<String, String>,
    pub chunks: &'a [Chunk],
    pub tuning: &'a TripleTuning,
    pub memory: Bytes,
    /// Whether names that do not occur in `train` get ids, too.
    pub keep: bool,
}

impl Merge<'_> {
    /// Writes the arrays of names, and the map of every chunk.
    ///
    /// **Cost** Reads each run once, sequentially, and writes 12 bytes for each name in it.
    ///
    /// # Errors
    /// `Budget`: so many runs that the buffer of each would be too small.
    pub fn run(&self, kind: Names, on_progress: OnProgress<'_>) -> Result<Merged> {
        let mut runs = Runs::open(self, kind)?;
        let mut maps = Maps::create(self, kind)?;
        let writer = |key: &str, dtype| {
            ArrayWriter::create(self.disk, self.root, &self.files[key], dtype, &[])
        };
        let mut offsets = writer(&kind.offsets_key(), DType::U64)?;
        let mut bytes = writer(&kind.bytes_key(), DType::U8)?;
        let mut strangers: BTreeMap<Part, Strangers> = BTreeMap::new();
        let (mut names, mut end) = (0, 0);
        let total = self.chunks.iter().map(|chunk| kind.run(chunk).bytes).sum();
        offsets.write_slice(&[0u64])?;
        let (mut members, mut name) = (Vec::new(), Vec::new());
        while runs.next(&mut name, &mut members)? {
            let in_train = members.iter().any(|member| self.chunks[member.run].part == Part::Train);
            let id = match (in_train, self.keep) {
                (true, _) => names,
                (false, true) => names | STRANGER,
                (false, false) => NO_ID,
            };
            if id != NO_ID {
                names += 1;
                end += name.len() as u64;
                bytes.write(&name)?;
                offsets.write_slice(&[end])?;
            }
            if !in_train {
                note_stranger(
                    &mut strangers,
                    &name,
                    members.iter().map(|m| self.chunks[m.run].part),
                );
            }
            for member in &members {
                maps.push(member.run, member.number, id)?;
            }
            if runs.is_time_to_report() {
                let done = runs.done();
                on_progress(Progress { phase: Phase::Names, done, total, unit: Unit::Bytes })?;
            }
        }
        on_progress(Progress { phase: Phase::Names, done: total, total, unit: Unit::Bytes })?;
        maps.finish()?;
        let arrays = BTreeMap::from([
            (kind.offsets_key(), offsets.finish()?),
            (kind.bytes_key(), bytes.finish()?),
        ]);
        Ok(Merged { names, arrays, strangers })
    }
}

fn note_stranger(
    strangers: &mut BTreeMap<Part, Strangers>,
    name: &[u8],
    parts: impl Iterator<Item = Part>,
) {
    const LISTED: usize = 10;
    let mut parts: Vec<Part> = parts.collect();
    parts.sort_unstable();
    parts.dedup();
    for part in parts {
        let of_part = strangers.entry(part).or_default();
        of_part.count += 1;
        if of_part.first.len() < LISTED {
            of_part.first.push(shown(name));
        }
    }
}

/// A chunk that contains the current name, and its number for the name.
struct Member {
    run: usize,
    number: u32,
}

/// All runs of a kind, ordered by their next names, the smallest first.
struct Runs {
    file: File,
    path: PathBuf,
    cursors: Vec<Cursor>,
    /// A binary heap of cursors.
    heap: Vec<usize>,
    taken: u64,
}

/// The read position in a run.
struct Cursor {
    start: u64,
    /// The next byte in the file, and the end of the run.
    at: u64,
    end: u64,
    block: usize,
    buffer: Vec<u8>,
    next: usize,
    name: (usize, usize),
    number: u32,
}

impl Runs {
    fn open(merge: &Merge<'_>, kind: Names) -> Result<Self> {
        let path = runs_path(merge.root);
        let file = File::open(&path).with_context(|| format!("open `{}`", path.display()))?;
        let count = merge.chunks.len();
        let block = merge.tuning.merging / count.max(1);
        if block < merge.tuning.smallest_buffer {
            // More memory gives larger and thus fewer chunks, so the buffer size grows with the
            // square of the memory. Hence the square root.
            let factor = (merge.tuning.smallest_buffer as f64 / block.max(1) as f64).sqrt() * 1.1;
            let least = Bytes((merge.memory.0 as f64 * factor) as u64);
            return Err(Error::new(
                ErrorKind::Budget,
                format!(
                    "the names lie in {count} runs: merging them needs about {least} of memory, \
                     found {}",
                    merge.memory
                ),
            )
            .hint(crate::import::options::least_memory((least.0 >> 20) + 1)));
        }
        let cursors = merge.chunks.iter().map(|chunk| {
            let run = kind.run(chunk);
            Cursor {
                start: run.offset,
                at: run.offset,
                end: run.offset + run.bytes,
                block: block.min(1 << 20),
                buffer: Vec::new(),
                next: 0,
                name: (0, 0),
                number: 0,
            }
        });
        let mut runs = Self { file, path, cursors: cursors.collect(), heap: Vec::new(), taken: 0 };
        for run in 0..count {
            if runs.cursors[run].advance(&runs.file, &runs.path)? {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// Replaces `name` by the smallest remaining name, and `members` by all chunks that contain it.
    fn next(&mut self, name: &mut Vec<u8>, members: &mut Vec<Member>) -> Result<bool> {
        members.clear();
        let Some(&first) = self.heap.first() else { return Ok(false) };
        name.clear();
        name.extend_from_slice(self.cursors[first].name());
        while let Some(&run) = self.heap.first() {
            let cursor = &mut self.cursors[run];
            if cursor.name() != &name[..] {
                break;
            }
            members.push(Member { run, number: cursor.number });
            self.taken += 1;
            if !cursor.advance(&self.file, &self.path)? {
                let last = self.heap.pop().unwrap_or(run);
                if let Some(top) = self.heap.first_mut() {
                    *top = last;
                }
            }
            self.sink();
        }
        Ok(true)
    }

    /// Bytes read from the runs.
    fn done(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.at - cursor.start).sum()
    }

    fn is_time_to_report(&self) -> bool {
        const BEAT: u64 = 1 << 16;
        self.taken.is_multiple_of(BEAT)
    }

    fn is_less(&self, left: usize, right: usize) -> bool {
        compare(self.cursors[left].name(), self.cursors[right].name())
            .then(left.cmp(&right))
            .is_lt()
    }

    fn push(&mut self, run: usize) {
        let mut at = self.heap.len();
        self.heap.push(run);
        while at > 0 && self.is_less(self.heap[at], self.heap[(at - 1) / 2]) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Restores the heap order after the first cursor has changed.
    fn sink(&mut self) {
        let mut at = 0;
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_less(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

impl Cursor {
    fn name(&self) -> &[u8] {
        &self.buffer[self.name.0..self.name.1]
    }

    /// Moves to the next name; returns whether there is one.
    fn advance(&mut self, file: &File, path: &Path) -> Result<bool> {
        if self.next == self.buffer.len() && self.at == self.end {
            return Ok(false);
        }
        self.need(4, file, path)?;
        let length = self.word(self.next) as usize;
        self.need(length + 8, file, path)?;
        let start = self.next + 4;
        self.name = (start, start + length);
        self.number = self.word(start + length);
        self.next = start + length + 4;
        Ok(true)
    }

    fn word(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.buffer[at..at + 4]);
        u32::from_le_bytes(word)
    }

    /// Reads until the buffer holds `bytes` more.
    fn need(&mut self, bytes: usize, file: &File, path: &Path) -> Result<()> {
        let rest = self.buffer.len() - self.next;
        if rest >= bytes {
            return Ok(());
        }
        self.buffer.drain(..self.next);
        self.next = 0;
        let step = self.block.max(bytes - rest).min((self.end - self.at) as usize);
        let place = || format!("read {step} bytes at {} of `{}`", self.at, path.display());
        if rest + step < bytes {
            return Err(Error::corrupt("a run of names ends in the middle of one")
                .context(place())
                .hint(hint!("start the import again with " {overwrite = true})));
        }
        let context = place();
        self.buffer.resize(rest + step, 0);
        file.read_exact_at(&mut self.buffer[rest..], self.at).with_context(|| context)?;
        self.at += step as u64;
        Ok(())
    }
}

/// The maps of all chunks in one file: 12 bytes for each name of a chunk, in the order of names.
struct Maps {
    file: Box<dyn WriteFile>,
    /// For each run: the next place to write, and the bytes to write there.
    buffers: Vec<(u64, Vec<u8>)>,
    block: usize,
}

impl Maps {
    fn create(merge: &Merge<'_>, kind: Names) -> Result<Self> {
        let starts = map_starts(merge.chunks, kind);
        let bytes = starts.last().copied().unwrap_or(0);
        let mut file = merge.disk.create(&kind.map_path(merge.root))?;
        file.set_len(bytes)?;
        let size = size_of::<Meaning>();
        let block = (merge.tuning.merging / merge.chunks.len().max(1)).min(1 << 20).max(size);
        let buffers = starts[..merge.chunks.len()].iter().map(|start| (*start, Vec::new()));
        Ok(Self { file, buffers: buffers.collect(), block })
    }

    fn push(&mut self, run: usize, number: u32, id: u64) -> Result<()> {
        let (at, buffer) = &mut self.buffers[run];
        let meaning: Meaning = [number, id as u32, (id >> 32) as u32];
        if buffer.len() + size_of::<Meaning>() > self.block {
            self.file.write_at(*at, buffer)?;
            *at += buffer.len() as u64;
            buffer.clear();
        }
        buffer.extend_from_slice(bytemuck::bytes_of(&meaning));
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        for (at, buffer) in &self.buffers {
            if !buffer.is_empty() {
                self.file.write_at(*at, buffer)?;
            }
        }
        self.file.sync()
    }
}

/// The offset of each chunk's map, and the end of the last map.
pub(crate) fn map_starts(chunks: &[Chunk], kind: Names) -> Vec<u64> {
    let mut starts = vec![0];
    for chunk in chunks {
        let start = starts.last().copied().unwrap_or(0);
        starts.push(start + kind.run(chunk).names * size_of::<Meaning>() as u64);
    }
    starts
}
