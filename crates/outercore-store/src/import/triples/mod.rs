//! Import of knowledge graphs: converts triples of names to triples of ids and two dictionaries,
//! within a memory budget.
//!
//! There are four phases. *Read*: check the triples and write them with numbers in place of names,
//! in chunks whose dictionaries fit in memory. Each dictionary becomes a sorted run. *Names*: merge
//! the runs. The id of a name is its place among all names, so it depends on nothing else.
//! *Compare*: sort the triples to find repeated ones. *Write*: convert numbers to ids, chunk by
//! chunk. All reads and writes are sequential.

mod convert;
mod dictionary;
mod intake;
mod journal;
mod line;
mod names;
mod numbering;
mod options;
mod sorter;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc as Shared;
use std::time::{SystemTime, UNIX_EPOCH};

use outercore_core::{Error, ErrorKind, Result, hint};
use outercore_format::{ArrayEntry, IMPORT_DIRECTORY, Manifest, NodeType, keys, utc_timestamp};
use outercore_io::Disk;
use outercore_text::Dialect;
use serde::{Deserialize, Serialize};

use super::input_file::InputFile;
use super::progress::OnProgress;
use crate::destination::{Destination, Request};
use convert::Convert;
use intake::{Intake, uneven};
use journal::{Identity, Journal, Named, Stage};
use names::{Merge, Merged};

pub use names::Names;
pub use numbering::DictionaryImport;
pub use options::{Column, Columns, Part, TripleImportOptions, TripleTuning, Unknown};

/// Counts of one part of the triples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSummary {
    /// Triples of the input.
    pub input: u64,
    /// Lines of the input that repeat the header of their file.
    #[serde(default)]
    pub repeated_headers: u64,
    /// Triples in the data set.
    pub triples: u64,
    /// Triples that occurred earlier in the same part.
    pub duplicates: u64,
    /// Triples of `valid` or `test` that also occur in `train`; each counts once.
    pub in_train: u64,
    /// Entities that do not occur in `train`.
    pub unknown_entities: u64,
    /// Relations that do not occur in `train`.
    pub unknown_relations: u64,
    /// Triples with such an entity or relation.
    pub unknown_triples: u64,
    /// The first such entities and then relations, at most ten each.
    pub unknown: Vec<String>,
}

/// A knowledge graph whose arrays are complete on disk, and counts of the input.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TripleArtifacts {
    /// Number of entities with an id.
    pub entities: u64,
    /// Number of relations with an id.
    pub relations: u64,
    /// The parts of the input.
    pub parts: BTreeMap<Part, PartSummary>,
    /// The manifest's entries by key.
    pub arrays: BTreeMap<String, ArrayEntry>,
}

/// Names in one buffer: name `i` is `bytes[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Copy, Debug)]
pub struct NameColumn<'a> {
    /// Ascending offsets, one more than there are names.
    pub offsets: &'a [i64],
    /// The names in UTF-8, one after the other.
    pub bytes: &'a [u8],
}

impl<'a> NameColumn<'a> {
    fn check(&self, what: &str, rows: usize) -> Result<()> {
        if self.offsets.len() != rows + 1 {
            return Err(uneven(&format!(
                "{} {what}, expected {rows} as there are heads",
                self.offsets.len().saturating_sub(1)
            )));
        }
        let first = self.offsets[0] >= 0;
        let last = usize::try_from(self.offsets[rows]).is_ok_and(|end| end <= self.bytes.len());
        if first && last && self.offsets.is_sorted() {
            return Ok(());
        }
        Err(uneven(&format!("the offsets of its {what} do not lie in their bytes")))
    }

    fn name(&self, row: usize) -> &'a [u8] {
        &self.bytes[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }
}

/// A batch of triples.
#[derive(Clone, Copy, Debug)]
pub struct TripleBatch<'a> {
    /// The heads.
    pub heads: NameColumn<'a>,
    /// The relations.
    pub relations: NameColumn<'a>,
    /// The tails.
    pub tails: NameColumn<'a>,
    /// The weights, if the columns of the import include a weight.
    pub weights: Option<&'a [f32]>,
}

