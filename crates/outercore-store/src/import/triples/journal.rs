use std::collections::BTreeMap;
use std::path::Path;

use outercore_core::{Error, Result};
use outercore_format::ArrayEntry;
use outercore_io::Disk;
use outercore_text::{Dialect, Position};
use serde::{Deserialize, Serialize};

use super::dictionary::Run;
use super::options::{Part, TripleImportOptions, Unknown};
use super::{PartSummary, TripleArtifacts};
use crate::import::input_file::InputFile;
use crate::import::journal_file::{self, other_import};
use crate::import::{Duplicates, sources};

const KIND: &str = "triples";

/// All state that a resumed import of triples needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    identity: Identity,
    rules: Rules,
    pub sources: Vec<SourceRecord>,
    pub chunks: Vec<Chunk>,
    pub stage: Stage,
}

/// Options that must be equal for a resumed reading phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    fingerprint: String,
    columns: String,
}

impl Identity {
    pub fn new(options: &TripleImportOptions, fingerprint: &str) -> Self {
        Self { fingerprint: fingerprint.to_owned(), columns: options.columns.to_string() }
    }
}

/// Options that matter only after the triples are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    pub unknown: Unknown,
    pub duplicates: Duplicates,
}

/// The durable part of one source of triples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceRecord {
    pub part: Part,
    pub source: Source,
    /// Number of durable triples.
    pub triples: u64,
    /// Position after them in a text.
    pub position: Position,
    /// Whether this is the whole source.
    pub complete: bool,
    /// Lines so far in a text that repeat its header.
    pub repeated_headers: u64,
}

/// A source of triples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Text(InputFile, Box<Dialect>),
    /// Pushed by the caller.
    Push,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(file, _) => write!(f, "`{}`", file.path.display()),
            Self::Push => f.write_str("triples handed over in batches"),
        }
    }
}

impl sources::SourceRecord for SourceRecord {
    const ROWS: &'static str = "triples";

    fn is_same(&self, other: &Self) -> bool {
        self.part == other.part && self.source == other.source
    }

    fn rows(&self) -> u64 {
        self.triples
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn name(&self) -> String {
        self.source.to_string()
    }

    fn mismatch(&self, index: usize, found: &Self) -> Error {
        let same_path = match (&self.source, &found.source) {
            (Source::Text(left, _), Source::Text(right, _)) => left.path == right.path,
            _ => false,
        };
        Error::invalid(if same_path && self.part == found.part {
            format!("{} has changed since the import was begun", found.source)
        } else {
            format!(
                "source {} of the triples is {} for `{}`, but the unfinished import has {} for \
                 `{}` there",
                index + 1,
                found.source,
                found.part,
                self.source,
                self.part
            )
        })
    }
}

/// Consecutive triples of one part that share a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chunk {
    pub part: Part,
    /// Number of its triples. The file of triples holds one chunk after the other.
    pub triples: u64,
    pub entities: Run,
    pub relations: Run,
}

/// The current phase, and the results of earlier phases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// Sources are read.
    Read,
    /// Dictionaries are merged.
    Names,
    /// Triples are compared with each other.
    Compare(Named),
    /// Triples are written.
    Write(Named),
    Done(TripleArtifacts),
}

/// Results of merging the dictionaries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    pub entities: u64,
    pub relations: u64,
    pub arrays: BTreeMap<String, ArrayEntry>,
    pub parts: BTreeMap<Part, PartSummary>,
}

impl Journal {
    pub fn new(options: &TripleImportOptions, identity: Identity) -> Self {
        Self {
            identity,
            rules: rules(options),
            sources: Vec::new(),
            chunks: Vec::new(),
            stage: Stage::Read,
        }
    }

    /// The journal of the interrupted import in `root`, if there is one and it matches `identity`.
    /// With other rules, the import resumes at the first phase that depends on the rules.
    ///
    /// # Errors
    /// As [`journal_file::load`].
    pub fn load(
        root: &Path,
        options: &TripleImportOptions,
        identity: &Identity,
    ) -> Result<Option<Self>> {
        let Some(mut journal) = journal_file::load::<Self>(root, KIND)? else { return Ok(None) };
        if journal.identity != *identity {
            return Err(other_import(root));
        }
        let rules = rules(options);
        if journal.rules != rules {
            journal.rules = rules;
            if journal.stage != Stage::Read {
                journal.stage = Stage::Names;
            }
        }
        Ok(Some(journal))
    }

    /// Whether its input files are unchanged.
    pub fn is_current(&self) -> bool {
        self.sources.iter().all(|record| match &record.source {
            Source::Text(file, _) => file.is_current(),
            Source::Push => true,
        })
    }

    /// Removes the chunks of sources that are no longer recorded.
    pub fn trim_chunks(&mut self) {
        let recorded: u64 = self.sources.iter().map(|source| source.triples).sum();
        while self.triples() > recorded {
            self.chunks.pop();
        }
    }

    /// Replaces the journal on disk.
    pub fn save(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        journal_file::save(self, KIND, disk, root)
    }

    /// Number of triples in all chunks.
    pub fn triples(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.triples).sum()
    }

    /// Bytes of all runs of names.
    pub fn run_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.entities.bytes + chunk.relations.bytes).sum()
    }
}

fn rules(options: &TripleImportOptions) -> Rules {
    Rules { unknown: options.unknown, duplicates: options.duplicates }
}
