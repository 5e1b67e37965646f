use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::IMPORT_DIRECTORY;
use outercore_io::Disk;
use outercore_text::Position;
use serde::{Deserialize, Serialize};

use super::artifacts::{EdgeArtifacts, EdgeText};
use super::input_file::InputFile;
use super::options::{Duplicates, EdgeImportOptions, SelfLoops};
use super::partition::PartitionState;
use super::plan::Plan;
use super::segment::Segment;
use super::sort::SortState;
use crate::destination::{DROP, way_on};
use crate::hold::journal_path;

const VERSION: u32 = 2;

/// All state that a resumed import needs; `.import/journal.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    version: u32,
    pub identity: Identity,
    pub sources: Vec<SourceRecord>,
    pub stage: Stage,
}

/// Options that must be equal in a resumed import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    fingerprint: String,
    num_nodes: Option<u64>,
    undirected: bool,
    self_loops: SelfLoops,
    duplicates: Duplicates,
}

impl Identity {
    pub fn new(options: &EdgeImportOptions, fingerprint: &str) -> Self {
        Self {
            fingerprint: fingerprint.to_owned(),
            num_nodes: options.num_nodes,
            undirected: options.undirected,
            self_loops: options.self_loops,
            duplicates: options.duplicates,
        }
    }
}

/// The durable part of one source of edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceRecord {
    pub source: Source,
    /// Number of durable edges.
    pub edges: u64,
    /// Position after them in a text.
    pub position: Position,
    /// Whether this is the whole source.
    pub complete: bool,
    /// Number of nodes that the source states, or 0.
    pub num_nodes: u64,
    /// Comment lines so far in a text.
    #[serde(default)]
    pub comments: u64,
    /// Lines so far in a text that repeat its header.
    #[serde(default)]
    pub repeated_headers: u64,
    /// Ids so far in a text with leading zeros.
    #[serde(default)]
    pub padded_ids: u64,
    /// Location of the edges.
    pub segments: Vec<Segment>,
}

impl SourceRecord {
    pub fn new(source: Source) -> Self {
        Self {
            source,
            edges: 0,
            position: Position::default(),
            complete: false,
            num_nodes: 0,
            comments: 0,
            repeated_headers: 0,
            padded_ids: 0,
            segments: Vec::new(),
        }
    }
}

/// A source of edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Text(Box<TextSource>),
    Npy(Vec<InputFile>),
    /// Pushed by the caller.
    Push,
}

impl Source {
    /// Whether its edges are written to the spill instead of being read in place.
    pub fn is_spilled(&self) -> bool {
        !matches!(self, Self::Npy(_))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => write!(f, "`{}`", text.file.path.display()),
            Self::Npy(files) => {
                let names: Vec<_> =
                    files.iter().map(|f| format!("`{}`", f.path.display())).collect();
                f.write_str(&names.join(" and "))
            }
            Self::Push => f.write_str("edges handed over in batches"),
        }
    }
}

/// A text of edges and its format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextSource {
    pub file: InputFile,
    pub text: EdgeText,
}

/// The current phase and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    Read,
    Partition { plan: Plan, state: PartitionState },
    Sort { plan: Plan, state: SortState },
    Done(EdgeArtifacts),
}

impl Journal {
    pub fn new(identity: Identity) -> Self {
        Self { version: VERSION, identity, sources: Vec::new(), stage: Stage::Read }
    }

    /// The directory of an unfinished import.
    pub fn directory(root: &Path) -> PathBuf {
        root.join(IMPORT_DIRECTORY)
    }

    /// The journal of the interrupted import in `root`, if there is one and it matches `identity`.
    ///
    /// # Errors
    /// `Invalid`: another import was started there. `Version`, `Corrupt`: the journal cannot be
    /// read.
    pub fn load(root: &Path, identity: &Identity) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Versioned {
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
        if found.version != VERSION {
            let text = format!("{}: version {}, expected {VERSION}", describe(), found.version);
            return Err(Error::new(ErrorKind::Version, text).hint(DROP));
        }
        let journal: Self = serde_json::from_slice(&text).map_err(corrupt)?;
        if journal.identity != *identity {
            return Err(other_import(root));
        }
        Ok(Some(journal))
    }

    /// Whether its input files are unchanged.
    pub fn is_current(&self) -> bool {
        self.sources.iter().all(|record| match &record.source {
            Source::Text(text) => text.file.is_current(),
            Source::Npy(files) => files.iter().all(InputFile::is_current),
            Source::Push => true,
        })
    }

    /// Replaces the journal on disk.
    pub fn save(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("import journal: {error}")))?;
        disk.replace(&journal_path(root), &text)
    }
}

/// The error if another import was interrupted in `root`.
pub(crate) fn other_import(root: &Path) -> Error {
    Error::invalid(format!(
        "`{}` holds the unfinished import of other input or with other options",
        root.display()
    ))
    .hint(way_on(root))
}

/// The error for a source that differs from the source of the unfinished import at this place.
pub(crate) fn other_source(index: usize, expected: &Source, found: &Source) -> Error {
    let same_path = match (expected, found) {
        (Source::Text(a), Source::Text(b)) => a.file.path == b.file.path,
        (Source::Npy(a), Source::Npy(b)) => a.iter().map(|f| &f.path).eq(b.iter().map(|f| &f.path)),
        _ => false,
    };
    let what = if same_path {
        format!("{found} has changed since the import was begun")
    } else {
        format!(
            "edge source {} is {found}, but the unfinished import has {expected} there",
            index + 1
        )
    };
    Error::invalid(what)
}

/// The error if the caller pushes fewer or more edges than the unfinished import recorded.
pub(crate) fn other_count(index: usize, expected: u64, found: u64) -> Error {
    Error::invalid(format!(
        "edge source {} has {found} edges, but the unfinished import took {expected} from it",
        index + 1
    ))
}
