//! The source of a grid's arcs: the arcs of all edge types or of one, or the triples of a knowledge
//! graph.

use std::ops::Range;

use outercore_core::{Error, ErrorKind, Result, command, hint};
use outercore_format::{Manifest, keys};
use outercore_store::dataset::DataSet;

/// The arcs for a grid, and the nodes that the grid numbers.
///
/// With all edge types, all nodes are numbered by their global ids. With one edge type, only the
/// nodes of its source and target type are numbered, in the order of the types.
///
/// The training triples of a knowledge graph are arcs from head to tail; the id of a relation
/// selects its triples. The number of an entity is its id.
///
/// # Example
/// ```
/// use outercore_grid::GridSource;
/// use outercore_store::dataset::DataSet;
/// # fn main() -> outercore_core::Result<()> {
/// # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/format-4");
/// let graph = DataSet::open(root)?;
/// // 2 authors and 3 papers.
/// assert_eq!(GridSource::of(&graph, None)?.nodes(), 5);
/// assert_eq!(GridSource::of(&graph, Some("paper__cites__paper"))?.nodes(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridSource {
    relation: Option<String>,
    nodes: u64,
    symmetric: bool,
    origin: Origin,
}

/// Location of the arcs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Csc(Columns),
    Triples {
        /// Rows of the array of triples.
        rows: u64,
        /// The relation whose triples are used; `None`: all.
        relation: Option<i64>,
    },
}

/// Consecutive columns of the CSC, of all edge types or of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    parts: Vec<EdgePart>,
    nodes: u64,
}

/// The arcs of an edge type: consecutive columns of the CSC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EdgePart {
    /// The edge type, as in keys.
    pub(crate) name: String,
    pub(crate) columns: Range<u64>,
    /// Positions in the CSC.
    pub(crate) arcs: Range<u64>,
    /// Edge ids; the end is unknown if the manifest does not give the number of rows.
    pub(crate) rows: Range<u64>,
    pub(crate) rows_are_known: bool,
    /// Global ids of its source nodes.
    pub(crate) sources: Range<u64>,
    /// The number of a source is its global id minus this.
    pub(crate) source_shift: u64,
    /// The number of the first column's target.
    pub(crate) first_target: u64,
}

impl GridSource {
    /// The arcs of the edge type `relation`, by its name in keys, or of all edge types. For
    /// triples: those of the relation with this id, or all.
    ///
    /// # Errors
    /// `Invalid`: there are neither edges nor triples. `NotFound`: no such edge type, with the
    /// existing ones; no such relation.
    pub fn of(data_set: &DataSet, relation: Option<&str>) -> Result<Self> {
        let (schema, manifest) = (data_set.schema(), data_set.manifest());
        if manifest.edge_types.is_empty() {
            return Self::of_triples(data_set, relation);
        }
        let chosen = relation.map(|name| schema.edge_type(name)).transpose()?;
        let mut numbered: Vec<usize> = match chosen {
            Some(place) => {
                let edge_type = &schema.edge_types()[place];
                vec![edge_type.source, edge_type.target]
            }
            None => (0..schema.node_types().len()).collect(),
        };
        numbered.sort_unstable();
        numbered.dedup();
        let mut shifts = vec![0; schema.node_types().len()];
        let mut nodes = 0;
        for place in numbered {
            let range = &schema.node_types()[place].nodes;
            shifts[place] = range.start - nodes;
            nodes += range.end - range.start;
        }
        let (mut parts, mut symmetric, mut arcs) = (Vec::new(), true, 0);
        for (place, edge_type) in schema.edge_types().iter().enumerate() {
            let listed = &manifest.edge_types[&edge_type.name];
            let positions = arcs..arcs + listed.count;
            arcs = positions.end;
            if chosen.is_some_and(|chosen| chosen != place) {
                continue;
            }
            symmetric &= listed.undirected;
            let target = &schema.node_types()[edge_type.target].nodes;
            parts.push(EdgePart {
                name: edge_type.name.clone(),
                columns: edge_type.columns.clone(),
                arcs: positions,
                rows: edge_type.rows.clone(),
                rows_are_known: listed.rows.is_some(),
                sources: schema.node_types()[edge_type.source].nodes.clone(),
                source_shift: shifts[edge_type.source],
                first_target: target.start - shifts[edge_type.target],
            });
        }
        let origin = Origin::Csc(Columns { parts, nodes });
        Ok(Self { relation: relation.map(str::to_owned), nodes, symmetric, origin })
    }

    fn of_triples(data_set: &DataSet, relation: Option<&str>) -> Result<Self> {
        if !data_set.has_array(keys::TRIPLES) {
            return Err(data_set.no_edges());
        }
        let none = |name| {
            let text =
                format!("the triples of `{}` have no relation `{name}`", data_set.root().display());
            Error::new(ErrorKind::NotFound, text)
        };
        let chosen = relation.map(|id| id.parse::<u32>().map_err(|_| none(id))).transpose()?;
        Ok(Self {
            relation: relation.map(str::to_owned),
            nodes: data_set.num_nodes(),
            symmetric: false,
            origin: Origin::Triples {
                rows: data_set.array(keys::TRIPLES)?.rows(),
                relation: chosen.map(i64::from),
            },
        })
    }

