use outercore_core::{Error, hint};

use crate::MAX_NODES;
use crate::dialect::{Dialect, Format};
use crate::fields::{Fields, without_quotes};
use crate::kind::is_padded;
use crate::layout::EdgeLayout;
use crate::notation::{Mirror, Quotes};
use crate::shown::shown;

/// A line that is not an edge.
#[derive(Debug)]
pub(crate) struct BadLine {
    /// Number of lines before it in the block.
    pub line: u64,
    /// The fault; the caller adds file and line number.
    pub error: Error,
}

/// Numbers with at most this many digits certainly fit 64 bits.
const SAFE_DIGITS: usize = 19;

/// Counts of a block of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub lines: u64,
    /// Lines with an edge.
    pub entries: u64,
    /// Lines with a comment.
    pub comments: u64,
    /// Lines that repeat the header.
    pub repeated_headers: u64,
    /// Ids with leading zeros, such as `007`.
    pub padded_ids: u64,
}

/// The range of allowed ids.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    last: u64,
}

impl Range {
    fn of(layout: &EdgeLayout) -> Self {
        let first = layout.dialect.first_id;
        let nodes = layout.num_nodes.unwrap_or(MAX_NODES);
        // Without nodes no id is in range.
        if nodes == 0 {
            Self { first: 1, last: 0 }
        } else {
            Self { first, last: nodes - 1 + first }
        }
    }

    #[inline(always)]
    fn holds(self, one: u64, other: u64) -> bool {
        one.max(other) <= self.last && one.min(other) >= self.first
    }
}

/// Appends the edges of `bytes`, whole lines that end in `\n`.
///
/// **Cost** About 1 ns per byte if the ids are the first two columns. A line in an unusual form is
/// split into fields, which takes about ten times as long.
pub(crate) fn parse_lines(
    bytes: &[u8],
    layout: &EdgeLayout,
    edges: &mut Vec<[u64; 2]>,
) -> Result<Counts, BadLine> {
    debug_assert_eq!(bytes.last().copied().unwrap_or(b'\n'), b'\n');
    let dialect = &layout.dialect;
    let range = Range::of(layout);
    let mirrored = layout.mirrored && dialect.mirror() != Mirror::No;
    let usual = dialect.format != Format::NTriples && (layout.source, layout.target) == (0, 1);
    let separator = dialect.separator.byte();
    let enclosing = dialect.quotes == Quotes::Enclosing;
    let mut fields = Fields::default();
    let mut counts = Counts::default();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at = skip_blanks(bytes, at);
        let edge = if usual && bytes[at].is_ascii_digit() {
            usual_edge(bytes, at, separator, dialect.columns, range)
                .filter(|edge| !enclosing || memchr::memchr(b'"', &bytes[at..edge.next]).is_none())
        } else {
            None
        };
        let Edge { source, target, padded, next } = match edge {
            Some(edge) => edge,
            None => {
                let next = end_of_line(bytes, start);
                if dialect.is_comment_or_blank(&bytes[at..]) {
                    let blank = bytes[at..next].trim_ascii().is_empty();
                    counts.comments += u64::from(!blank);
                    counts.lines += 1;
                    at = next;
                    continue;
                }
                // A tab at the end stands before an empty field.
                let line = without_end(&bytes[start..next]);
                if dialect.repeats_header(line) {
                    counts.repeated_headers += 1;
                    counts.lines += 1;
                    at = next;
                    continue;
                }
                let edge = edge_of_fields(line, layout, range, &mut fields)
                    .map_err(|error| BadLine { line: counts.lines, error })?;
                Edge { next, ..edge }
            }
        };
        let (source, target) = (source - range.first, target - range.first);
        edges.push([source, target]);
        if mirrored && source != target {
            edges.push([target, source]);
        }
        counts.entries += 1;
        counts.padded_ids += padded;
        counts.lines += 1;
        at = next;
    }
    Ok(counts)
}

/// The edge of a line, with the ids of the file.
#[derive(Clone, Copy, Debug)]
struct Edge {
    source: u64,
    target: u64,
    /// How many of the two ids have leading zeros.
    padded: u64,
    /// Start of the next line.
    next: usize,
}

