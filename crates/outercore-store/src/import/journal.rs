use std::path::Path;

use outercore_core::{Error, Result};
use outercore_io::Disk;
use outercore_text::Position;
use serde::{Deserialize, Serialize};

use super::artifacts::{EdgeArtifacts, EdgeText};
use super::input_file::InputFile;
use super::journal_file::{self, other_import};
use super::options::{Duplicates, EdgeImportOptions, SelfLoops};
use super::partition::PartitionState;
use super::plan::Plan;
use super::segment::Segment;
use super::sort::SortState;
use super::sources;

const KIND: &str = "edges";

/// All state that a resumed import of edges needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
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
    pub comments: u64,
    /// Lines so far in a text that repeat its header.
    pub repeated_headers: u64,
    /// Ids so far in a text with leading zeros.
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

impl sources::SourceRecord for SourceRecord {
    const ROWS: &'static str = "edges";

    fn is_same(&self, other: &Self) -> bool {
        self.source == other.source
    }

    fn rows(&self) -> u64 {
        self.edges
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn name(&self) -> String {
        self.source.to_string()
    }

    fn mismatch(&self, index: usize, found: &Self) -> Error {
        let (known, found) = (&self.source, &found.source);
        let same_path = match (known, found) {
            (Source::Text(a), Source::Text(b)) => a.file.path == b.file.path,
            (Source::Npy(a), Source::Npy(b)) => {
                a.iter().map(|f| &f.path).eq(b.iter().map(|f| &f.path))
            }
            _ => false,
        };
        Error::invalid(if same_path {
            format!("{found} has changed since the import was begun")
        } else {
            format!(
                "edge source {} is {found}, but the unfinished import has {known} there",
                index + 1
            )
        })
    }
}

impl Journal {
    pub fn new(identity: Identity) -> Self {
        Self { identity, sources: Vec::new(), stage: Stage::Read }
    }

    /// The journal of the interrupted import in `root`, if there is one and it matches `identity`.
    ///
    /// # Errors
    /// As [`journal_file::load`].
    pub fn load(root: &Path, identity: &Identity) -> Result<Option<Self>> {
        match journal_file::load::<Self>(root, KIND)? {
            Some(journal) if journal.identity != *identity => Err(other_import(root)),
            found => Ok(found),
        }
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
        journal_file::save(self, KIND, disk, root)
    }
}
