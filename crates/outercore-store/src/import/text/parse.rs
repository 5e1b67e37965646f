use outercore_core::Error;

use crate::import::options::MAX_NODES;

/// What the lines of one file mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// The id of the first node in the text: 0, or 1 in Matrix Market files.
    pub first_id: u64,
    /// Nodes of the graph, where known; larger ids are refused.
    pub num_nodes: Option<u64>,
    /// Whether each entry off the diagonal also gives its reverse, as the next edge.
    pub mirrored: bool,
}

impl Dialect {
    /// Ids from 0, any number of nodes, one edge a line.
    #[cfg(test)]
    pub const PLAIN: Self = Self { first_id: 0, num_nodes: None, mirrored: false };
}

/// A line that is no edge.
#[derive(Debug)]
pub(crate) struct BadLine {
    /// Lines of the block before it.
    pub line: u64,
    /// What is wrong; file and line number are the caller's to add.
    pub error: Error,
}

/// The most digits whose number surely fits 64 bits.
const SAFE_DIGITS: usize = 19;

/// What a block of lines held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub lines: u64,
    /// Lines with an edge.
    pub entries: u64,
}

/// Appends the edges of `bytes`, whole lines that end in `\n`.
///
/// **Cost** About 1 ns a byte; columns after the second are skipped by `memchr`.
pub(crate) fn parse_lines(
    bytes: &[u8],
    dialect: Dialect,
    edges: &mut Vec<[u64; 2]>,
) -> Result<Counts, BadLine> {
    debug_assert_eq!(bytes.last().copied().unwrap_or(b'\n'), b'\n');
    let first = dialect.first_id;
    let last = dialect.num_nodes.unwrap_or(MAX_NODES).saturating_sub(1).saturating_add(first);
    let empty_graph = dialect.num_nodes == Some(0);
    let mut at = 0;
    let mut line = 0;
    let mut entries = 0;
    while at < bytes.len() {
        let start = at;
        at = skip_blanks(bytes, at);
        if bytes[at].is_ascii_digit() {
            let (source, source_end) = number(bytes, at);
            let target_start = skip_separator(bytes, source_end);
            let (target, end) = number(bytes, target_start);
            let well_formed = target_start > source_end
                && end > target_start
                && source_end - at <= SAFE_DIGITS
                && end - target_start <= SAFE_DIGITS
                && source.max(target) <= last
                && source.min(target) >= first
                && !empty_graph;
            let next = if well_formed { end_of_edge(bytes, end) } else { None };
            let Some(next) = next else {
                return Err(BadLine { line, error: diagnose(line_at(bytes, start), dialect) });
            };
            edges.push([source - first, target - first]);
            if dialect.mirrored && source != target {
                edges.push([target - first, source - first]);
            }
            entries += 1;
            at = next;
        } else if is_comment_or_blank(&bytes[at..]) {
            at = end_of_line(bytes, at);
        } else {
            return Err(BadLine { line, error: diagnose(line_at(bytes, start), dialect) });
        }
        line += 1;
    }
    Ok(Counts { lines: line, entries })
}

/// Whether a line that starts here (after blanks) carries no edge.
pub(super) fn is_comment_or_blank(rest: &[u8]) -> bool {
    match rest.first() {
        None | Some(b'\n' | b'#' | b'%') => true,
        Some(b'\r') => matches!(rest.get(1), None | Some(b'\n')),
        _ => false,
    }
}

/// The run of digits at `at`, modulo 2^64, and where it ends.
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

/// Blanks with at most one comma or semicolon among them.
#[inline(always)]
fn skip_separator(bytes: &[u8], at: usize) -> usize {
    let at = skip_blanks(bytes, at);
    if matches!(bytes[at], b',' | b';') { skip_blanks(bytes, at + 1) } else { at }
}

