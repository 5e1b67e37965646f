//! Phases 3 and 4: convert the numbers of chunks to ids, compare the triples with each other, and
//! write them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result, hint};
use outercore_format::{ArrayEntry, DType, IMPORT_DIRECTORY};
use outercore_io::Disk;

use super::PartSummary;
use super::intake::{Local, triples_path};
use super::journal::{Chunk, Named};
use super::names::{Meaning, NO_ID, Names, STRANGER, map_starts};
use super::options::{Part, TripleTuning};
use super::sorter::Sorter;
use crate::import::Duplicates;
use crate::import::progress::{OnProgress, Phase, Progress, Unit};
use crate::npy::ArrayWriter;

/// A triple of ids.
#[derive(Clone, Copy, Debug)]
struct Triple {
    part: Part,
    /// Head, relation and tail; `NO_ID` for a name without an id.
    ids: [u64; 3],
    weight: f32,
    /// Whether it has a name that does not occur in `train`.
    is_strange: bool,
}

pub(crate) struct Convert<'a> {
    pub disk: &'a dyn Disk,
    pub root: &'a Path,
    /// The files of the arrays, by key.
    pub files: &'a BTreeMap<String, String>,
    pub chunks: &'a [Chunk],
    pub tuning: &'a TripleTuning,
    pub weighted: bool,
    pub duplicates: Duplicates,
}

impl Convert<'_> {
    fn dropped_path(&self) -> PathBuf {
        self.root.join(IMPORT_DIRECTORY).join("dropped")
    }

    /// Counts the triples with names that do not occur in `train`.
    pub fn count_strange(&self, parts: &mut BTreeMap<Part, PartSummary>) -> Result<()> {
        self.for_each(|chunk| chunk.part != Part::Train, &mut |_, triple| {
            parts.entry(triple.part).or_default().unknown_triples += u64::from(triple.is_strange);
            Ok(())
        })
    }

    /// Counts repeated triples. If they are to be dropped, writes their places to a file.
    ///
    /// **Cost** Reads all triples once and sorts them, at 16 bytes each.
    ///
    /// # Errors
    /// `Unsupported`: so many entities, relations and triples that three ids and a place need more
    /// than 128 bits.
    pub fn compare(&self, named: &mut Named, on_progress: OnProgress<'_>) -> Result<()> {
        let total = self.chunks.iter().map(|chunk| chunk.triples).sum::<u64>();
        let packing = Packing::new(named.entities, named.relations, total)?;
        let TripleTuning { merging, smallest_buffer, .. } = *self.tuning;
        let temporary = |name: &str| self.root.join(IMPORT_DIRECTORY).join(name);
        let mut sorter = Sorter::new(self.disk, &temporary("compared"), merging, smallest_buffer);
        let parts = &mut named.parts;
        for part in parts.values_mut() {
            (part.input, part.duplicates, part.in_train, part.unknown_triples) = (0, 0, 0, 0);
        }
        let mut beat = Beat { phase: Phase::Compare, total: 2 * total, on_progress };
        self.for_each(|_| true, &mut |place, triple| {
            beat.at(place)?;
            let part = parts.entry(triple.part).or_default();
            part.input += 1;
            part.unknown_triples += u64::from(triple.is_strange);
            if triple.ids.contains(&NO_ID) {
                return Ok(());
            }
            sorter.push(packing.pack(triple.ids, triple.part, place))
        })?;

        let mut places = Sorter::new(self.disk, &temporary("places"), merging / 4, smallest_buffer);
        let (mut before, mut seen_part, mut in_train) = (None, None, false);
        let mut done = total;
        sorter.finish(&mut |packed| {
            beat.at(done)?;
            done += 1;
            let (triple, part, place) = packing.unpack(packed);
            if before != Some(triple) {
                (before, seen_part, in_train) = (Some(triple), None, part == Part::Train);
            }
            let of_part = parts.entry(part).or_default();
            if seen_part == Some(part) {
                of_part.duplicates += 1;
                if self.duplicates == Duplicates::Drop {
                    places.push(place)?;
                }
            } else if part != Part::Train && in_train {
                of_part.in_train += 1;
            }
            seen_part = Some(part);
            Ok(())
        })?;
        if self.duplicates == Duplicates::Keep {
            return Ok(());
        }
        let mut file = self.disk.create(&self.dropped_path())?;
        let mut buffer: Vec<u64> = Vec::new();
        places.finish(&mut |place| {
            buffer.push(place);
            if buffer.len() == 32 << 10 {
                file.write_all(bytemuck::cast_slice(&buffer))?;
                buffer.clear();
            }
            Ok(())
        })?;
        file.write_all(bytemuck::cast_slice(&buffer))?;
        file.sync()?;
        self.disk.sync_dir(&self.root.join(IMPORT_DIRECTORY))
    }

    /// Writes the arrays of all parts.
    pub fn write(
        &self,
        named: &mut Named,
        on_progress: OnProgress<'_>,
    ) -> Result<BTreeMap<String, ArrayEntry>> {
        let total = self.chunks.iter().map(|chunk| chunk.triples).sum();
        let mut beat = Beat { phase: Phase::Write, total, on_progress };
        let mut outputs = BTreeMap::new();
        for part in named.parts.keys() {
            outputs.insert(*part, Output::create(self, *part)?);
        }
        let mut dropped = match self.duplicates {
            Duplicates::Keep => Dropped::none(),
            Duplicates::Drop => Dropped::open(&self.dropped_path())?,
        };
        self.for_each(|_| true, &mut |place, triple| {
            beat.at(place)?;
            if dropped.has(place)? || triple.ids.contains(&NO_ID) {
                return Ok(());
            }
            match outputs.get_mut(&triple.part) {
                Some(output) => output.push(&triple),
                None => Err(Error::internal(format!("triples of `{}` came later", triple.part))),
            }
        })?;
        let mut arrays = BTreeMap::new();
        for (part, output) in outputs {
            named.parts.entry(part).or_default().triples = output.triples.rows();
            arrays.insert(part.key(), output.triples.finish()?);
            if let Some(weights) = output.weights {
                arrays.insert(part.weight_key(), weights.finish()?);
            }
        }
        Ok(arrays)
    }

    /// Calls `take` with the triples of the `wanted` chunks and their places among all triples, in
    /// order.
    fn for_each(
        &self,
        wanted: impl Fn(&Chunk) -> bool,
        take: &mut dyn FnMut(u64, Triple) -> Result<()>,
    ) -> Result<()> {
        const BLOCK: u64 = 16 << 10;
        let path = triples_path(self.root);
        let file = File::open(&path).with_context(|| format!("open `{}`", path.display()))?;
        let mut entities = Meanings::open(self.root, self.chunks, Names::Entity)?;
        let mut relations = Meanings::open(self.root, self.chunks, Names::Relation)?;
        let mut block: Vec<Local> = Vec::new();
        let mut place = 0;
        for (index, chunk) in self.chunks.iter().enumerate() {
            if !wanted(chunk) {
                place += chunk.triples;
                continue;
            }
            entities.load(index)?;
            relations.load(index)?;
            let end = place + chunk.triples;
            while place < end {
                let count = (end - place).min(BLOCK);
                block.resize(count as usize, [0; 4]);
                let offset = place * size_of::<Local>() as u64;
                file.read_exact_at(bytemuck::cast_slice_mut(&mut block), offset).with_context(
                    || format!("read {count} triples at {place} of `{}`", path.display()),
                )?;
                for &[head, relation, tail, weight] in &block {
                    let found = [entities.of(head)?, relations.of(relation)?, entities.of(tail)?];
                    let triple = Triple {
                        part: chunk.part,
                        ids: found.map(|id| if id == NO_ID { id } else { id & !STRANGER }),
                        weight: f32::from_bits(weight),
                        is_strange: found.iter().any(|id| id & STRANGER != 0),
                    };
                    take(place, triple)?;
                    place += 1;
                }
            }
        }
        Ok(())
    }
}

