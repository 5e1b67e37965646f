//! DIMACS graphs: `c` comments, one `p` line with the sizes, then edges with ids from 1.
//!
//! The shortest-path form (`p sp N M`, lines `a U V WEIGHT`), the colouring form (`p edge N M` or
//! `p col N M`, lines `e U V`) and the tree-width form of PACE (`p tw N M`, lines `U V`).

use outercore_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::fields::Fields;
use crate::notation::{Quotes, Separator};
use crate::shown::shown;

/// Properties that a DIMACS file states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dimacs {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Number of edges that follow.
    pub edges: u64,
    /// Whether a line stands for both directions.
    pub undirected: bool,
    /// Whether edges carry a weight.
    pub weighted: bool,
}

impl Dimacs {
    /// Whether the first field of an edge line is its expected letter.
    pub(crate) fn has_letter(&self, first: Option<&[u8]>) -> bool {
        matches!(first, Some(b"a" | b"e"))
    }

    pub(crate) fn columns(&self) -> usize {
        if self.weighted { 3 } else { 2 }
    }
}

/// Whether a line is the `p` line, with the kind of problem and the sizes.
pub(crate) fn is_problem(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.next() == Some(b"p") && words.next().is_some_and(|word| word[0].is_ascii_alphabetic())
}

/// Whether a line is a comment.
pub(crate) fn is_comment(line: &[u8]) -> bool {
    matches!(line, [b'c'] | [b'c', b' ' | b'\t', ..])
}

/// Parses the sizes in the `p` line.
pub(crate) fn parse_problem(line: &[u8]) -> Result<Dimacs> {
    let mut fields = Fields::default();
    let count = fields.split(line, Separator::Blanks, Quotes::Plain)?;
    let number = |place: usize| -> Option<u64> {
        std::str::from_utf8(fields.get(line, place)).ok()?.parse().ok()
    };
    let (Some(nodes), Some(edges)) =
        (if count == 4 { number(2) } else { None }, if count == 4 { number(3) } else { None })
    else {
        return Err(Error::invalid(format!(
            "DIMACS header: `{}`: expected `p KIND NODES EDGES`",
            shown(line)
        )));
    };
    let (undirected, weighted) = match fields.get(line, 1) {
        b"sp" => (false, true),
        b"tw" | b"edge" | b"col" => (true, false),
        other => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("DIMACS header: kind `{}`: expected sp, tw, edge or col", shown(other)),
            ));
        }
    };
    Ok(Dimacs { nodes, edges, undirected, weighted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_and_the_kind_are_read() {
        assert!(is_problem(b"p sp 3 4\n") && is_problem(b"p tw 3 4") && !is_problem(b"p 1 2"));
        assert!(is_comment(b"c road graph") && is_comment(b"c") && !is_comment(b"city 1"));
        let roads = parse_problem(b"p sp 3 4\n").unwrap();
        assert_eq!((roads.nodes, roads.edges, roads.undirected, roads.columns()), (3, 4, false, 3));
        let pace = parse_problem(b"p tw 3 4").unwrap();
        assert_eq!((pace.undirected, pace.columns()), (true, 2));
        for line in ["p sp 3", "p sp x 4", "p max 3 4"] {
            assert!(parse_problem(line.as_bytes()).is_err(), "{line}");
        }
    }
}