/// Imports triples of names as a data set.
///
/// Give the sources one after the other, each for a part. Ids follow the order of names: shorter
/// names first, then by bytes. So numeric names keep their order, and the names `0..n` are equal to
/// their ids.
///
/// **Restart** Durable progress is recorded in `.import/journal.json`. To resume an interrupted
/// import, start it again with the same columns, the same fingerprint, and the same sources in the
/// same order. The treatment of unknown names and duplicates may change. Until
/// [`TripleImport::commit`] there is no data set, or the previous data set stays complete.
///
/// **Cost** Temporary disk space: 16 bytes per triple, the names of every chunk, and 16 bytes per
/// triple for the comparison if the triples do not fit in memory.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use outercore_io::RealDisk;
/// use outercore_store::import::{Part, TripleImport, TripleImportOptions};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path().join("graph");
/// # let list = directory.path().join("train.tsv");
/// std::fs::write(&list, "Bonn\tis in\tGermany\nRhine\tflows through\tBonn\n")?;
/// let options = TripleImportOptions::default();
/// let mut import = TripleImport::begin(Arc::new(RealDisk), &root, options, "example")?;
/// import.text(Part::Train, &list, None, &mut |_| Ok(()))?;
/// let found = import.finish(&mut |_| Ok(()))?;
/// assert_eq!((found.entities, found.relations), (3, 2));
/// let manifest = import.commit()?;
/// assert_eq!(manifest.arrays["triples/train"].shape, [2, 3]);
/// # Ok(())
/// # }
/// ```
pub struct TripleImport {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    options: TripleImportOptions,
    tuning: TripleTuning,
    intake: Intake,
    artifacts: Option<TripleArtifacts>,
    /// Whether a step failed, so that this object can no longer be used.
    failed: bool,
}

impl TripleImport {
    /// Starts an import into the directory `root`, or resumes the interrupted import there.
    ///
    /// `fingerprint` identifies input that the import cannot check itself: the origin of batches.
    ///
    /// # Errors
    /// `Invalid`: `root` holds a data set, another unfinished import or other files, or another
    /// process writes to it. `Budget`: too little memory, with the smallest sufficient amount.
    pub fn begin(
        disk: Shared<dyn Disk>,
        root: &Path,
        options: TripleImportOptions,
        fingerprint: &str,
    ) -> Result<Self> {
        let tuning = options.tuning()?;
        let request = Request {
            overwrite: options.overwrite,
            command: &options.provenance.command,
            inputs: &options.provenance.inputs,
        };
        let mut destination = Destination::begin(Shared::clone(&disk), root, request)?;
        let identity = Identity::new(&options, fingerprint);
        let load = |root: &Path| Journal::load(root, &options, &identity);
        let known = destination.resume(load, Journal::is_current)?;
        let journal = known.unwrap_or_else(|| Journal::new(&options, identity));
        let intake =
            Intake::new(Shared::clone(&disk), root, &options, tuning, journal, destination);
        let root = root.to_owned();
        Ok(Self { disk, root, options, tuning, intake, artifacts: None, failed: false })
    }

    /// Reads the triples of a text file in the format `dialect`, or in the format that
    /// [`outercore_text::detect`] finds.
    ///
    /// # Errors
    /// `Invalid`: a line that is not a triple, with its number, or a file with an ambiguous format.
    /// `Corrupt`: a damaged compressed file.
    pub fn text(
        &mut self,
        part: Part,
        path: &Path,
        dialect: Option<Dialect>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        self.guarded(|import| {
            import.intake.destination.refuse_inside(path)?;
            import.intake.text(part, InputFile::of_kind("triples", path)?, dialect, on_progress)
        })
    }

    /// Adds a batch of triples. All batches until another source or part count as one source; their
    /// sizes do not matter.
    ///
    /// # Errors
    /// `Invalid`: lengths that differ, empty names, names that are not UTF-8, unexpected weights or
    /// missing weights.
    pub fn push(&mut self, part: Part, batch: &TripleBatch<'_>) -> Result<()> {
        self.guarded(|import| {
            let rows = batch.heads.offsets.len().saturating_sub(1);
            batch.heads.check("heads", rows)?;
            batch.relations.check("relations", rows)?;
            batch.tails.check("tails", rows)?;
            if batch.weights.is_some() != import.options.columns.has_weight() {
                return Err(uneven("weights must come with all triples or with none"));
            }
            if batch.weights.is_some_and(|weights| weights.len() != rows) {
                return Err(uneven("expected a weight for each triple"));
            }
            import.intake.begin_push(part)?;
            for row in 0..rows {
                let named = line::Named {
                    head: batch.heads.name(row),
                    relation: batch.relations.name(row),
                    tail: batch.tails.name(row),
                    weight: batch.weights.map_or(1.0, |weights| weights[row]),
                };
                import.intake.push(part, &named)?;
            }
            Ok(())
        })
    }