/// Reports progress from time to time.
struct Beat<'a> {
    phase: Phase,
    total: u64,
    on_progress: OnProgress<'a>,
}

impl Beat<'_> {
    fn at(&mut self, done: u64) -> Result<()> {
        const EVERY: u64 = 1 << 18;
        if !done.is_multiple_of(EVERY) {
            return Ok(());
        }
        let Self { phase, total, .. } = *self;
        (self.on_progress)(Progress { phase, done, total, unit: Unit::Triples })
    }
}

/// The ids for the numbers of a chunk.
pub(crate) struct Meanings {
    file: File,
    path: PathBuf,
    starts: Vec<u64>,
    /// The ids, by number.
    ids: Vec<u64>,
}

impl Meanings {
    pub fn open(root: &Path, chunks: &[Chunk], kind: Names) -> Result<Self> {
        let path = kind.map_path(root);
        let file = File::open(&path).with_context(|| format!("open `{}`", path.display()))?;
        Ok(Self { file, path, starts: map_starts(chunks, kind), ids: Vec::new() })
    }

    pub fn load(&mut self, chunk: usize) -> Result<()> {
        const BLOCK: usize = 16 << 10;
        let (mut at, end) = (self.starts[chunk], self.starts[chunk + 1]);
        let size = size_of::<Meaning>() as u64;
        let names = ((end - at) / size) as usize;
        self.ids.clear();
        self.ids.reserve_exact(names);
        self.ids.resize(names, NO_ID);
        let mut block: Vec<Meaning> = Vec::new();
        while at < end {
            block.resize((((end - at) / size) as usize).min(BLOCK), [0; 3]);
            self.file.read_exact_at(bytemuck::cast_slice_mut(&mut block), at).with_context(
                || format!("read {} names at {at} of `{}`", block.len(), self.path.display()),
            )?;
            for &[number, low, high] in &block {
                let id = u64::from(high) << 32 | u64::from(low);
                *self.ids.get_mut(number as usize).ok_or_else(|| damaged(&self.path))? = id;
            }
            at += block.len() as u64 * size;
        }
        Ok(())
    }

