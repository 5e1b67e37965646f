//! Sources of triples that can be read twice.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Context, Error, Result};
use outercore_format::DType;
use outercore_store::npy::ArrayReader;

use super::held_out::{HeldOut, TriplePart};
use super::progress::{OnProgress, Pass};

/// Callback for consecutive triples: index of the first, the triples, and their weights, if any.
pub type OnTriples<'a> = &'a mut dyn FnMut(u64, &[[i64; 3]], &[f32]) -> Result<()>;

/// Triples (head, relation, tail) in an order that is the same in every pass.
pub trait Triples {
    /// Number of triples.
    fn count(&self) -> u64;

    /// Whether triples have weights.
    fn weighted(&self) -> bool;

    /// Calls `take` with all triples, in batches.
    ///
    /// # Errors
    /// Errors of `take`, and of reading the source.
    fn for_each(&mut self, take: OnTriples<'_>) -> Result<()>;

    /// Takes up to `spare` memory to need fewer reads; returns the amount taken.
    fn take_memory(&mut self, _spare: Bytes) -> Bytes {
        Bytes(0)
    }

    /// Name for messages.
    fn name(&self) -> String;
}

/// Triples in memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryTriples<'a> {
    /// Head, relation and tail of each.
    pub triples: &'a [[i64; 3]],
    /// One weight per triple, or empty.
    pub weights: &'a [f32],
}

impl Triples for MemoryTriples<'_> {
    fn count(&self) -> u64 {
        self.triples.len() as u64
    }

    fn weighted(&self) -> bool {
        !self.weights.is_empty()
    }

    fn for_each(&mut self, take: OnTriples<'_>) -> Result<()> {
        take(0, self.triples, self.weights)
    }

    fn name(&self) -> String {
        "triples".to_owned()
    }
}

/// A source of triples that are requested in batches.
pub trait TripleReader: Send {
    /// The next triples, at most `most`; empty at the end.
    ///
    /// # Errors
    /// A failed read, or a fault in the file.
    fn next_triples(&mut self, most: usize) -> Result<Vec<[i64; 3]>>;
}

/// Triples in a `.npy` file, int64 `[m, 3]`, with optional weights in another file, float32 `[m]`.
///
/// **Memory**: 256 KiB during a pass.
#[derive(Debug)]
pub struct ArrayTriples {
    path: PathBuf,
    data_offset: u64,
    count: u64,
    weights: Option<Weights>,
}

#[derive(Debug)]
struct Weights {
    file: File,
    path: PathBuf,
    offset: u64,
}

impl ArrayTriples {
    /// Number of triples to pass on at once.
    const CHUNK: u64 = 4096;

    /// Opens the arrays.
    ///
    /// # Errors
    /// `NotFound`; `Invalid`: wrong types or shapes, or different lengths; `Corrupt`: truncated.
    pub fn open(path: &Path, weights: Option<&Path>) -> Result<Self> {
        let array = ArrayReader::open(path)?;
        expect(&array, path, DType::I64, &[3])?;
        let count = array.rows();
        let weights = weights.map(|path| {
            let array = ArrayReader::open(path)?;
            expect(&array, path, DType::F32, &[])?;
            if array.rows() != count {
                return Err(Error::invalid(format!(
                    "array `{}`: {} weights for {count} triples",
                    path.display(),
                    array.rows()
                )));
            }
            let file = File::open(path).with_context(|| format!("array `{}`", path.display()))?;
            Ok(Weights { file, path: path.to_owned(), offset: array.header().data_offset })
        });
        let data_offset = array.header().data_offset;
        Ok(Self { path: path.to_owned(), data_offset, count, weights: weights.transpose()? })
    }

    /// Numbers of triples for training, validation and test.
    ///
    /// **Cost**: one pass over the triples, if any are held out.
    ///
    /// # Errors
    /// `Invalid`: wrong shares. Errors of `on_progress`; a failed read.
    pub fn counts(&mut self, held_out: HeldOut, on_progress: OnProgress<'_>) -> Result<[u64; 3]> {
        held_out.validate()?;
        if !held_out.any() {
            return Ok([self.count, 0, 0]);
        }
        let mut pass = Pass::begin("hold out triples", self.count, on_progress)?;
        let mut counts = [0; 3];
        self.for_each(&mut |_, triples, _| {
            for triple in triples {
                counts[held_out.part_of_triple(triple) as usize] += 1;
            }
            pass.add(triples.len() as u64)
        })?;
        Ok(counts)
    }

