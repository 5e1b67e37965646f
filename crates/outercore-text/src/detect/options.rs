//! What is known of a text beforehand.

use serde::{Deserialize, Serialize};

use crate::header::Words;
use crate::notation::Separator;

/// What a text is read for; it decides how an unclear one is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Edges between nodes with numbers.
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
    /// What messages call such a file.
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

    /// Whether each row is a node by its place or its key.
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

/// What the caller says about a text; everything else is detected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TextOptions {
    /// What separates fields.
    pub separator: Option<Separator>,
    /// Whether the first line names the columns.
    pub header: Option<bool>,
    /// Whether the caller chooses columns by name: then there is a header, unless `header` says that
    /// there is none.
    pub by_name: bool,
    /// How comment lines begin; empty where there are none.
    pub comment: Option<String>,
    /// Whether ids count from 1.
    pub one_based: bool,
    /// Fields of a line, where the caller knows.
    pub columns: Option<usize>,
    /// The convention of the file, where its name or the caller says so.
    pub convention: Option<Convention>,
}

/// A convention that a suffix such as `.mtx` promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Convention {
    /// Matrix Market: a file without its banner is refused.
    MatrixMarket,
    /// DIMACS: a file without its `p` line is refused.
    Dimacs,
    /// N-Triples: a line that is no statement is refused.
    NTriples,
}
