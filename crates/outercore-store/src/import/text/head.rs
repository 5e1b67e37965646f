use std::path::Path;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::parse::{columns, is_comment_or_blank, shorten};
use super::stream::ByteStream;

/// A place between two lines of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Offset in the unpacked text.
    pub offset: u64,
    /// Lines before it.
    pub lines: u64,
    /// Lines with an edge before it.
    pub entries: u64,
}

/// What a Matrix Market file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Market {
    /// Rows and columns of the matrix.
    pub nodes: u64,
    /// Entries that follow.
    pub entries: u64,
    /// Whether only one triangle is stored.
    pub symmetric: bool,
}

/// What stands before the first edge of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Where the edges start.
    pub start: Position,
    /// The sizes of a Matrix Market file.
    pub market: Option<Market>,
}

const LONGEST_HEAD: usize = 16 << 20;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const MARKET_BANNER: &str = "%%matrixmarket";

/// Reads as far as the first line that may be an edge.
///
/// A column header is a first line whose first two columns both start with a letter, an underscore
/// or a quote; anything else is left to the parser to take or refuse.
pub(crate) fn read_head(path: &Path, memory: Bytes) -> Result<Head> {
    let mut lines = Lines::open(path, memory)?;
    let mut banner = None;
    loop {
        let before = lines.position;
        let Some(line) = lines.next()? else {
            return match banner {
                Some(_) => {
                    Err(market_error("the line with the sizes is missing")).in_file(path, before)
                }
                None => Ok(Head { start: before, market: None }),
            };
        };
        let line = match before.offset {
            0 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            _ => line,
        };
        if before.offset == 0 && has_market_banner(line) {
            banner = Some(parse_banner(line).in_file(path, before)?);
            continue;
        }
        if is_comment_or_blank(line.trim_ascii()) {
            continue;
        }
        if let Some(symmetric) = banner {
            let market = parse_sizes(line, symmetric).in_file(path, before)?;
            return Ok(Head { start: lines.position, market: Some(market) });
        }
        let start = if is_column_header(line) { lines.position } else { before };
        // The mark is no part of the first number.
        let mark = if start.offset == 0 { lines.mark } else { 0 };
        return Ok(Head { start: Position { offset: start.offset + mark, ..start }, market: None });
    }
}

trait InFile<T> {
    fn in_file(self, path: &Path, position: Position) -> Result<T>;
}

impl<T> InFile<T> for Result<T> {
    fn in_file(self, path: &Path, position: Position) -> Result<T> {
        self.with_context(|| format!("edge list `{}`: line {}", path.display(), position.lines + 1))
    }
}

fn is_column_header(line: &[u8]) -> bool {
    let named = |column: &&[u8]| {
        matches!(column.first(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'"' | b'\''))
            && column.iter().any(u8::is_ascii_alphabetic)
    };
    let columns = columns(line.trim_ascii());
    columns.len() >= 2 && columns[..2].iter().all(named)
}

fn has_market_banner(line: &[u8]) -> bool {
    line.len() >= MARKET_BANNER.len()
        && line[..MARKET_BANNER.len()].eq_ignore_ascii_case(MARKET_BANNER.as_bytes())
}

fn market_error(what: impl Into<String>) -> Error {
    Error::invalid(format!("Matrix Market header: {}", what.into()))
}

/// Whether the matrix is symmetric.
fn parse_banner(line: &[u8]) -> Result<bool> {
    let line = String::from_utf8_lossy(line).to_ascii_lowercase();
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    let [object, format, _field, symmetry] = words[..] else {
        return Err(market_error(format!(
            "`{}`: expected `%%MatrixMarket matrix coordinate FIELD SYMMETRY`",
            shorten(line.as_bytes())
        )));
    };
    if object != "matrix" || format != "coordinate" {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "Matrix Market header: found `{object} {format}`, expected `matrix coordinate`"
            ),
        ));
    }
    match symmetry {
        "general" => Ok(false),
        "symmetric" | "skew-symmetric" | "hermitian" => Ok(true),
        other => Err(market_error(format!(
            "symmetry is `{other}`, expected general, symmetric, skew-symmetric or hermitian"
        ))),
    }
}

fn parse_sizes(line: &[u8], symmetric: bool) -> Result<Market> {
    let numbers: Option<Vec<u64>> = columns(line.trim_ascii())
        .iter()
        .map(|column| std::str::from_utf8(column).ok()?.parse().ok())
        .collect();
    let Some(&[rows, columns, entries]) = numbers.as_deref() else {
        let shown = shorten(line.trim_ascii());
        return Err(market_error(format!(
            "`{shown}`: expected three sizes: rows, columns, entries"
        )));
    };
    if rows != columns {
        return Err(market_error(format!(
            "the matrix is {rows} x {columns}, expected a square one (one row and column a node)"
        )));
    }
    Ok(Market { nodes: rows, entries, symmetric })
}

