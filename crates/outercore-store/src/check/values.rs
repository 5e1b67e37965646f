//! Rules for the elements of an array, chosen by its key.

use outercore_core::{Error, Result};
use outercore_format::keys::{self, Group};
use outercore_format::{DType, Manifest};

use crate::arrays::{LabelRule, Number, node_id, number};
use crate::dataset::ArrayRef;
use crate::delta::GRAPHS;

/// A rule for the elements of an array. Elements are checked in their order.
pub(super) enum Values {
    Any,
    /// Labels of nodes or graphs.
    Labels {
        rule: LabelRule,
        columns: u64,
    },
    Nodes {
        count: u64,
    },
    Triples {
        /// Number of entities and of relations; `None` if the data set does not record it.
        counts: [Option<u64>; 2],
    },
    Weights,
    /// The offset at which each name ends.
    Ends {
        /// Bytes of all names.
        total: u64,
        elements: u64,
        /// The previous element.
        before: u64,
        /// Whether the names are texts of nodes, which may be empty.
        are_texts: bool,
    },
    /// A permutation of names: each id once.
    Ids {
        count: u64,
        /// One bit per id: whether it has occurred.
        seen: Vec<u64>,
    },
    /// The first node of each graph.
    FirstNodes {
        /// All elements are below this.
        nodes: u64,
        /// The previous element.
        before: Option<i128>,
    },
    /// The graph of each added node. The graph may be the next new one.
    Joined {
        /// Number of graphs so far.
        count: u64,
    },
    /// Ids of graphs.
    Graphs {
        count: u64,
    },
}

impl Values {
    /// The rule of an array.
    ///
    /// # Errors
    /// `Corrupt`: the type or shape of the array does not fit its key.
    pub fn of(manifest: &Manifest, array: &ArrayRef) -> Result<Self> {
        let rule = LabelRule::of(manifest, &array.key, array.dtype);
        let labels = |rule| Self::Labels { rule, columns: array.row_elements() };
        // The number of rows of a graph array is checked below.
        if let Some(rule) = rule.filter(|_| array.key != keys::GRAPH_LABELS) {
            return Ok(labels(rule));
        }
        let rows = |key: &str| manifest.arrays.get(key).map(|entry| entry.shape[0]);
        match Group::of(&array.key) {
            // Without labels a split may refer to any node type.
            Group::Split { .. } => {
                let labelled = manifest.roles.labels.as_deref().map(Group::of);
                let counts = manifest.node_types.iter().filter(|(name, _)| match labelled {
                    Some(Group::Node { node_type, .. }) => *name == node_type,
                    _ => true,
                });
                Ok(Self::Nodes { count: counts.map(|(_, nodes)| nodes.count).max().unwrap_or(0) })
            }
            Group::Triples { .. } => {
                expect(array, DType::I64, &[None, Some(3)])?;
                let entities = manifest.node_types.get(keys::NODE).map(|nodes| nodes.count);
                let relations = rows("names/relation.offsets").map(|ends| ends.saturating_sub(1));
                Ok(Self::Triples { counts: [entities, relations] })
            }
            Group::Weights { part } => {
                expect(array, DType::F32, &[rows(&format!("triples/{part}"))])?;
                Ok(Self::Weights)
            }
            Group::Names { kind, array: what } => Self::of_names(manifest, array, kind, what),
            Group::FirstNodes => {
                let dtype = if array.dtype == DType::U64 { DType::U64 } else { DType::I64 };
                expect(array, dtype, &[None])?;
                let nodes = manifest.node_types.get(keys::NODE).map_or(0, |nodes| nodes.count);
                let nodes = nodes.saturating_sub(rows(GRAPHS).unwrap_or(0));
                Ok(Self::FirstNodes { nodes, before: None })
            }
            Group::GraphSplit { .. } => {
                expect(array, DType::I64, &[None])?;
                Ok(Self::Graphs { count: graphs(manifest) })
            }
            Group::Graph { .. } if array.rows() != graphs(manifest) => {
                Err(Error::corrupt(format!(
                    "{} rows, expected one for each of {} graphs",
                    array.rows(),
                    graphs(manifest)
                )))
            }
            Group::Other if array.key == GRAPHS => {
                expect(array, DType::I64, &[None])?;
                Ok(Self::Joined { count: rows(keys::FIRST_NODES).unwrap_or(0) })
            }
            Group::Edge { edge_type, .. } if manifest.is_typed() => {
                of_edges(manifest, edge_type, array).map(|()| Self::Any)
            }
            Group::Graph { .. } => Ok(rule.map_or(Self::Any, labels)),
            Group::Node { .. } | Group::Edge { .. } | Group::Other => Ok(Self::Any),
        }
    }

    fn of_names(manifest: &Manifest, array: &ArrayRef, kind: &str, what: &str) -> Result<Self> {
        let of = |what: &str| manifest.arrays.get(&format!("names/{kind}.{what}"));
        match what {
            "offsets" => {
                expect(array, DType::U64, &[None])?;
                let Some(bytes) = of("bytes") else {
                    return Err(Error::corrupt("where names end, but no array of their bytes"));
                };
                let (total, elements) = (bytes.shape[0], array.shape[0]);
                if elements == 0 {
                    return Err(Error::corrupt("no row, expected at least the first, which is 0"));
                }
                if let (keys::CLASS, Some(classes)) = (kind, manifest.roles.classes) {
                    expect(array, DType::U64, &[Some(classes + 1)])?;
                }
                let are_texts = kind.contains('.');
                Ok(Self::Ends { total, elements, before: 0, are_texts })
            }
            "bytes" => expect(array, DType::U8, &[None]).map(|()| Self::Any),
            "order" => {
                let count = of("offsets").map_or(0, |entry| entry.shape[0].saturating_sub(1));
                expect(array, DType::U64, &[Some(count)])?;
                Ok(Self::Ids { count, seen: vec![0; count.div_ceil(64) as usize] })
            }
            _ => Ok(Self::Any),
        }
    }