    pub fn of(&self, number: u32) -> Result<u64> {
        self.ids.get(number as usize).copied().ok_or_else(|| damaged(&self.path))
    }
}

fn damaged(path: &Path) -> Error {
    Error::corrupt(format!("`{}` has a number that its chunk does not have", path.display()))
        .hint(hint!("start the import again with " {overwrite = true}))
}

/// Packs three ids, a part and a place into 128 bits, so that sorting the numbers sorts the
/// triples.
#[derive(Clone, Copy, Debug)]
struct Packing {
    entity: u32,
    relation: u32,
    place: u32,
}

impl Packing {
    const PART: u32 = 2;

    fn new(entities: u64, relations: u64, triples: u64) -> Result<Self> {
        let bits = |count: u64| u64::BITS - count.saturating_sub(1).leading_zeros();
        let packing =
            Self { entity: bits(entities), relation: bits(relations), place: bits(triples) };
        if 2 * packing.entity + packing.relation + packing.place + Self::PART <= u128::BITS {
            return Ok(packing);
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{triples} triples of {entities} entities and {relations} relations: more than 128 \
                 bits tell apart"
            ),
        ))
    }

    fn pack(self, [head, relation, tail]: [u64; 3], part: Part, place: u64) -> u128 {
        let mut packed = u128::from(head);
        packed = packed << self.relation | u128::from(relation);
        packed = packed << self.entity | u128::from(tail);
        packed = packed << Self::PART | part as u128;
        packed << self.place | u128::from(place)
    }

    /// The triple as one number, its part and its place.
    fn unpack(self, packed: u128) -> (u128, Part, u64) {
        let place = packed & ((1 << self.place) - 1);
        let rest = packed >> self.place;
        let part = Part::ALL[(rest & 3) as usize % Part::ALL.len()];
        (rest >> Self::PART, part, place as u64)
    }
}

/// The arrays of a part.
struct Output {
    triples: ArrayWriter,
    weights: Option<ArrayWriter>,
}

impl Output {
    fn create(convert: &Convert<'_>, part: Part) -> Result<Self> {
        let writer = |key: &str, dtype, row: &[u64]| {
            ArrayWriter::create(convert.disk, convert.root, &convert.files[key], dtype, row)
        };
        let triples = writer(&part.key(), DType::I64, &[3])?;
        let weights =
            convert.weighted.then(|| writer(&part.weight_key(), DType::F32, &[])).transpose()?;
        Ok(Self { triples, weights })
    }

    fn push(&mut self, triple: &Triple) -> Result<()> {
        self.triples.write(bytemuck::cast_slice(&triple.ids))?;
        match &mut self.weights {
            Some(weights) => weights.write_slice(&[triple.weight]),
            None => Ok(()),
        }
    }
}

/// The places of the triples to drop, ascending.
struct Dropped {
    file: Option<BufReader<File>>,
    next: Option<u64>,
}

impl Dropped {
    fn none() -> Self {
        Self { file: None, next: None }
    }

    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open `{}`", path.display()))?;
        let mut dropped = Self { file: Some(BufReader::new(file)), next: None };
        dropped.advance()?;
        Ok(dropped)
    }

    /// Whether the triple at `place` is dropped; places must ascend between calls.
    fn has(&mut self, place: u64) -> Result<bool> {
        if self.next != Some(place) {
            return Ok(false);
        }
        self.advance()?;
        Ok(true)
    }

    fn advance(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut bytes = [0; 8];
        self.next = match file.read_exact(&mut bytes) {
            Ok(()) => Some(u64::from_le_bytes(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error).context("places of dropped triples"),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_the_order_and_gives_back_part_and_place() {
        let packing = Packing::new(1000, 7, 1 << 20).unwrap();
        let mut rows = Vec::new();
        for ids in [[0, 0, 0], [0, 6, 999], [1, 0, 5], [999, 6, 0], [999, 6, 999]] {
            for part in Part::ALL {
                for place in [0, 5, (1 << 20) - 1] {
                    rows.push((ids, part, place));
                }
            }
        }
        let packed: Vec<u128> = rows.iter().map(|row| packing.pack(row.0, row.1, row.2)).collect();
        assert!(packed.is_sorted());
        for (row, packed) in rows.iter().zip(&packed) {
            let (triple, part, place) = packing.unpack(*packed);
            assert_eq!((part, place), (row.1, row.2));
            assert_eq!(triple, packing.unpack(packing.pack(row.0, Part::Train, 0)).0);
        }
        let error = Packing::new(1 << 50, 1 << 10, 1 << 40).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
