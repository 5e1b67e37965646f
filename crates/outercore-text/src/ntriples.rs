//! N-Triples: one statement per line, `<subject> <predicate> <object> .`.
//!
//! **Source** W3C, *RDF 1.1 N-Triples*. IRIs become names without their angle brackets. Blank nodes
//! (`_:b0`) and literals (`"text"@en`) keep their form, so that different terms have different
//! names.

use outercore_core::{Error, Result};

use crate::fields::{Fields, Place};
use crate::shown::shown;

/// Finds subject, predicate and object.
pub(crate) fn cut(line: &[u8], fields: &mut Fields) -> Result<()> {
    let mut at = 0;
    for term in ["subject", "predicate", "object"] {
        at += blanks(&line[at..]);
        let rest = &line[at..];
        let (start, end, length) = term_at(rest)
            .ok_or_else(|| wrong(line, &format!("the {term} is no IRI, blank node or literal")))?;
        if rest[0] == b'"' && term != "object" || rest[0] == b'_' && term == "predicate" {
            return Err(wrong(line, &format!("the {term} is no IRI")));
        }
        fields.places.push(Place { start: at + start, end: at + end, quoted: false });
        at += length;
    }
    at += blanks(&line[at..]);
    if line.get(at) != Some(&b'.') {
        return Err(wrong(line, "a statement ends with ` .`"));
    }
    let rest = line[at + 1..].trim_ascii();
    if rest.is_empty() || rest[0] == b'#' {
        Ok(())
    } else {
        Err(wrong(line, "text after the final dot"))
    }
}

/// Whether a line is a statement; for detection.
pub(crate) fn is_statement(line: &[u8]) -> bool {
    (line.starts_with(b"<") || line.starts_with(b"_:")) && cut(line, &mut Fields::default()).is_ok()
}

/// Start and end of the name of the first term in `rest`, and the length of the term.
fn term_at(rest: &[u8]) -> Option<(usize, usize, usize)> {
    match rest.first()? {
        b'<' => {
            let end = memchr::memchr(b'>', rest)?;
            (end > 1).then_some((1, end, end + 1))
        }
        b'_' if rest.get(1) == Some(&b':') => {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            // In `_:b.` at the end of a statement, the dot ends the statement.
            let end = if end > 3 && rest[end - 1] == b'.' { end - 1 } else { end };
            (end > 2).then_some((0, end, end))
        }
        b'"' => {
            let mut at = 1;
            while *rest.get(at)? != b'"' {
                at += if rest[at] == b'\\' { 2 } else { 1 };
            }
            at += 1;
            let end = match rest.get(at) {
                Some(b'@') => {
                    let tag = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'-';
                    at + 1 + rest[at + 1..].iter().position(tag).unwrap_or(rest.len() - at - 1)
                }
                Some(b'^') if rest[at..].starts_with(b"^^<") => {
                    at + memchr::memchr(b'>', &rest[at..])? + 1
                }
                _ => at,
            };
            Some((0, end, end))
        }
        _ => None,
    }
}

fn blanks(text: &[u8]) -> usize {
    text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

fn wrong(line: &[u8], what: &str) -> Error {
    Error::invalid(format!("`{}`: {what}", shown(line)))
        .hint("N-Triples has `<subject> <predicate> <object> .` on each line")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(line: &str) -> Result<Vec<String>> {
        let mut fields = Fields::default();
        cut(line.as_bytes(), &mut fields)?;
        Ok(fields.places.iter().map(|at| line[at.start..at.end].to_owned()).collect())
    }

    #[test]
    fn statements_are_cut_into_terms() {
        for (line, expected) in [
            ("<http://a> <http://p> <http://b> .", ["http://a", "http://p", "http://b"]),
            (
                "<a>\t<p>\t\"tab\\there, and; more\"@en .",
                ["a", "p", "\"tab\\there, and; more\"@en"],
            ),
            ("_:x <p> \"7\"^^<http://int> . # note", ["_:x", "p", "\"7\"^^<http://int>"]),
            ("<a> <p> \"a \\\" quote\".", ["a", "p", "\"a \\\" quote\""]),
            ("<a> <p> _:b .", ["a", "p", "_:b"]),
        ] {
            assert_eq!(terms(line).unwrap(), expected, "{line}");
            assert!(is_statement(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn what_is_no_statement_is_refused() {
        for line in [
            "<a> <p> <b>",
            "<a> \"p\" <b> .",
            "a p b .",
            "<a> <p> .",
            "<a> <p> \"open .",
            "<> <p> <b> .",
            "<a> <p> <b> . <c>",
        ] {
            assert!(terms(line).is_err(), "{line}");
        }
    }
}