/// Reads single lines; for the few before the edges.
struct Lines {
    stream: ByteStream,
    path: std::path::PathBuf,
    buffer: Vec<u8>,
    at: usize,
    ended: bool,
    position: Position,
    mark: u64,
}

impl Lines {
    fn open(path: &Path, memory: Bytes) -> Result<Self> {
        Ok(Self {
            stream: ByteStream::open(path, 0, memory)?,
            path: path.to_owned(),
            buffer: Vec::new(),
            at: 0,
            ended: false,
            position: Position::default(),
            mark: 0,
        })
    }

    /// The next line with its end.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        let length = loop {
            let rest = &self.buffer[self.at..];
            match memchr::memchr(b'\n', rest) {
                Some(end) => break end + 1,
                None if self.ended => break rest.len(),
                None => self.fill()?,
            }
        };
        if length == 0 {
            return Ok(None);
        }
        let line = self.at..self.at + length;
        self.at = line.end;
        self.position.offset += length as u64;
        self.position.lines += 1;
        Ok(Some(&self.buffer[line]))
    }

    fn fill(&mut self) -> Result<()> {
        const STEP: usize = 64 << 10;
        let first = self.position.offset == 0;
        self.buffer.drain(..self.at);
        self.at = 0;
        if self.buffer.len() > LONGEST_HEAD {
            return Err(Error::invalid(format!(
                "edge list `{}`: line {} is longer than {}",
                self.path.display(),
                self.position.lines + 1,
                Bytes(LONGEST_HEAD as u64)
            )));
        }
        let filled = self.buffer.len();
        self.buffer.resize(filled + STEP, 0);
        let read = self.stream.read(&mut self.buffer[filled..])?;
        self.buffer.truncate(filled + read);
        self.ended = read < STEP;
        if first && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.mark = BYTE_ORDER_MARK.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("edges.txt");
        std::fs::write(&path, text).unwrap();
        read_head(&path, Bytes::mib(16))
    }

    #[test]
    fn the_edges_start_after_a_header_but_not_after_a_comment() {
        for (text, offset, lines) in [
            ("0 1\n", 0, 0),
            ("", 0, 0),
            ("src,dst\n0,1\n", 8, 1),
            ("\"src\"\t\"dst\"\n0\t1\n", 12, 1),
            ("# graph\n\nid_1,id_2\n0,1\n", 19, 3),
            ("# graph\n0 1\n", 8, 1),
            ("source target weight\r\n0 1 2\r\n", 22, 1),
            ("\u{feff}0,1\n", 3, 0),
            ("\u{feff}a,b\n0,1\n", 7, 1),
            // Not two names: left to the parser, which refuses it by its line.
            ("name 1\n0 1\n", 0, 0),
            ("-1 2\n", 0, 0),
        ] {
            let found = head(text).unwrap();
            assert_eq!(
                found,
                Head { start: Position { offset, lines, entries: 0 }, market: None },
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_matrix_market_header_gives_the_sizes() {
        let text = "%%MatrixMarket matrix coordinate real symmetric\n% made\n\n 4 4 3\n1 1 0.5\n";
        let found = head(text).unwrap();
        assert_eq!(found.market, Some(Market { nodes: 4, entries: 3, symmetric: true }));
        assert_eq!(found.start.lines, 4);
        assert_eq!(&text[found.start.offset as usize..], "1 1 0.5\n");
    }

    #[test]
    fn a_bad_matrix_market_header_is_named() {
        for (text, expected) in [
            (
                "%%MatrixMarket matrix array real general\n2 2\n",
                "line 1: Matrix Market header: found `matrix array`",
            ),
            (
                "%%MatrixMarket matrix coordinate real\n2 2 1\n",
                "expected `%%MatrixMarket matrix coordinate",
            ),
            ("%%MatrixMarket matrix coordinate real odd\n2 2 1\n", "symmetry is `odd`"),
            (
                "%%MatrixMarket matrix coordinate real general\n2 3 1\n",
                "line 2: Matrix Market header: the matrix is 2 x 3",
            ),
            ("%%MatrixMarket matrix coordinate real general\n2 2\n", "expected three sizes"),
            (
                "%%MatrixMarket matrix coordinate real general\n",
                "the line with the sizes is missing",
            ),
        ] {
            let error = head(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