/// Parses two numbers at the start of a line with the right number of columns; `None` for a line in
/// any other form.
#[inline(always)]
fn usual_edge(
    bytes: &[u8],
    at: usize,
    separator: Option<u8>,
    columns: usize,
    range: Range,
) -> Option<Edge> {
    let (source, source_end) = number(bytes, at);
    let target_start = skip_separator(bytes, source_end, separator)?;
    let (target, end) = number(bytes, target_start);
    let whole = end > target_start
        && source_end - at <= SAFE_DIGITS
        && end - target_start <= SAFE_DIGITS
        && range.holds(source, target);
    if !whole {
        return None;
    }
    let next = if columns == 2 {
        end_of_edge(bytes, end)?
    } else {
        end_of_columns(bytes, end, separator, columns - 2)?
    };
    let padded = u64::from(bytes[at] == b'0' && source_end > at + 1)
        + u64::from(bytes[target_start] == b'0' && end > target_start + 1);
    Some(Edge { source, target, padded, next })
}

/// The digits at `at` as a number modulo 2^64, and their end.
#[inline(always)]
fn number(bytes: &[u8], mut at: usize) -> (u64, usize) {
    let mut value = 0u64;
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&d| d < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

#[inline(always)]
fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes[at], b' ' | b'\t') {
        at += 1;
    }
    at
}

/// The start of the field after one separator.
#[inline(always)]
fn skip_separator(bytes: &[u8], at: usize, separator: Option<u8>) -> Option<usize> {
    let Some(separator) = separator else {
        let next = skip_blanks(bytes, at);
        return (next > at).then_some(next);
    };
    let mut next = at;
    while bytes[next] == b' ' && separator != b' ' {
        next += 1;
    }
    if bytes[next] != separator {
        return None;
    }
    next += 1;
    while bytes[next] == b' ' {
        next += 1;
    }
    Some(next)
}

/// The start of the next line, if only blanks follow.
#[inline(always)]
fn end_of_edge(bytes: &[u8], end: usize) -> Option<usize> {
    let mut at = end;
    while bytes[at] == b' ' {
        at += 1;
    }
    match bytes[at] {
        b'\n' => Some(at + 1),
        b'\r' if bytes[at + 1] == b'\n' => Some(at + 2),
        _ => None,
    }
}

/// The start of the next line, if exactly `more` fields follow. `None` for a line with quotes,
/// which [`edge_of_fields`] parses.
#[inline(always)]
fn end_of_columns(bytes: &[u8], end: usize, separator: Option<u8>, more: usize) -> Option<usize> {
    let next = end_of_line(bytes, end);
    let rest = &bytes[end..next];
    let found = match separator {
        Some(separator) => {
            let mut found = 0;
            for byte in rest {
                if *byte == b'"' {
                    return None;
                }
                found += usize::from(*byte == separator);
            }
            // The field must end at the end of the number.
            let first = rest.iter().find(|byte| **byte != b' ')?;
            if *first != separator {
                return None;
            }
            found
        }
        None => {
            if !rest[0].is_ascii_whitespace() {
                return None;
            }
            rest.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).count()
        }
    };
    (found == more).then_some(next)
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[inline]
fn end_of_line(bytes: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length + 1)
}

/// Parses the edge of a line in any form.
fn edge_of_fields(
    line: &[u8],
    layout: &EdgeLayout,
    range: Range,
    fields: &mut Fields,
) -> Result<Edge, Error> {
    let dialect = &layout.dialect;
    require_columns(line, dialect, fields)?;
    let mut ids = [0; 2];
    let mut padded = 0;
    for (id, place) in ids.iter_mut().zip([layout.source, layout.target]) {
        let field = without_quotes(fields.get(line, place));
        let column = dialect.column_name(place);
        *id = node_id(line, &column, field, layout)?;
        padded += u64::from(is_padded(field));
    }
    if range.holds(ids[0], ids[1]) {
        Ok(Edge { source: ids[0], target: ids[1], padded, next: 0 })
    } else {
        Err(Error::internal(format!("`{}`: ids were not in range", shown(line))))
    }
}

/// Splits a line into fields.
///
/// # Errors
/// `Invalid`: the number of fields differs from the lines of the sample.
pub(crate) fn require_columns(
    line: &[u8],
    dialect: &Dialect,
    fields: &mut Fields,
) -> Result<(), Error> {
    let found = fields.cut(line, dialect)?;
    if found == dialect.columns {
        return Ok(());
    }
    let separator = match dialect.format {
        Format::Delimited => format!(" separated by {}", dialect.separator.in_words()),
        _ => String::new(),
    };
    let columns = if found == 1 { "column" } else { "columns" };
    Err(Error::invalid(format!(
        "`{}`: found {found} {columns}{separator}, expected {} as in most lines",
        shown(line),
        dialect.columns
    ))
    .hint(hint!(
        "mend the line; or say how the file is written: " {separator} ", " {comment} ", "
        {header}
    )))
}

