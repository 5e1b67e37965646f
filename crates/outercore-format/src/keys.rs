//! Names of the arrays in a data set.
//!
//! A key is the path of an array inside the data set without `.npy`. A homogeneous graph has one
//! node type, [`NODE`], and one edge type, [`EDGE`].

use outercore_core::{Error, Result};

/// The node type of a homogeneous graph.
pub const NODE: &str = "node";

/// The edge type of a homogeneous graph.
pub const EDGE: &str = "edge";

/// CSC column offsets: `uint64 [N + 1]`; with several types `[columns + 1]`.
pub const OFFSETS: &str = "edges/edge/offsets";

/// CSC sources: `uint32` or `uint64 [E]`; global ids if there are several types.
pub const SOURCES: &str = "edges/edge/sources";

/// CSC edge ids: `uint32` or `uint64 [E]`; absent if each id equals its position.
pub const EDGE_IDS: &str = "edges/edge/ids";

/// Whether `key` is one of the CSC arrays, which all edge types share.
pub fn is_topology(key: &str) -> bool {
    [OFFSETS, SOURCES, EDGE_IDS].contains(&key)
}

/// Weights of the imported edges, by edge id, as written by `outercore import --weight`.
pub const EDGE_WEIGHTS: &str = "edges/edge/weight";

/// The training triples of a knowledge graph: `int64 [n, 3]`.
pub const TRIPLES: &str = "triples/train";

/// Node features written by an import.
pub const FEATURES: &str = "nodes/node/x";

/// Node labels written by an import.
pub const LABELS: &str = "nodes/node/y";

/// The kind of the names of classes: `names/class.offsets` and `names/class.bytes`.
pub const CLASS: &str = "class";

/// The first node of each graph, in a data set of many graphs: `int64` or `uint64 [G]`.
pub const FIRST_NODES: &str = "graphs/first";

/// Labels of graphs.
pub const GRAPH_LABELS: &str = "graphs/y";

/// The key of the node array `name` of the homogeneous graph.
///
/// # Example
/// ```
/// assert_eq!(outercore_format::keys::node_array("year"), "nodes/node/year");
/// ```
pub fn node_array(name: &str) -> String {
    format!("nodes/{NODE}/{name}")
}

/// The key of the edge array `name` of the homogeneous graph.
///
/// # Example
/// ```
/// assert_eq!(outercore_format::keys::edge_array("time"), "edges/edge/time");
/// ```
pub fn edge_array(name: &str) -> String {
    format!("edges/{EDGE}/{name}")
}

/// The key of the array `name`, which has one row per graph.
///
/// # Example
/// ```
/// assert_eq!(outercore_format::keys::graph_array("y"), "graphs/y");
/// ```
pub fn graph_array(name: &str) -> String {
    format!("graphs/{name}")
}

/// The key of the split `name`.
///
/// # Example
/// ```
/// assert_eq!(outercore_format::keys::split("train"), "splits/train");
/// ```
pub fn split(name: &str) -> String {
    format!("splits/{name}")
}

/// Prefixes of the keys of grids and layouts.
const DERIVED: [&str; 2] = ["grid/", "layout/"];

/// The weights of a grid.
pub const GRID_WEIGHTS: &str = "grid/edge/weights";

/// Whether an array belongs to a grid or a layout, which are computed from other arrays and can be
/// rebuilt.
pub fn is_derived(key: &str) -> bool {
    DERIVED.iter().any(|prefix| key.starts_with(prefix))
}

/// Whether the array `derived` is computed from the array `key`. A layout depends on one array, a
/// grid on the topology or the triples. A grid with weights counts as dependent on every edge
/// array.
///
/// # Example
/// ```
/// use outercore_format::keys::is_made_of;
/// assert!(is_made_of("layout/nodes/node/x/int8/rows", "nodes/node/x", false));
/// assert!(!is_made_of("layout/nodes/node/x/int8/rows", "nodes/node/y", false));
/// assert!(is_made_of("grid/edge/blocks", "edges/edge/sources", false));
/// ```
pub fn is_made_of(derived: &str, key: &str, has_weights: bool) -> bool {
    if let Some(layout) = derived.strip_prefix(DERIVED[1]) {
        let parts = layout.strip_prefix(key).and_then(|rest| rest.strip_prefix('/'));
        // Exactly the precision and the part must follow: another array's name may start with this
        // key.
        return parts.is_some_and(|parts| parts.split('/').count() == 2);
    }
    derived.starts_with(DERIVED[0])
        && (is_topology(key)
            || match Group::of(key) {
                Group::Triples { .. } => true,
                Group::Edge { .. } | Group::Weights { .. } => has_weights,
                _ => false,
            })
}

