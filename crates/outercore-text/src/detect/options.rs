//! Properties of a text that are known before detection.

use serde::{Deserialize, Serialize};

use crate::header::Words;
use crate::notation::Separator;

/// Purpose of reading a text, which decides how an unclear text is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Edges between nodes with numeric ids.
    Edges,
    /// Edges between nodes with names.
    NamedEdges,
    /// Triples of names.
    Triples,
    /// Rows of nodes: features, labels, splits.
    Table,
    /// Rows of nodes with names.
    NamedTable,
}

impl Purpose {
    /// The name for such a file in messages.
    pub fn file_kind(self) -> &'static str {
        match self {
            Self::Edges | Self::NamedEdges => "edge list",
            Self::Triples => "triples",
            Self::Table | Self::NamedTable => "table",
        }
    }

    pub(super) fn holds_names(self) -> bool {
        matches!(self, Self::NamedEdges | Self::Triples | Self::NamedTable)
    }

    /// Whether each row is a node, identified by its position or by its key.
    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::NamedTable)
    }

    pub(super) fn words(self) -> Words {
        match self {
            Self::Edges | Self::NamedEdges => Words::Edges,
            Self::Triples => Words::Triples,
            Self::Table | Self::NamedTable => Words::Table,
        }
    }
}

/// Properties of a text that the caller gives; all others are detected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TextOptions {
    /// Separator of fields.
    pub separator: Option<Separator>,
    /// Whether the first line names the columns.
    pub header: Option<bool>,
    /// Whether the caller chooses columns by name. Then a header is assumed, unless `header` is
    /// false.
    pub by_name: bool,
    /// Prefix of comment lines; empty if there are no comments.
    pub comment: Option<String>,
    /// Whether ids count from 1.
    pub one_based: bool,
    /// Number of fields in a line, if known.
    pub columns: Option<usize>,
    /// Convention of the file, if its name or the caller tells it.
    pub convention: Option<Convention>,
}

/// A convention that a file suffix such as `.mtx` announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Convention {
    /// Matrix Market: a file without its banner is refused.
    MatrixMarket,
    /// DIMACS: a file without its `p` line is refused.
    Dimacs,
    /// N-Triples: a line that is not a statement is refused.
    NTriples,
}