fn node_id(line: &[u8], column: &str, field: &[u8], layout: &EdgeLayout) -> Result<u64, Error> {
    let (shown_line, text) = (shown(line), shown(field));
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Error::invalid(format!(
            "`{shown_line}`: column {column} is `{text}`, expected a node id (a whole number)"
        ))
        .hint(hint!("nodes with names or sparse numbers: " {ids = "dictionary"})));
    }
    if digits.len() < field.len() {
        return Err(Error::invalid(format!(
            "`{shown_line}`: node id {text} in column {column} is negative, expected 0 or more"
        )));
    }
    let first = layout.dialect.first_id;
    let value = text.parse::<u64>().unwrap_or(u64::MAX);
    if value < first {
        return Err(Error::invalid(format!(
            "`{shown_line}`: node id 0 in column {column}, expected 1 or more: ids in this file \
             start at 1"
        )));
    }
    let id = value - first;
    match layout.num_nodes {
        Some(nodes) if id >= nodes => {
            Err(out_of_range(&format!("`{shown_line}`: "), value, nodes, first))
        }
        None if id >= MAX_NODES => Err(Error::invalid(format!(
            "`{shown_line}`: node id {text} in column {column} is too large, expected less than \
             2^63"
        ))
        .hint(hint!("nodes with sparse numbers: " {ids = "dictionary"}))),
        _ => Ok(value),
    }
}