    /// A reader that passes over the triples of `part` once.
    ///
    /// # Errors
    /// Errors of opening the file.
    pub fn reader(&self, held_out: HeldOut, part: TriplePart) -> Result<ArrayTripleReader> {
        let file = File::open(&self.path).with_context(|| self.name())?;
        let (offset, left) = (self.data_offset, self.count);
        Ok(ArrayTripleReader { file, name: self.name(), offset, left, held_out, part })
    }
}

/// Reads the triples of one part of an array, one after the other.
pub struct ArrayTripleReader {
    file: File,
    name: String,
    /// Offset of the next triple, in bytes.
    offset: u64,
    /// Remaining triples of all parts.
    left: u64,
    held_out: HeldOut,
    part: TriplePart,
}

impl TripleReader for ArrayTripleReader {
    fn next_triples(&mut self, most: usize) -> Result<Vec<[i64; 3]>> {
        let mut found = Vec::new();
        while found.is_empty() && self.left > 0 {
            let count = self.left.min(most as u64);
            found.resize(count as usize, [0; 3]);
            let bytes = bytemuck::cast_slice_mut(&mut found);
            self.file
                .read_exact_at(bytes, self.offset)
                .with_context(|| format!("{} at byte {}", self.name, self.offset))
                .map_err(|error| error.hint("run `outercore check`"))?;
            self.offset += 24 * count;
            self.left -= count;
            if self.held_out.any() {
                found.retain(|triple| self.held_out.part_of_triple(triple) == self.part);
            }
        }
        Ok(found)
    }
}

impl Triples for ArrayTriples {
    fn count(&self) -> u64 {
        self.count
    }

    fn weighted(&self) -> bool {
        self.weights.is_some()
    }

    fn for_each(&mut self, take: OnTriples<'_>) -> Result<()> {
        let (mut triples, mut weights) = (Vec::new(), Vec::new());
        let chunk = Bytes(Self::CHUNK * 24);
        ArrayReader::open(&self.path)?.for_each_chunk(chunk, &mut |offset, bytes| {
            triples.clear();
            triples.extend(bytes.as_chunks::<24>().0.iter().map(|row| {
                let number = |at: usize| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&row[8 * at..8 * at + 8]);
                    i64::from_le_bytes(word)
                };
                [number(0), number(1), number(2)]
            }));
            let first = offset / 24;
            if let Some(Weights { file, path, offset }) = &self.weights {
                weights.resize(triples.len(), 0.0);
                let place = offset + 4 * first;
                file.read_exact_at(bytemuck::cast_slice_mut(&mut weights), place)
                    .with_context(|| format!("array `{}` at byte {place}", path.display()))?;
            }
            take(first, &triples, &weights)
        })
    }

    fn name(&self) -> String {
        format!("triples `{}`", self.path.display())
    }
}

/// The triples of an array that belong to one part.
///
/// **Memory**: 512 KiB during a pass.
#[derive(Debug)]
pub struct PartTriples {
    array: ArrayTriples,
    held_out: HeldOut,
    part: TriplePart,
    count: u64,
}

impl PartTriples {
    /// The `count` triples of `array` in `part`.
    pub fn new(array: ArrayTriples, held_out: HeldOut, part: TriplePart, count: u64) -> Self {
        Self { array, held_out, part, count }
    }
}

impl Triples for PartTriples {
    fn count(&self) -> u64 {
        self.count
    }

    fn weighted(&self) -> bool {
        self.array.weighted()
    }

    fn for_each(&mut self, take: OnTriples<'_>) -> Result<()> {
        let (mut first, mut mine, mut of_mine) = (0, Vec::new(), Vec::new());
        let Self { array, held_out, part, .. } = self;
        array.for_each(&mut |_, triples, weights| {
            mine.clear();
            of_mine.clear();
            for (at, triple) in triples.iter().enumerate() {
                if held_out.part_of_triple(triple) == *part {
                    mine.push(*triple);
                    of_mine.extend(weights.get(at));
                }
            }
            take(first, &mine, &of_mine)?;
            first += mine.len() as u64;
            Ok(())
        })
    }

    fn name(&self) -> String {
        format!("{:?} part of {}", self.part, self.array.name()).to_lowercase()
    }
}

fn expect(array: &ArrayReader, path: &Path, dtype: DType, row: &[u64]) -> Result<()> {
    if array.header().dtype == dtype && array.row_shape() == row {
        return Ok(());
    }
    let shape = |row: &[u64]| row.iter().map(|extent| format!(", {extent}")).collect::<String>();
    Err(Error::invalid(format!(
        "array `{}`: found {} [m{}], expected {dtype} [m{}]",
        path.display(),
        array.header().dtype,
        shape(array.row_shape()),
        shape(row)
    )))
}
