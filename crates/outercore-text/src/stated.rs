//! Counts in the comments above the edges, in the style of SNAP and KONECT.

use serde::{Deserialize, Serialize};

/// Numbers of nodes and edges according to the comments of a file.
///
/// They are only informative, because the comments stay unchanged when a part of a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stated {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of lines with an edge.
    pub edges: u64,
}

/// Finds the counts in comments: `# Nodes: 5 Edges: 7` of SNAP, or `% sym unweighted` with
/// `% 7 5 5` of KONECT.
pub(crate) fn stated<'a>(comments: impl Iterator<Item = &'a [u8]>) -> Option<Stated> {
    let mut nodes = None;
    let mut edges = None;
    let mut is_konect = false;
    for comment in comments {
        let Ok(text) = std::str::from_utf8(comment) else { continue };
        let text = text.trim().trim_start_matches(['#', '%']).to_ascii_lowercase();
        nodes = nodes.or_else(|| number_after(&text, "nodes:"));
        edges = edges.or_else(|| number_after(&text, "edges:"));
        let words: Vec<&str> = text.split_whitespace().collect();
        if is_konect {
            let counts: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
            if let Some([of_edges, of_nodes, ..]) = counts.as_deref() {
                return Some(Stated { nodes: *of_nodes, edges: *of_edges });
            }
        }
        is_konect = matches!(words[..], ["sym" | "asym", _]);
    }
    Some(Stated { nodes: nodes?, edges: edges? })
}

fn number_after(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_snap_and_konect_are_found_and_nothing_else_is() {
        let some = |nodes, edges| Some(Stated { nodes, edges });
        for (text, expected) in [
            ("# Undirected graph\n# Nodes: 5 Edges: 7\n# FromNodeId ToNodeId", some(5, 7)),
            ("#Nodes: 5\n#Edges: 7\r", some(5, 7)),
            ("% sym unweighted\n% 7 5 5", some(5, 7)),
            ("% asym positive\n% 7 5", some(5, 7)),
            ("% bip unweighted\n% 7 5 3", None),
            ("# Nodes: 5", None),
            ("# Nodes: many Edges: few", None),
            ("# nodes 5 edges 7", None),
            ("% 7 5 5", None),
            ("", None),
        ] {
            assert_eq!(stated(text.split('\n').map(str::as_bytes)), expected, "{text:?}");
        }
    }
}
