use std::collections::BTreeMap;
use std::path::Path;

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::ArrayEntry;
use outercore_io::Disk;
use outercore_text::{Dialect, Position};
use serde::{Deserialize, Serialize};

use super::dictionary::Run;
use super::options::{Part, TripleImportOptions, Unknown};
use super::{PartSummary, TripleArtifacts};
use crate::destination::DROP;
use crate::hold::journal_path;
use crate::import::Duplicates;
use crate::import::input_file::InputFile;
use crate::import::journal::other_import;

const VERSION: u32 = 2;
const KIND: &str = "triples";

/// All state that a resumed import of triples needs; `.import/journal.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    kind: String,
    version: u32,
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
    #[serde(default)]
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
            kind: KIND.to_owned(),
            version: VERSION,
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
    /// `Invalid`: another import was started there. `Version`, `Corrupt`: the journal cannot be
    /// read.
    pub fn load(
        root: &Path,
        options: &TripleImportOptions,
        identity: &Identity,
    ) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Versioned {
            #[serde(default)]
            kind: String,
            version: u32,
        }
        let path = journal_path(root);
        let describe = || format!("import journal `{}`", path.display());
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(describe),
        };
        let corrupt = |error| Error::corrupt(format!("{}: {error}", describe())).hint(DROP);
        let found: Versioned = serde_json::from_slice(&text).map_err(corrupt)?;
        if found.kind != KIND {
            return Err(other_import(root));
        }
        if found.version != VERSION {
            let text = format!("{}: version {}, expected {VERSION}", describe(), found.version);
            return Err(Error::new(ErrorKind::Version, text).hint(DROP));
        }
        let mut journal: Self = serde_json::from_slice(&text).map_err(corrupt)?;
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

    /// Removes the durable part of the last source, which must be incomplete.
    pub fn forget_last(&mut self, fresh: SourceRecord) {
        let Some(last) = self.sources.last_mut() else { return };
        *last = fresh;
        let kept: u64 = self.sources.iter().map(|source| source.triples).sum();
        while self.triples() > kept {
            self.chunks.pop();
        }
    }

    /// Replaces the journal on disk.
    pub fn save(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("import journal: {error}")))?;
        disk.replace(&journal_path(root), &text)
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

/// The error for a source that differs from the source of the unfinished import at this place.
pub(crate) fn other_source(index: usize, expected: &SourceRecord, found: &SourceRecord) -> Error {
    let same_path = match (&expected.source, &found.source) {
        (Source::Text(left, _), Source::Text(right, _)) => left.path == right.path,
        _ => false,
    };
    let what = if same_path && expected.part == found.part {
        format!("{} has changed since the import was begun", found.source)
    } else {
        format!(
            "source {} of the triples is {} for `{}`, but the unfinished import has {} for `{}` \
             there",
            index + 1,
            found.source,
            found.part,
            expected.source,
            expected.part
        )
    };
    Error::invalid(what)
}

/// The error if the caller pushes fewer or more triples than the unfinished import recorded.
pub(crate) fn other_count(index: usize, expected: u64, found: u64) -> Error {
    Error::invalid(format!(
        "source {} of the triples has {found} triples, but the unfinished import took {expected} \
         from it",
        index + 1
    ))
}
