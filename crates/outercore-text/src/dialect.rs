use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::dimacs::Dimacs;
use crate::kind::Kind;
use crate::market::Market;
use crate::notation::{Mirror, Quotes, Separator};
use crate::shown::shown;
use crate::stated::Stated;

/// A place between two lines of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Offset in the unpacked text.
    pub offset: u64,
    /// Lines before it.
    pub lines: u64,
    /// Data lines before it, counted from where the data starts.
    pub entries: u64,
}

/// Which convention a text follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Rows of fields with a separator: CSV, TSV, SNAP and the like.
    Delimited,
    /// Matrix Market coordinates.
    MatrixMarket(Market),
    /// DIMACS: a `p` line with the sizes, `c` comments, ids from 1.
    Dimacs(Dimacs),
    /// N-Triples of RDF.
    NTriples,
}

/// What may lie between two data lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gaps {
    /// Blank lines and comments: each data line says by itself what it is about.
    #[default]
    Any,
    /// Comments, which the caller has described. A row stands for a node by its place, so that a
    /// blank line may be a row without values.
    Comments,
    /// Nothing. A line that starts like a comment may be a value, such as `#N/A`.
    None,
}

/// How a text is written; every line after `start` follows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialect {
    /// The convention.
    pub format: Format,
    /// What separates fields.
    pub separator: Separator,
    /// What quotes mean between tabs or blanks.
    #[serde(default)]
    pub quotes: Quotes,
    /// A line that starts with one of these, after blanks, is a comment.
    pub comments: Vec<String>,
    /// Names of the columns where a header gives them.
    pub header: Option<Vec<String>>,
    /// The line of the header, where a line with the same text further down is a header, too.
    #[serde(default)]
    pub header_line: Option<String>,
    /// Fields of each line.
    pub columns: usize,
    /// Id of the first node: 0, or 1.
    pub first_id: u64,
    /// Where the first data line is.
    pub start: Position,
    /// Comment lines before `start`.
    pub comment_lines: u64,
    /// What may lie between two data lines; blank lines may always follow the last one.
    #[serde(default)]
    pub gaps: Gaps,
    /// What the sample holds in each column.
    pub kinds: Vec<Kind>,
    /// How an unclear line was read, for the user.
    #[serde(default)]
    pub remark: Option<String>,
    /// What comments above the edges say about their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<Stated>,
}

impl Dialect {
    /// A text without header and comments, ids from 0; for tests and callers that know.
    pub fn plain(separator: Separator, columns: usize) -> Self {
        Self {
            format: Format::Delimited,
            separator,
            quotes: Quotes::Plain,
            comments: vec!["#".to_owned(), "%".to_owned()],
            header: None,
            header_line: None,
            columns,
            first_id: 0,
            start: Position::default(),
            comment_lines: 0,
            gaps: Gaps::Any,
            kinds: vec![Kind::Empty; columns],
            remark: None,
            stated: None,
        }
    }

    /// Nodes of the graph, where the file says so.
    pub fn nodes(&self) -> Option<u64> {
        match self.format {
            Format::MatrixMarket(market) => Some(market.nodes),
            Format::Dimacs(dimacs) => Some(dimacs.nodes),
            Format::Delimited | Format::NTriples => None,
        }
    }

    /// Data lines, where the file says so.
    pub fn entries(&self) -> Option<u64> {
        match self.format {
            Format::MatrixMarket(market) => Some(market.entries),
            Format::Dimacs(dimacs) => Some(dimacs.edges),
            Format::Delimited | Format::NTriples => None,
        }
    }

    /// What an entry stands for besides itself.
    pub fn mirror(&self) -> Mirror {
        match self.format {
            Format::MatrixMarket(market) => market.mirror(),
            Format::Dimacs(dimacs) if dimacs.undirected => Mirror::Same,
            Format::Dimacs(_) | Format::Delimited | Format::NTriples => Mirror::No,
        }
    }

    /// Whether a line that starts here, after blanks, holds no data.
    pub fn is_comment_or_blank(&self, rest: &[u8]) -> bool {
        match rest.first() {
            None | Some(b'\n') => true,
            Some(b'\r') => matches!(rest.get(1), None | Some(b'\n')),
            Some(_) => self.comments.iter().any(|mark| rest.starts_with(mark.as_bytes())),
        }
    }

    /// Whether a line names the columns again, as in a file that was joined from files with headers.
    pub fn repeats_header(&self, line: &[u8]) -> bool {
        self.header_line.as_ref().is_some_and(|header| bare(line) == header.as_bytes())
    }

    /// [`Dialect::is_comment_or_blank`] for a line that may be skipped only at the end.
    ///
    /// # Errors
    /// `Invalid`: it may be a row.
    pub(crate) fn gap(&self, line: &[u8]) -> Result<Gap> {
        let start = line.trim_ascii_start();
        if self.repeats_header(line) {
            return Ok(Gap::Header);
        }
        if !self.is_comment_or_blank(start) {
            return Ok(Gap::Data);
        }
        // Between tabs the fields of a row may all be empty.
        let has_tab = || self.separator == Separator::Tab && line.contains(&b'\t');
        match self.gaps {
            Gaps::Any => Ok(Gap::Skipped),
            _ if start.is_empty() && has_tab() => Ok(Gap::Data),
            _ if start.is_empty() => Ok(Gap::Blank),
            Gaps::Comments => Ok(Gap::Skipped),
            Gaps::None => Err(self.unclear_comment(start, "")),
        }
    }

    /// The error for a line that may be a comment or data. With `others` as the mark of comments it
    /// is data.
    pub(crate) fn unclear_comment(&self, line: &[u8], others: &str) -> Error {
        let mark = self.comments.iter().find(|mark| line.starts_with(mark.as_bytes()));
        let mark = mark.map_or("#", String::as_str);
        Error::invalid(format!(
            "`{}` may be a comment, or a row that starts with `{mark}`",
            shown(line)
        ))
        .hint(format!(
            "say which: `--comment '{mark}'` skips such lines, `--comment '{others}'` reads them"
        ))
    }

    /// The name of a column for messages: its header, or its place counted from 1.
    pub fn column_name(&self, place: usize) -> String {
        match self.header.as_ref().and_then(|names| names.get(place)) {
            Some(name) => format!("`{name}`"),
            None => format!("{}", place + 1),
        }
    }
}

/// A line without the blanks around it and without the byte order mark of the file that it began.
pub(crate) fn bare(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii_start()
}

/// What a line is to a reader of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// None: it has data.
    Data,
    /// A line to pass over.
    Skipped,
    /// The header again.
    Header,
    /// A blank line that only blank lines may follow.
    Blank,
}

/// The error for a blank line among rows that stand for nodes by their place.
pub(crate) fn blank_among_rows() -> Error {
    Error::invalid("the line is blank: a row without values, or no row?")
        .hint("an empty value? write `NA`; else take the line out")
}
