//! What the elements of an array may be, told by its key.

use outercore_core::{Error, Result};
use outercore_format::keys::{self, Group};
use outercore_format::{DType, Manifest};

use crate::arrays::{LabelRule, Number, node_id, number};
use crate::dataset::ArrayRef;
use crate::delta::GRAPHS;

/// A rule for the elements of an array, which come in their order.
pub(super) enum Values {
    Any,
    /// Of nodes or graphs.
    Labels {
        rule: LabelRule,
        columns: u64,
    },
    Nodes {
        count: u64,
    },
    Triples {
        /// Numbers of entities and relations; none where the data set does not say.
        counts: [Option<u64>; 2],
    },
    Weights,
    /// Where names end.
    Ends {
        /// Bytes of all names.
        total: u64,
        elements: u64,
        /// The element before.
        before: u64,
        /// Whether they are texts of nodes, which may be empty.
        are_texts: bool,
    },
    /// Names in their order: each id once.
    Ids {
        count: u64,
        /// A bit for each id that has come.
        seen: Vec<u64>,
    },
    /// First nodes of graphs.
    FirstNodes {
        /// All of them are below.
        nodes: u64,
        /// The element before.
        before: Option<i128>,
    },
    /// Graphs of added nodes, each of which may be the next new graph.
    Joined {
        /// Graphs so far.
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
    /// `Corrupt`: the array has another type or shape than its key promises.
    pub fn of(manifest: &Manifest, array: &ArrayRef) -> Result<Self> {
        let rule = LabelRule::of(manifest, &array.key, array.dtype);
        let labels = |rule| Self::Labels { rule, columns: array.row_elements() };
        // The rows of an array of graphs are counted below.
        if let Some(rule) = rule.filter(|_| array.key != keys::GRAPH_LABELS) {
            return Ok(labels(rule));
        }
        let rows = |key: &str| manifest.arrays.get(key).map(|entry| entry.shape[0]);
        match Group::of(&array.key) {
            // Without labels a split may be of any type of nodes.
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

    /// Whether elements need not be looked at.
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

    /// Looks at the element at `place`.
    ///
    /// # Errors
    /// What is wrong with it.
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
                // A type without signs is never below 0 and never too large.
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

/// Whether an array of edges of a type, in a graph of several, has a row for each of its rows.
fn of_edges(manifest: &Manifest, edge_type: &str, array: &ArrayRef) -> Result<()> {
    match manifest.edge_types.get(edge_type).and_then(|edges| edges.rows) {
        Some(rows) if rows != array.rows() => Err(Error::corrupt(format!(
            "{} rows, expected {rows}: one for each imported edge of type `{edge_type}`",
            array.rows()
        ))),
        _ => Ok(()),
    }
}

/// Graphs of a data set of many: where updates have added nodes, other arrays tell how many of
/// these began a graph.
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

/// Whether an array has this type and shape; `None` is any extent.
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