/// The start of the next line, given the end of the second id; `None` if the id goes on with
/// something else than a digit.
#[inline(always)]
fn end_of_edge(bytes: &[u8], end: usize) -> Option<usize> {
    match bytes[end] {
        b'\n' => Some(end + 1),
        b'\r' if bytes[end + 1] == b'\n' => Some(end + 2),
        b' ' | b'\t' | b',' | b';' => Some(end_of_line(bytes, end)),
        _ => None,
    }
}

#[inline]
fn end_of_line(bytes: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length + 1)
}

fn line_at(bytes: &[u8], start: usize) -> &[u8] {
    bytes[start..end_of_line(bytes, start)].trim_ascii_end()
}

/// The columns of a line, by the separators of [`parse_lines`].
pub(super) fn columns(line: &[u8]) -> Vec<&[u8]> {
    if line.iter().any(|byte| matches!(byte, b',' | b';')) {
        line.split(|byte| matches!(byte, b',' | b';')).map(<[u8]>::trim_ascii).collect()
    } else {
        line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|part| !part.is_empty()).collect()
    }
}

/// Says what is wrong with a line that [`parse_lines`] refused. Slow, and only once an import.
fn diagnose(line: &[u8], dialect: Dialect) -> Error {
    let columns = columns(line);
    let shown = shorten(line);
    if columns.len() < 2 || columns[1].is_empty() {
        return Error::invalid(format!(
            "`{shown}`: found one column, expected at least two (source and target node id)"
        ));
    }
    for (name, column) in [("first", columns[0]), ("second", columns[1])] {
        if let Some(error) = diagnose_id(&shown, name, column, dialect) {
            return error;
        }
    }
    Error::invalid(format!(
        "`{shown}`: expected two node ids, separated by blanks, a comma or a semicolon"
    ))
}

fn diagnose_id(shown: &str, name: &str, column: &[u8], dialect: Dialect) -> Option<Error> {
    let text = shorten(column);
    let digits = column.strip_prefix(b"-").unwrap_or(column);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Some(
            Error::invalid(format!(
                "`{shown}`: {name} column is `{text}`, expected a node id (a whole number)"
            ))
            .hint(
                "node ids are numbers from 0 on; numbers in quotes are read where columns are \
                 named, as in `FILE:source,target`; triples of names are imported with \
                 `--triples`, other names are mapped to numbers before",
            ),
        );
    }
    if digits.len() < column.len() {
        return Some(Error::invalid(format!(
            "`{shown}`: node id {text} in the {name} column is negative, expected 0 or more"
        )));
    }
    let value = text.parse::<u64>().unwrap_or(u64::MAX);
    if value < dialect.first_id {
        return Some(Error::invalid(format!(
            "`{shown}`: node id 0 in the {name} column, expected 1 or more: \
             ids in Matrix Market files start at 1"
        )));
    }
    let id = value - dialect.first_id;
    match dialect.num_nodes {
        Some(nodes) if id >= nodes => Some(out_of_range(&format!("`{shown}`: "), id, nodes)),
        None if id >= MAX_NODES => Some(Error::invalid(format!(
            "`{shown}`: node id {text} in the {name} column is too large, expected less than 2^63"
        ))),
        _ => None,
    }
}

/// The error for an id that the graph has no node for.
pub(crate) fn out_of_range(place: &str, id: u64, nodes: u64) -> Error {
    let range = match nodes {
        0 => "none at all".to_owned(),
        _ => format!("0 to {}", nodes - 1),
    };
    Error::invalid(format!(
        "{place}node id {id} is out of range: the graph has {nodes} nodes ({range})"
    ))
    .hint(
        "there are as many nodes as `--nodes` says, else as the features, labels or other arrays \
         of nodes have rows, else as the largest id asks for: give a row of every node, or raise \
         or leave out `--nodes`",
    )
}