    /// Writes the arrays of all triples.
    ///
    /// # Errors
    /// `Invalid`: no triples in `train`, or names in `valid` and `test` that do not occur in
    /// `train` and are neither kept nor dropped. `Budget`: too little memory. `NoSpace`, `Io`;
    /// errors of `on_progress`.
    pub fn finish(&mut self, on_progress: OnProgress<'_>) -> Result<&TripleArtifacts> {
        self.guarded(|import| {
            import.intake.close()?;
            loop {
                match import.intake.journal.stage.clone() {
                    Stage::Read => import.close_reading()?,
                    Stage::Names => import.name(&mut *on_progress)?,
                    Stage::Compare(named) => import.compare(named, &mut *on_progress)?,
                    Stage::Write(named) => import.write(named, &mut *on_progress)?,
                    Stage::Done(artifacts) => {
                        import.artifacts = Some(artifacts);
                        return Ok(());
                    }
                }
            }
        })?;
        self.artifacts.as_ref().ok_or_else(|| Error::internal("triples finished without a result"))
    }

    /// Writes the manifest, which commits the data set.
    ///
    /// # Errors
    /// `Invalid`: the import is not finished. As [`crate::editor::commit`].
    pub fn commit(mut self) -> Result<Manifest> {
        let Some(artifacts) = self.artifacts else {
            return Err(Error::invalid("the import of triples is not finished"));
        };
        let mut manifest = Manifest::homogeneous(artifacts.entities, 0, false);
        manifest.edge_types.clear();
        let entities = NodeType::of(artifacts.entities);
        manifest.node_types.insert(keys::NODE.to_owned(), entities);
        manifest.arrays = artifacts.arrays;
        manifest.provenance = self.options.provenance;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        manifest.created = utc_timestamp(now);
        self.intake.destination.commit(&manifest)?;
        Ok(manifest)
    }

    fn close_reading(&mut self) -> Result<()> {
        let journal = &mut self.intake.journal;
        if !journal.chunks.iter().any(|chunk| chunk.part == Part::Train) {
            self.intake.destination.give_up();
            return Err(Error::invalid("`train` has no triples")
                .hint("is it the right file? blank lines and a header are no triples"));
        }
        journal.stage = Stage::Names;
        journal.save(&*self.disk, &self.root)
    }

    /// Merges the dictionaries and checks for names that do not occur in `train`.
    fn name(&mut self, on_progress: OnProgress<'_>) -> Result<()> {
        let keys = [Names::Entity, Names::Relation]
            .map(|names| [names.offsets_key(), names.bytes_key()])
            .concat();
        self.intake.destination.claim(&keys.iter().map(String::as_str).collect::<Vec<_>>())?;
        let merge = Merge {
            disk: &*self.disk,
            root: &self.root,
            files: self.intake.destination.files(),
            chunks: &self.intake.journal.chunks,
            tuning: &self.tuning,
            memory: self.options.memory,
            keep: self.options.unknown == Unknown::Keep,
        };
        let merged = merge.run(Names::Entity, &mut *on_progress).and_then(|entities| {
            merge.run(Names::Relation, on_progress).map(|relations| (entities, relations))
        });
        // There were too many runs to merge. Only reading again with a larger budget gives fewer
        // runs, so the triples read so far are useless.
        if merged.as_ref().is_err_and(|error| error.kind() == ErrorKind::Budget) {
            self.intake.destination.give_up();
        }
        let (entities, relations) = merged?;
        let mut named = Named {
            entities: entities.names,
            relations: relations.names,
            parts: summaries(&self.intake.journal, &entities, &relations),
            ..Named::default()
        };
        if self.options.unknown == Unknown::Error && named.parts.values().any(has_strangers) {
            self.convert().count_strange(&mut named.parts)?;
            return Err(refusal(&named.parts));
        }
        named.arrays = entities.arrays.into_iter().chain(relations.arrays).collect();
        for directory in [self.root.join("names"), self.root.join(IMPORT_DIRECTORY)] {
            self.disk.sync_dir(&directory)?;
        }
        self.disk.sync_dir(&self.root)?;
        self.go_on(Stage::Compare(named))
    }