/// The error for an `id` beyond the nodes of the graph; ids in the file begin at `first`.
pub fn out_of_range(place: &str, id: u64, nodes: u64, first: u64) -> Error {
    let range = match nodes {
        0 => "none at all".to_owned(),
        _ => format!("{first} to {}", nodes - 1 + first),
    };
    let error = Error::invalid(format!(
        "{place}node id {id} is out of range: the graph has {nodes} nodes ({range})"
    ));
    if first == 0 && id == nodes {
        return error.hint(hint!(
            "if ids start at 1: " {one_based = true} "; else give a row of every node, or raise "
            "or leave out " {nodes}
        ));
    }
    error.hint(hint!(
        "there are as many nodes as " {nodes} " says, else as the features, labels or other "
        "arrays of nodes have rows, else as the largest id asks for: give a row of every node, "
        "or raise or leave out " {nodes}
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::Separator;

    fn layout(separator: Separator, columns: usize) -> EdgeLayout {
        EdgeLayout::new(Dialect::plain(separator, columns))
    }

    fn parse(text: &str, layout: &EdgeLayout) -> Result<Vec<[u64; 2]>, BadLine> {
        let mut edges = Vec::new();
        let counts = parse_lines(text.as_bytes(), layout, &mut edges)?;
        assert_eq!(counts.lines as usize, text.matches('\n').count(), "{text:?}");
        Ok(edges)
    }

    #[test]
    fn every_separator_line_end_and_comment_is_understood() {
        use Separator::{Blanks, Comma, Pipe, Semicolon, Tab};
        for (text, separator, columns) in [
            ("0 1\n20 3\n", Blanks, 2),
            ("0\t1\n20\t3\n", Tab, 2),
            ("0,1\n20,3\n", Comma, 2),
            ("0;1\n20;3\n", Semicolon, 2),
            ("0|1\n20|3\n", Pipe, 2),
            ("0 , 1\r\n\r\n  20, 3\r\n", Comma, 2),
            ("# a comment\n0 1\n% another\n  # indented\n20 3\n\n \n", Blanks, 2),
            ("0,1,0.5,\n20,3,,\n", Comma, 4),
            ("0 \t1 x\n20 3\ty\n", Blanks, 3),
            ("0 1 \n20 3\t\n", Blanks, 2),
            ("\"0\",\"1\"\n20,\"3\"\n", Comma, 2),
            ("0,1,\"a, b\"\n20,3,c\n", Comma, 3),
            ("00000000000000000 01\n20 3\n", Blanks, 2),
        ] {
            let found = parse(text, &layout(separator, columns));
            assert_eq!(found.unwrap_or_else(|bad| panic!("{text:?}: {bad:?}")), [[0, 1], [20, 3]]);
        }
        assert_eq!(parse("", &layout(Separator::Tab, 2)).unwrap(), Vec::<[u64; 2]>::new());
    }

    #[test]
    fn columns_may_lie_anywhere() {
        let mut layout = layout(Separator::Comma, 3);
        (layout.source, layout.target) = (2, 0);
        assert_eq!(parse("1,x,0\n3,,20\n", &layout).unwrap(), [[0, 1], [20, 3]]);
    }

    #[test]
    fn comments_are_counted() {
        let mut edges = Vec::new();
        let text = b"# a\n0 1\n\n# b\n2 3\n";
        let counts = parse_lines(text, &layout(Separator::Blanks, 2), &mut edges).unwrap();
        assert_eq!((counts.lines, counts.entries, counts.comments), (5, 2, 2));
    }

    #[test]
    fn ids_with_zeros_in_front_are_counted_in_every_form() {
        for (text, separator, columns, expected) in [
            ("007 1\n7 01\n0 10\n", Separator::Blanks, 2, 2),
            ("\"007\",\"1\"\n00,0\n", Separator::Comma, 2, 2),
            ("007,1,0.5\n7,1,x\n", Separator::Comma, 3, 1),
            ("0 1\n10 100\n", Separator::Blanks, 2, 0),
        ] {
            let mut edges = Vec::new();
            let layout = layout(separator, columns);
            let counts = parse_lines(text.as_bytes(), &layout, &mut edges).unwrap();
            assert_eq!(counts.padded_ids, expected, "{text:?}");
        }
    }

    #[test]
    fn the_largest_id_parses_and_the_next_does_not() {
        let largest = MAX_NODES - 1;
        let blanks = layout(Separator::Blanks, 2);
        assert_eq!(parse(&format!("{largest} 0\n"), &blanks).unwrap(), [[largest, 0]]);
        for text in ["9223372036854775807", "18446744073709551617", "99999999999999999999999"] {
            let bad = parse(&format!("1 2\n0 {text}\n"), &blanks).unwrap_err();
            assert_eq!(bad.line, 1);
            let error = bad.error.to_string();
            assert!(error.contains("too large, expected less than 2^63"), "{error}");
        }
    }

    #[test]
    fn ids_from_one_are_moved() {
        let mut layout = layout(Separator::Blanks, 2);
        layout.dialect.first_id = 1;
        layout.num_nodes = Some(3);
        assert_eq!(parse("1 3\n", &layout).unwrap(), [[0, 2]]);
        for (text, expected) in [
            ("0 1\n", "node id 0 in column 1, expected 1 or more"),
            ("1 4\n", "node id 4 is out of range: the graph has 3 nodes (1 to 3)"),
        ] {
            let error = parse(text, &layout).unwrap_err().error.to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_bad_line_is_named_with_what_was_expected() {
        use Separator::{Blanks, Comma, Tab};
        let ten =
            |separator, columns| EdgeLayout { num_nodes: Some(10), ..layout(separator, columns) };
        for (layout, line, expected) in [
            (ten(Blanks, 2), "7", "`7`: found 1 column separated by blanks, expected 2"),
            (ten(Comma, 2), "7,", "column 2 is ``, expected a node id"),
            (ten(Comma, 2), "7,1,3", "found 3 columns separated by commas, expected 2"),
            (ten(Comma, 3), "7,1", "found 2 columns separated by commas, expected 3"),
            (ten(Blanks, 2), "1 2 3", "found 3 columns separated by blanks, expected 2"),
            (ten(Blanks, 2), "7 -3", "node id -3 in column 2 is negative, expected 0 or more"),
            (ten(Comma, 2), "-1,3", "node id -1 in column 1 is negative"),
            (ten(Blanks, 2), "7 abc", "column 2 is `abc`, expected a node id (a whole number)"),
            (ten(Blanks, 2), "1.5 2", "column 1 is `1.5`, expected a node id"),
            (ten(Blanks, 2), "12x 3", "column 1 is `12x`, expected a node id"),
            (ten(Tab, 3), "x\t1\t", "column 1 is `x`, expected a node id"),
            (ten(Blanks, 2), "1 10", "node id 10 is out of range: the graph has 10 nodes (0 to 9)"),
            (ten(Comma, 2), "1\r2,4", "column 1 is `1\\r2`"),
        ] {
            let error = parse(
                &format!(
                    "0{s}1{x}\n{line}\n",
                    s = layout.dialect.separator.byte().map_or(' ', char::from),
                    x = match (layout.dialect.separator, layout.dialect.columns) {
                        (Comma, 3) => ",0",
                        (Tab, 3) => "\t0",
                        _ => "",
                    }
                ),
                &layout,
            )
            .unwrap_err();
            assert_eq!(error.line, 1, "{line}");
            assert!(error.error.to_string().contains(expected), "{line}: {}", error.error);
        }
    }
}