    /// The requested edge type, as in keys, or the id of a relation; `None`: all.
    pub fn relation(&self) -> Option<&str> {
        self.relation.as_deref()
    }

    /// Number of nodes that the grid numbers.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The key of the edge array `name`, which may also be a full key.
    ///
    /// # Errors
    /// `Invalid` if the grid has several edge types: an array belongs to one of them.
    pub fn edge_array(&self, name: &str) -> Result<String> {
        match self.array_prefix() {
            Ok(prefix) => Ok(format!("{prefix}{}", name.strip_prefix(&prefix).unwrap_or(name))),
            Err(several) => {
                let shown = several[0].name.replace("__", ",");
                Err(Error::invalid(format!(
                    "weights `{name}`: an edge array belongs to one edge type, and none was chosen"
                ))
                .hint(hint!("choose one edge type by " {relation} ", such as `{shown}`")))
            }
        }
    }

    /// The prefix of the keys of edge arrays.
    ///
    /// # Errors
    /// The edge types, if there are several: each has separate arrays.
    fn array_prefix(&self) -> Result<String, &[EdgePart]> {
        match &self.origin {
            Origin::Triples { .. } => Ok(format!("{}.", keys::TRIPLES)),
            Origin::Csc(columns) => match &columns.parts[..] {
                [only] => Ok(format!("edges/{}/", only.name)),
                several => Err(several),
            },
        }
    }

    /// The error that the edges of one edge type have no array `name`; lists the existing arrays.
    pub fn no_array(&self, data_set: &DataSet, name: &str) -> Error {
        let prefix = self.array_prefix().unwrap_or_default();
        let arrays = data_set.manifest().arrays.keys();
        let there: Vec<&str> = arrays
            .filter(|key| !keys::is_topology(key))
            .filter_map(|key| key.strip_prefix(&prefix))
            .collect();
        let text = format!("edge array `{name}` is not in the data set");
        Error::new(ErrorKind::NotFound, text).hint(match (&self.origin, there.is_empty()) {
            (_, false) => format!("it has {}", there.join(", ")),
            (Origin::Csc(_), true) => {
                "add one with `Graph.add_edge_array`, or a weight of `outercore import`".to_owned()
            }
            (Origin::Triples { .. }, true) => format!(
                "triples with weights come from `{}`",
                command("import", &[("triples", ""), ("columns", "hrtw")])
            ),
        })
    }

    /// Whether every edge represents two arcs.
    pub(crate) fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Number of arcs; `None` if it is unknown until the triples of a relation have been counted.
    pub(crate) fn arcs(&self) -> Option<u64> {
        match &self.origin {
            Origin::Csc(columns) => Some(columns.arcs().end - columns.arcs().start),
            Origin::Triples { rows, relation: None } => Some(*rows),
            Origin::Triples { .. } => None,
        }
    }

    /// Current checksums, from the manifest, of the input of a grid with the array `weights`:
    /// offsets, sources and edge ids, or only the triples; and the weights.
    pub(crate) fn topology(&self, manifest: &Manifest, weights: Option<&str>) -> [String; 4] {
        let checksum = |key: &str| {
            manifest.arrays.get(key).map_or_else(String::new, |entry| entry.checksum.clone())
        };
        let weights = weights.and_then(|name| self.edge_array(name).ok());
        let weights = weights.map_or_else(String::new, |key| checksum(&key));
        match self.origin {
            Origin::Csc(_) => {
                let [offsets, sources, ids] =
                    [keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS].map(checksum);
                [offsets, sources, ids, weights]
            }
            Origin::Triples { .. } => {
                [checksum(keys::TRIPLES), String::new(), String::new(), weights]
            }
        }
    }
}

impl Columns {
    pub(crate) fn parts(&self) -> &[EdgePart] {
        &self.parts
    }

    /// Consecutive columns of the CSC.
    pub(crate) fn columns(&self) -> Range<u64> {
        self.first().columns.start..self.last().columns.end
    }

    /// Consecutive positions in the CSC.
    pub(crate) fn arcs(&self) -> Range<u64> {
        self.first().arcs.start..self.last().arcs.end
    }

    /// Edge ids.
    pub(crate) fn rows(&self) -> Range<u64> {
        self.first().rows.start..self.last().rows.end
    }

    /// Whether a column equals the number of its target, as in a graph of one type.
    pub(crate) fn are_nodes(&self) -> bool {
        self.columns() == (0..self.nodes) && self.parts.len() == 1
    }

    pub(crate) fn first(&self) -> &EdgePart {
        self.parts.first().expect("a source has an edge type")
    }

    fn last(&self) -> &EdgePart {
        self.parts.last().expect("a source has an edge type")
    }
}