/// At most 60 characters of `text`, printable.
pub(super) fn shorten(text: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN + 4)]);
    let mut shown: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<[u64; 2]> {
        parse_as(text, Dialect::PLAIN).unwrap_or_else(|bad| panic!("{text:?}: {bad:?}"))
    }

    fn parse_as(text: &str, dialect: Dialect) -> Result<Vec<[u64; 2]>, BadLine> {
        let mut edges = Vec::new();
        let counts = parse_lines(text.as_bytes(), dialect, &mut edges)?;
        assert_eq!(counts.lines as usize, text.matches('\n').count(), "{text:?}");
        Ok(edges)
    }

    #[test]
    fn every_separator_line_end_and_comment_is_understood() {
        let expected = vec![[0, 1], [20, 3]];
        for text in [
            "0 1\n20 3\n",
            "0\t1\n20\t3\n",
            "0,1\n20,3\n",
            "0;1\n20;3\n",
            "0 , 1\r\n\r\n  20,\t3\r\n",
            "# a comment\n0 1\n% another\n  # indented\n20 3\n\n \n",
            "0 1 0.5 text\n20 3 -7,,\n",
            "0,1,0.5,\n20,3,,\n",
            "0 1 \n20 3\t\n",
            "00000000000000000 01\n20 3\n",
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
        assert_eq!(parse(""), Vec::<[u64; 2]>::new());
    }

    #[test]
    fn the_largest_id_parses_and_the_next_does_not() {
        let largest = MAX_NODES - 1;
        assert_eq!(parse(&format!("{largest} 0\n")), [[largest, 0]]);
        for text in ["9223372036854775807", "18446744073709551617", "99999999999999999999999"] {
            let bad = parse_as(&format!("1 2\n0 {text}\n"), Dialect::PLAIN).unwrap_err();
            assert_eq!(bad.line, 1);
            assert!(
                bad.error.to_string().contains("too large, expected less than 2^63"),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_bad_line_is_named_with_what_was_expected() {
        let ten = Dialect { num_nodes: Some(10), ..Dialect::PLAIN };
        let market = Dialect { first_id: 1, num_nodes: Some(10), mirrored: false };
        for (dialect, line, expected) in [
            (ten, "7", "`7`: found one column, expected at least two"),
            (ten, "7,", "`7,`: found one column, expected at least two"),
            (ten, "7,,3", "`7,,3`: found one column, expected at least two"),
            (
                ten,
                "7 -3",
                "`7 -3`: node id -3 in the second column is negative, expected 0 or more",
            ),
            (ten, "-1,3", "node id -1 in the first column is negative"),
            (ten, "7 abc", "second column is `abc`, expected a node id (a whole number)"),
            (ten, "1.5 2", "first column is `1.5`, expected a node id"),
            (ten, "1 2.0", "second column is `2.0`, expected a node id"),
            (ten, "12x 3", "first column is `12x`, expected a node id"),
            (ten, "\"1\",3", "first column is `\"1\"`, expected a node id"),
            (ten, "1 10", "`1 10`: node id 10 is out of range: the graph has 10 nodes (0 to 9)"),
            (ten, "1\r2\r3 4", "`1 2 3 4`: first column is"),
            (market, "0 3", "node id 0 in the first column, expected 1 or more"),
            (market, "11 3", "node id 10 is out of range"),
        ] {
            let bad = parse_as(&format!("1 2\n# fine\n{line}\n3 4\n"), dialect).unwrap_err();
            assert_eq!(bad.line, 2, "{line}");
            assert!(bad.error.to_string().contains(expected), "{line}: {}", bad.error);
        }
    }

    #[test]
    fn a_long_line_is_shown_shortened() {
        let text = format!("1 x{}\n", "é".repeat(10_000));
        let message = parse_as(&text, Dialect::PLAIN).unwrap_err().error.to_string();
        assert!(message.chars().count() < 400, "{message}");
        assert!(message.contains('…'));
    }

    #[test]
    fn matrix_market_entries_are_shifted_and_mirrored() {
        let dialect = Dialect { first_id: 1, num_nodes: Some(3), mirrored: true };
        let edges = parse_as("1 1 0.5\n2 1 0.5\n3 2\n", dialect).unwrap();
        assert_eq!(edges, [[0, 0], [1, 0], [0, 1], [2, 1], [1, 2]]);
    }
}
