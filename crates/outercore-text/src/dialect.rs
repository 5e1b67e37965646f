use outercore_core::{Error, Result, hint};
use serde::{Deserialize, Serialize};

use crate::dimacs::Dimacs;
use crate::kind::Kind;
use crate::market::Market;
use crate::notation::{Mirror, Quotes, Separator};
use crate::shown::shown;
use crate::stated::Stated;

/// A position between two lines of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Offset in the decompressed text.
    pub offset: u64,
    /// Number of lines before it.
    pub lines: u64,
    /// Number of data lines before it.
    pub entries: u64,
}

/// Convention of a text.
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

/// Lines that are allowed between two data lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gaps {
    /// Blank lines and comments, because the meaning of a data line does not depend on its
    /// position.
    #[default]
    Any,
    /// Comments with the prefix that the caller has given. The position of a row determines its
    /// node, so a blank line may be a row without values.
    Comments,
    /// No lines. A line that starts like a comment may be a value, such as `#N/A`.
    None,
}

/// The format of a text, which applies to every line after `start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialect {
    /// The convention.
    pub format: Format,
    /// Separator of fields.
    pub separator: Separator,
    /// Meaning of quotes between tabs or blanks.
    #[serde(default)]
    pub quotes: Quotes,
    /// A line that starts with one of these prefixes, after blanks, is a comment.
    pub comments: Vec<String>,
    /// Names of the columns, if there is a header.
    pub header: Option<Vec<String>>,
    /// The text of the header line, if a later line with the same text also counts as a header.
    #[serde(default)]
    pub header_line: Option<String>,
    /// Number of fields in each line.
    pub columns: usize,
    /// Id of the first node: 0, or 1.
    pub first_id: u64,
    /// Position of the first data line.
    pub start: Position,
    /// Comment lines before `start`.
    pub comment_lines: u64,
    /// Lines that are allowed between two data lines. Blank lines are always allowed after the last
    /// one.
    #[serde(default)]
    pub gaps: Gaps,
    /// Kind of values of each column, according to the sample.
    pub kinds: Vec<Kind>,
    /// How an unclear line was interpreted, for the user.
    #[serde(default)]
    pub remark: Option<String>,
    /// Counts that comments above the edges state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<Stated>,
}

impl Dialect {
    /// A text without header or comments, with ids from 0; for tests and callers that know the
    /// format.
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

    /// Number of nodes, if the file states it.
    pub fn nodes(&self) -> Option<u64> {
        match self.format {
            Format::MatrixMarket(market) => Some(market.nodes),
            Format::Dimacs(dimacs) => Some(dimacs.nodes),
            Format::Delimited | Format::NTriples => None,
        }
    }

    /// Number of data lines, if the file states it.
    pub fn entries(&self) -> Option<u64> {
        match self.format {
            Format::MatrixMarket(market) => Some(market.entries),
            Format::Dimacs(dimacs) => Some(dimacs.edges),
            Format::Delimited | Format::NTriples => None,
        }
    }

    /// The other entry that an entry also represents.
    pub fn mirror(&self) -> Mirror {
        match self.format {
            Format::MatrixMarket(market) => market.mirror(),
            Format::Dimacs(dimacs) if dimacs.undirected => Mirror::Same,
            Format::Dimacs(_) | Format::Delimited | Format::NTriples => Mirror::No,
        }
    }

    /// Whether a line is a comment or blank. `rest` is the line without leading blanks.
    pub fn is_comment_or_blank(&self, rest: &[u8]) -> bool {
        match rest.first() {
            None | Some(b'\n') => true,
            Some(b'\r') => matches!(rest.get(1), None | Some(b'\n')),
            Some(_) => self.comments.iter().any(|mark| rest.starts_with(mark.as_bytes())),
        }
    }

    /// Whether a line repeats the header, as in a file that was joined from files with headers.
    pub fn repeats_header(&self, line: &[u8]) -> bool {
        self.header_line.as_ref().is_some_and(|header| bare(line) == header.as_bytes())
    }

    /// Classifies a line between data lines, according to `gaps`.
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
        // With tabs as separators, all fields of a row may be empty.
        let has_tab = || self.separator == Separator::Tab && line.contains(&b'\t');
        match self.gaps {
            Gaps::Any => Ok(Gap::Skipped),
            _ if start.is_empty() && has_tab() => Ok(Gap::Data),
            _ if start.is_empty() => Ok(Gap::Blank),
            Gaps::Comments => Ok(Gap::Skipped),
            Gaps::None => Err(self.unclear_comment(start, "")),
        }
    }

    /// The error for a line that may be a comment or data. The hint says that the comment prefix
    /// `others` makes it data.
    pub(crate) fn unclear_comment(&self, line: &[u8], others: &str) -> Error {
        let mark = self.comments.iter().find(|mark| line.starts_with(mark.as_bytes()));
        let mark = mark.map_or("#", String::as_str);
        Error::invalid(format!(
            "`{}` may be a comment, or a row that starts with `{mark}`",
            shown(line)
        ))
        .hint(hint!(
            "say which: " {comment = mark} " skips such lines, " {comment = others} " reads them"
        ))
    }

    /// The name of a column in messages: its header, or its position from 1.
    pub fn column_name(&self, place: usize) -> String {
        match self.header.as_ref().and_then(|names| names.get(place)) {
            Some(name) => format!("`{name}`"),
            None => format!("{}", place + 1),
        }
    }
}

/// A line without surrounding blanks and without a byte order mark at its start.
pub(crate) fn bare(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii_start()
}

/// Classes of lines for a reader of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// A line with data.
    Data,
    /// A line to skip.
    Skipped,
    /// A repeated header.
    Header,
    /// A blank line after which only blank lines may follow.
    Blank,
}

/// The error for a blank line among rows whose position determines their node.
pub(crate) fn blank_among_rows() -> Error {
    Error::invalid("the line is blank: a row without values, or no row?")
        .hint("an empty value? write `NA`; else take the line out")
}
