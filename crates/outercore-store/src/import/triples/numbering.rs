//! Numbers names on disk, within a memory budget: the dictionary of an import without its triples.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc as Shared;

use outercore_core::{Bytes, Context, Result};
use outercore_format::{DATA_OFFSET, DType, IMPORT_DIRECTORY, Manifest, Provenance};
use outercore_io::{Disk, WriteFile};

use super::NameColumn;
use super::convert::Meanings;
use super::dictionary::{Dictionary, Run};
use super::intake::runs_path;
use super::journal::Chunk;
use super::line::check_name;
use super::names::{Merge, Names};
use super::options::{Part, TripleImportOptions, TripleTuning};
use crate::destination::{Destination, Request};
use crate::import::progress::{OnProgress, Phase, Progress, Unit};
use crate::npy::ArrayWriter;

/// Gives each distinct name a number from 0: shorter names first, then by bytes.
///
/// The result is a data set with the names, and the number of each name that was pushed, in the
/// array [`DictionaryImport::NUMBERS`]. It replaces another dictionary in its directory. An
/// interrupted dictionary starts again.
///
/// **Cost** Temporary disk space: 4 bytes for each name that was pushed, and the distinct names.
pub struct DictionaryImport {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    memory: Bytes,
    tuning: TripleTuning,
    destination: Destination,
    chunks: Vec<Chunk>,
    /// Names of the current chunk.
    names: Dictionary,
    runs: Box<dyn WriteFile>,
    /// Numbers of all names within their chunks.
    numbers: ArrayWriter,
}

impl DictionaryImport {
    /// Key of the array with the numbers: `int64 [pushed]`.
    pub const NUMBERS: &str = "names/entity.numbers";

    /// Starts a dictionary in the directory `root`.
    ///
    /// # Errors
    /// As [`super::TripleImport::begin`].
    pub fn begin(disk: Shared<dyn Disk>, root: &Path, memory: Bytes) -> Result<Self> {
        let tuning = TripleImportOptions { memory, ..Default::default() }.tuning()?;
        let request = Request { overwrite: true, command: "", inputs: &[] };
        let mut destination = Destination::begin(Shared::clone(&disk), root, request)?;
        destination.resume::<()>(|_| Ok(None), |()| false)?;
        destination.make()?;
        let runs = disk.create(&runs_path(root))?;
        let numbers = ArrayWriter::create(&*disk, root, &numbers_file(), DType::U32, &[])?;
        let (root, names) = (root.to_owned(), Dictionary::new(tuning.entities));
        let chunks = Vec::new();
        Ok(Self { disk, root, memory, tuning, destination, chunks, names, runs, numbers })
    }

    /// Adds names.
    ///
    /// # Errors
    /// `Invalid`: names that are empty, too long or not UTF-8.
    pub fn push(&mut self, names: NameColumn<'_>) -> Result<()> {
        let rows = names.offsets.len().saturating_sub(1);
        names.check("names", rows)?;
        let mut numbers = Vec::with_capacity(rows);
        for row in 0..rows {
            let name = names.name(row);
            check_name("name", name)?;
            if !self.names.has_room(1, name.len()) {
                self.numbers.write_slice(&numbers)?;
                numbers.clear();
                self.end_chunk()?;
            }
            numbers.push(self.names.number(name));
        }
        self.numbers.write_slice(&numbers)
    }

    /// Writes the names of the chunk as a sorted run.
    fn end_chunk(&mut self) -> Result<()> {
        let offset = self.chunks.iter().map(|chunk| chunk.entities.bytes).sum();
        let before = self.chunks.iter().map(|chunk| chunk.triples).sum::<u64>();
        let entities = self.names.write(&mut *self.runs, offset)?;
        self.names.clear();
        let triples = self.numbers.rows() - before;
        let (part, relations) = (Part::Train, Run::default());
        self.chunks.push(Chunk { part, triples, entities, relations });
        Ok(())
    }

    /// Merges the names, writes the numbers and commits the data set; `inputs` tell another one.
    ///
    /// # Errors
    /// `Budget`: too little memory. `NoSpace`, `Io`; errors of `on_progress`.
    pub fn finish(mut self, inputs: Vec<String>, on_progress: OnProgress<'_>) -> Result<()> {
        self.end_chunk()?;
        self.numbers.finish()?;
        // Frees its memory for the merge.
        drop(self.names);
        let (offsets, bytes) = (Names::Entity.offsets_key(), Names::Entity.bytes_key());
        self.destination.claim(&[&offsets, &bytes, Self::NUMBERS])?;
        let (disk, root, chunks) = (&*self.disk, &*self.root, &*self.chunks);
        let (files, tuning, memory) = (self.destination.files(), &self.tuning, self.memory);
        let merge = Merge { disk, root, files, chunks, tuning, memory, keep: true };
        let merged = merge.run(Names::Entity, &mut *on_progress)?;

        const BLOCK: u64 = 64 << 10;
        let mut writer = ArrayWriter::create(disk, root, &files[Self::NUMBERS], DType::I64, &[])?;
        let read = || format!("read `{}`", numbers_file());
        let mut file = File::open(root.join(numbers_file())).with_context(read)?;
        file.seek(SeekFrom::Start(DATA_OFFSET)).with_context(read)?;
        let mut meanings = Meanings::open(root, chunks, Names::Entity)?;
        let total = chunks.iter().map(|chunk| chunk.triples).sum();
        for (index, chunk) in chunks.iter().enumerate() {
            meanings.load(index)?;
            let mut left = chunk.triples;
            while left > 0 {
                let mut block = vec![0u32; left.min(BLOCK) as usize];
                file.read_exact(bytemuck::cast_slice_mut(&mut block)).with_context(read)?;
                let ids = block.iter().map(|&number| meanings.of(number).map(|id| id as i64));
                writer.write_slice(&ids.collect::<Result<Vec<_>>>()?)?;
                left -= block.len() as u64;
                let done = writer.rows();
                on_progress(Progress { phase: Phase::Write, done, total, unit: Unit::Rows })?;
            }
        }

        let mut manifest = Manifest::homogeneous(merged.names, 0, false);
        manifest.edge_types.clear();
        manifest.arrays = merged.arrays;
        manifest.arrays.insert(Self::NUMBERS.to_owned(), writer.finish()?);
        manifest.provenance = Provenance { inputs, ..Default::default() };
        for directory in ["names", IMPORT_DIRECTORY, ""] {
            disk.sync_dir(&root.join(directory))?;
        }
        self.destination.commit(&manifest)
    }
}

fn numbers_file() -> String {
    format!("{IMPORT_DIRECTORY}/numbers.npy")
}