    /// Whether all values are allowed, so that the elements can be skipped.
    pub fn are_any(&self) -> bool {
        matches!(self, Self::Any)
    }

    /// The row of an element.
    pub fn row(&self, place: u64) -> u64 {
        match self {
            Self::Triples { .. } => place / 3,
            Self::Labels { columns, .. } => place / columns.max(&1),
            _ => place,
        }
    }

    /// Checks the element at `place`.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn check(
        &mut self,
        dtype: DType,
        place: u64,
        element: &[u8],
    ) -> std::result::Result<(), String> {
        let number = number(dtype, element);
        match self {
            Self::Any => Ok(()),
            Self::Labels { rule, .. } => rule.check(number),
            Self::Nodes { count } => node_id(number, *count).map(|_| ()),
            Self::Triples { counts: [entities, relations] } => match place % 3 {
                0 => id("head", number, *entities),
                1 => id("relation", number, *relations),
                _ => id("tail", number, *entities),
            },
            Self::Weights => match number {
                Number::Float(weight) if !(weight.is_finite() && weight >= 0.0) => {
                    Err(format!("weight {weight}, expected a finite number, 0 or more"))
                }
                _ => Ok(()),
            },
            Self::Ends { total, elements, before, are_texts } => {
                // The elements are unsigned 64-bit numbers, so the conversion is exact.
                let Number::Int(end) = number else { return Ok(()) };
                let end = end as u64;
                let last = std::mem::replace(before, end);
                if place == 0 && end != 0 {
                    return Err(format!("the first name begins at byte {end}, expected 0"));
                }
                if end < last || end > *total {
                    return Err(format!("a name of bytes {last} to {end}, of {total}"));
                }
                if place + 1 == *elements && end != *total {
                    return Err(format!("the last name ends at byte {end}, expected {total}"));
                }
                if place > 0 && end == last && !*are_texts {
                    return Err("an empty name".to_owned());
                }
                Ok(())
            }
            Self::Ids { count, seen } => {
                id("id", number, Some(*count))?;
                let Number::Int(id) = number else { return Ok(()) };
                let (word, bit) = (&mut seen[(id / 64) as usize], 1 << (id % 64));
                match *word & bit {
                    0 => *word |= bit,
                    _ => return Err(format!("id {id} comes twice")),
                }
                Ok(())
            }
            Self::FirstNodes { nodes, before } => {
                id("first node", number, Some(*nodes))?;
                let Number::Int(first) = number else { return Ok(()) };
                match before.replace(first) {
                    None if first != 0 => Err(format!("first node {first}, expected 0")),
                    Some(last) if first <= last => {
                        Err(format!("first node {first}, expected one after {last}"))
                    }
                    _ => Ok(()),
                }
            }
            Self::Joined { count } => {
                id("graph", number, Some(*count + 1))?;
                *count += u64::from(number == Number::Int(i128::from(*count)));
                Ok(())
            }
            Self::Graphs { count } => id("graph", number, Some(*count)),
        }
    }
}

/// Checks that an array of an edge type has as many rows as the type, in a graph with several
/// types.
fn of_edges(manifest: &Manifest, edge_type: &str, array: &ArrayRef) -> Result<()> {
    match manifest.edge_types.get(edge_type).and_then(|edges| edges.rows) {
        Some(rows) if rows != array.rows() => Err(Error::corrupt(format!(
            "{} rows, expected {rows}: one for each imported edge of type `{edge_type}`",
            array.rows()
        ))),
        _ => Ok(()),
    }
}

/// Number of graphs in a data set of many. If updates have added nodes, another array of graphs
/// tells how many of these nodes began a graph.
fn graphs(manifest: &Manifest) -> u64 {
    let rows = |key: &str| manifest.arrays.get(key).map_or(0, |entry| entry.shape[0]);
    let imported = rows(keys::FIRST_NODES);
    if rows(GRAPHS) == 0 {
        return imported;
    }
    let of_graphs = |key: &&String| matches!(Group::of(key), Group::Graph { .. });
    let any = manifest.arrays.keys().find(of_graphs);
    any.map_or(imported + rows(GRAPHS), |key| rows(key))
}

/// Checks the type and shape of an array; `None` allows any size.
fn expect(array: &ArrayRef, dtype: DType, shape: &[Option<u64>]) -> Result<()> {
    let fits = array.shape.len() == shape.len()
        && array
            .shape
            .iter()
            .zip(shape)
            .all(|(found, wanted)| wanted.is_none_or(|it| it == *found));
    if array.dtype == dtype && fits {
        return Ok(());
    }
    let wanted: Vec<String> =
        shape.iter().map(|extent| extent.map_or("any".to_owned(), |it| it.to_string())).collect();
    Err(Error::corrupt(format!(
        "{} {:?}, expected {} [{}]",
        array.dtype.name(),
        array.shape,
        dtype.name(),
        wanted.join(", ")
    )))
}

fn id(what: &str, number: Number, count: Option<u64>) -> std::result::Result<(), String> {
    let Number::Int(value) = number else { return Err(format!("{what} that is not an integer")) };
    let most = count.map_or(i128::from(i64::MAX), |count| i128::from(count) - 1);
    if (0..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} {value}, expected 0 to {most}"))
}