/// The kind of array that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group<'a> {
    /// `nodes/<node type>/<name>`.
    Node {
        /// The node type.
        node_type: &'a str,
        /// The array's name, which may contain slashes.
        name: &'a str,
    },
    /// `edges/<edge type>/<name>`.
    Edge {
        /// The edge type.
        edge_type: &'a str,
        /// The array's name, which may contain slashes.
        name: &'a str,
    },
    /// `splits/<name>`.
    Split {
        /// The split's name, which may contain slashes.
        name: &'a str,
    },
    /// `graphs/first`.
    FirstNodes,
    /// `graphs/splits/<name>`.
    GraphSplit {
        /// The split's name, which may contain slashes.
        name: &'a str,
    },
    /// `graphs/<name>`.
    Graph {
        /// The array's name, which may contain slashes.
        name: &'a str,
    },
    /// `triples/<part>`.
    Triples {
        /// The part, such as `train`.
        part: &'a str,
    },
    /// `triples/<part>.weight`.
    Weights {
        /// The part whose triples have these weights.
        part: &'a str,
    },
    /// `names/<kind>.<array>`.
    Names {
        /// The owner of the names: `entity`, `relation` or `class`; for texts of nodes `<node
        /// type>.<name>`.
        kind: &'a str,
        /// `offsets`, `bytes` or `order`.
        array: &'a str,
    },
    /// Any other key: the array is stored and checked for length and checksum, but not interpreted.
    Other,
}

impl<'a> Group<'a> {
    /// The group of `key`.
    pub fn of(key: &'a str) -> Self {
        let mut parts = key.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("nodes"), Some(node_type), Some(name)) => Self::Node { node_type, name },
            (Some("edges"), Some(edge_type), Some(name)) => Self::Edge { edge_type, name },
            (Some("splits"), Some(_), _) => Self::Split { name: &key["splits/".len()..] },
            (Some("graphs"), Some("first"), None) => Self::FirstNodes,
            (Some("graphs"), Some("splits"), Some(name)) => Self::GraphSplit { name },
            (Some("graphs"), Some(_), _) => Self::Graph { name: &key["graphs/".len()..] },
            (Some("triples"), Some(name), None) => match name.strip_suffix(".weight") {
                Some(part) => Self::Weights { part },
                None => Self::Triples { part: name },
            },
            (Some("names"), Some(name), None) => match name.rsplit_once('.') {
                Some((kind, array)) => Self::Names { kind, array },
                None => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

/// Checks that `path` is relative, stays below its starting directory and is the same on every file
/// system. It consists of parts separated by single slashes. A part has letters, digits, `_ - . +`
/// and inner blanks, and does not start with a dot.
///
/// # Errors
/// `Invalid`, naming the path and the part.
pub fn validate(path: &str) -> Result<()> {
    const LONGEST: usize = 1024;
    if path.len() > LONGEST {
        return Err(Error::invalid(format!(
            "name of {} bytes, expected at most {LONGEST}",
            path.len()
        )));
    }
    for part in path.split('/') {
        let allowed = |c: char| c.is_alphanumeric() || "_-.+ ".contains(c);
        let blank_edge = part.starts_with(' ') || part.ends_with(' ');
        if part.is_empty() || part.len() > 200 || part.starts_with('.') || blank_edge {
            return Err(bad_part(path, part));
        }
        if !part.chars().all(allowed) {
            return Err(bad_part(path, part));
        }
    }
    Ok(())
}

fn bad_part(path: &str, part: &str) -> Error {
    Error::invalid(format!(
        "`{}` is no name inside a data set, because of its part `{}`",
        path.escape_debug(),
        part.escape_debug()
    ))
    .hint("use letters, digits, `_`, `-`, `+` and dots that are not the first character")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_data_set_or_hide_are_refused() {
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            ".import/x",
            "a\\b",
            "a\0b",
            "a\nb",
            "C:a",
            "a/.hidden",
            " a",
            "a ",
        ] {
            validate(path).unwrap_err();
        }
        for path in ["x", "nodes/node/x", "nodes/node/Größe 2.npy", "splits/fold-1", "a..b"] {
            validate(path).unwrap();
        }
    }

    #[test]
    fn a_key_tells_its_group() {
        assert_eq!(Group::of("nodes/node/x"), Group::Node { node_type: "node", name: "x" });
        assert_eq!(Group::of("edges/cites/a/b"), Group::Edge { edge_type: "cites", name: "a/b" });
        assert_eq!(Group::of("splits/train"), Group::Split { name: "train" });
        assert_eq!(Group::of("splits/fold/1"), Group::Split { name: "fold/1" });
        assert_eq!(Group::of("graphs/first"), Group::FirstNodes);
        assert_eq!(Group::of("graphs/splits/fold/1"), Group::GraphSplit { name: "fold/1" });
        assert_eq!(Group::of("graphs/y"), Group::Graph { name: "y" });
        assert_eq!(Group::of("graphs/first/z"), Group::Graph { name: "first/z" });
        assert_eq!(Group::of("triples/train"), Group::Triples { part: "train" });
        assert_eq!(Group::of("triples/train.weight"), Group::Weights { part: "train" });
        let names = Group::Names { kind: "entity", array: "offsets" };
        assert_eq!(Group::of("names/entity.offsets"), names);
        let others =
            ["nodes/node", "grid/edge/blocks", "splits", "triples", "triples/a/b", "names/x", "x"];
        for key in others {
            assert_eq!(Group::of(key), Group::Other, "{key}");
        }
    }
}