    fn compare(&mut self, mut named: Named, on_progress: OnProgress<'_>) -> Result<()> {
        self.convert().compare(&mut named, on_progress)?;
        self.go_on(Stage::Write(named))
    }

    fn write(&mut self, mut named: Named, on_progress: OnProgress<'_>) -> Result<()> {
        let keys = named.parts.keys().flat_map(|part| [part.key(), part.weight_key()]);
        let keys: Vec<String> = keys.collect();
        self.intake.destination.claim(&keys.iter().map(String::as_str).collect::<Vec<_>>())?;
        let arrays = self.convert().write(&mut named, on_progress)?;
        self.disk.sync_dir(&self.root.join("triples"))?;
        self.disk.sync_dir(&self.root)?;
        let Named { entities, relations, mut parts, arrays: names } = named;
        for source in &self.intake.journal.sources {
            parts.entry(source.part).or_default().repeated_headers += source.repeated_headers;
        }
        let arrays = names.into_iter().chain(arrays).collect();
        self.go_on(Stage::Done(TripleArtifacts { entities, relations, parts, arrays }))
    }

    fn convert(&self) -> Convert<'_> {
        Convert {
            disk: &*self.disk,
            root: &self.root,
            files: self.intake.destination.files(),
            chunks: &self.intake.journal.chunks,
            tuning: &self.tuning,
            weighted: self.options.columns.has_weight(),
            duplicates: self.options.duplicates,
        }
    }

    fn go_on(&mut self, stage: Stage) -> Result<()> {
        self.intake.journal.stage = stage;
        self.intake.journal.save(&*self.disk, &self.root)
    }

    /// Ends the import because the caller found a fault in the input and reports it.
    pub fn end_refused(mut self) {
        let is_worth_keeping = self.intake.has_whole_source();
        self.intake.destination.failed(&Error::invalid("refused"), is_worth_keeping);
    }

    /// Runs a step, unless an earlier step failed: after a failure, the state in memory may differ
    /// from the state on disk.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(Error::invalid("the import was stopped by an error before")
                .hint("begin it again; it goes on from its journal"));
        }
        let result = step(self);
        if let Err(error) = &result {
            self.failed = true;
            let is_worth_keeping = self.intake.has_whole_source();
            self.intake.destination.failed(error, is_worth_keeping);
        }
        result
    }
}

/// A summary of every part of the input, with the names that do not occur in `train`.
fn summaries(
    journal: &Journal,
    entities: &Merged,
    relations: &Merged,
) -> BTreeMap<Part, PartSummary> {
    let of_part = |part: Part| {
        let mut summary = PartSummary::default();
        if let Some(strangers) = entities.strangers.get(&part) {
            summary.unknown_entities = strangers.count;
            summary.unknown.extend(strangers.first.iter().cloned());
        }
        if let Some(strangers) = relations.strangers.get(&part) {
            summary.unknown_relations = strangers.count;
            summary.unknown.extend(strangers.first.iter().cloned());
        }
        summary
    };
    journal.sources.iter().map(|source| (source.part, of_part(source.part))).collect()
}

fn has_strangers(part: &PartSummary) -> bool {
    part.unknown_entities + part.unknown_relations > 0
}

fn refusal(parts: &BTreeMap<Part, PartSummary>) -> Error {
    let told = parts.iter().filter(|(_, summary)| has_strangers(summary)).map(|(part, summary)| {
        let listed: Vec<String> = summary.unknown.iter().map(|name| format!("`{name}`")).collect();
        let all = summary.unknown_entities + summary.unknown_relations;
        let more = if all > listed.len() as u64 { ", …" } else { "" };
        format!(
            "`{part}` has {} entities and {} relations that `train` does not have, in {} triples: \
             {}{more}",
            summary.unknown_entities,
            summary.unknown_relations,
            summary.unknown_triples,
            listed.join(", ")
        )
    });
    Error::invalid(told.collect::<Vec<_>>().join("; ")).hint(hint!(
        "pass " {unknown = "drop"} " to leave those triples out, or " {unknown = "keep"} " to "
        "give the names ids; it goes on from here"
    ))
}
