//! The sample on which two precisions of a model are compared: nodes, edges or graphs, with their
//! known labels.

use outercore_core::{NodeId, Permutation, Result, Stream};
use outercore_format::keys::Group;
use outercore_format::{DType, keys};
use outercore_infer::{Manifest, TaskKind};
use outercore_store::dataset::DataSet;
use outercore_store::delta::Graphs;

use crate::asked::{Asked, Subject};
use crate::graph::View;
use crate::question::Question;

/// Most nodes, pairs or graphs of a sample.
const MOST: u64 = 1000;
/// Most nodes of all sampled graphs together; the first graph may exceed it.
const MOST_NODES: u64 = 1 << 20;
/// A fixed seed, so that every server compares the same sample.
const SEED: u64 = 0;
/// Suffix of the names of splits that the training has not seen.
const TEST: &str = "test";

/// Questions with their known answers.
#[derive(Debug)]
pub struct Sample {
    /// The nodes to compute, and the predictions to make for them.
    pub questions: Vec<(Vec<NodeId>, Asked)>,
    /// One entry per node, pair or graph, row-major.
    pub truth: Truth,
}

/// The known answers.
#[derive(Debug, PartialEq)]
pub enum Truth {
    /// Unknown.
    Unknown,
    /// Classes; negative if unknown.
    Classes(Vec<i64>),
    /// Labels, `[n, outputs]`: positive if the label applies, negative or NaN if unknown.
    Labels(Vec<f64>),
    /// Values, `[n, outputs]`; NaN if unknown.
    Values(Vec<f64>),
    /// Whether each pair is an edge.
    Edges(Vec<bool>),
}

/// The source that a sample is drawn from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The graph at this moment.
    pub view: &'a View<'a>,
    /// Task and number of outputs of the model.
    pub manifest: &'a Manifest,
    /// The kind of object that the model predicts.
    pub subject: Subject,
    /// Most nodes of a question.
    pub most_nodes: u64,
}

impl Source<'_> {
    /// Draws a sample: from a test split if one exists, otherwise from all nodes or graphs.
    ///
    /// **Cost** one or two blocking reads per node, pair or graph.
    ///
    /// # Errors
    /// Failed reads.
    pub fn sample(&self) -> Result<Sample> {
        match self.subject {
            Subject::Nodes => self.nodes(),
            Subject::Edges => self.pairs(),
            Subject::Graphs => self.graphs(),
        }
    }

    fn nodes(&self) -> Result<Sample> {
        let dataset = self.view.data_set();
        let splits = dataset.manifest().roles.splits.iter();
        let split = test_split(splits.map(|(name, key)| (name.as_str(), key.as_str())));
        let mut nodes = drawn(dataset, split, dataset.num_nodes())?;
        nodes.retain(|&node| self.view.require(&[node]).is_ok());
        let truth = self.truth(dataset.manifest().roles.labels.as_deref(), &nodes)?;
        let questions = nodes.chunks(self.most_nodes as usize);
        let questions = questions.map(|nodes| (nodes.to_vec(), Asked::Nodes)).collect();
        Ok(Sample { questions, truth })
    }

    fn graphs(&self) -> Result<Sample> {
        let dataset = self.view.data_set();
        let splits = dataset.manifest().arrays.keys().filter_map(|key| match Group::of(key) {
            Group::GraphSplit { name } => Some((name, key.as_str())),
            _ => None,
        });
        let count = self.view.graphs().map_or(0, Graphs::count);
        let (mut graphs, mut questions, mut nodes) = (Vec::new(), Vec::new(), 0);
        for graph in drawn(dataset, test_split(splits), count)? {
            let asked = Asked::Graphs { graphs: vec![graph], sizes: Vec::new() };
            let mut question = Question { asked, ..Question::default() };
            // The graph may have been unregistered.
            if self.view.settle(&mut question, self.most_nodes).is_err() {
                continue;
            }
            nodes += question.nodes.len() as u64;
            if nodes > MOST_NODES && !graphs.is_empty() {
                break;
            }
            graphs.push(graph);
            questions.push((question.nodes, question.asked));
        }
        let labels = dataset.has_array(keys::GRAPH_LABELS).then_some(keys::GRAPH_LABELS);
        let truth = self.truth(labels, &graphs)?;
        Ok(Sample { questions, truth })
    }

    /// Draws edges, and as many random pairs.
    fn pairs(&self) -> Result<Sample> {
        let dataset = self.view.data_set();
        let nodes = dataset.num_nodes();
        let mut draws = Stream::new(SEED, 0).uniform(0, 0, 0);
        let (mut pairs, mut truth) = (Vec::new(), Vec::new());
        for node in drawn(dataset, None, nodes)? {
            let Some(neighbour) = neighbour(dataset, node, |count| draws.below(count))? else {
                continue;
            };
            let other = draws.below(nodes);
            if self.view.require(&[node, neighbour, other]).is_ok() {
                pairs.extend([(node, neighbour), (node, other)]);
                truth.extend([true, false]);
            }
            if pairs.len() as u64 >= MOST {
                break;
            }
        }
        let most = (self.most_nodes / 2).max(1) as usize;
        let questions = pairs.chunks(most).map(question_of_pairs).collect();
        Ok(Sample { questions, truth: Truth::Edges(truth) })
    }

    /// The labels of `rows`, if the array `key` has the kind of labels that the model predicts.
    fn truth(&self, key: Option<&str>, rows: &[u64]) -> Result<Truth> {
        let (Some(key), dataset) = (key, self.view.data_set()) else { return Ok(Truth::Unknown) };
        let array = dataset.array(key)?;
        let columns = self.manifest.outputs() as u64;
        let (task, dtype, found) = (self.manifest.task.kind, array.dtype, array.row_elements());
        // Nodes that were added later are still in the log, so the array has no rows for them.
        if rows.iter().any(|&row| row >= array.rows()) {
            return Ok(Truth::Unknown);
        }
        match (task, dtype) {
            (TaskKind::Classes, DType::I64) if found == 1 => {
                let bytes = dataset.read_rows(key, rows)?;
                let classes = bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
                Ok(Truth::Classes(classes.collect()))
            }
            (TaskKind::Labels | TaskKind::Values, DType::F32 | DType::F64) if found == columns => {
                let numbers = floats(&dataset.read_rows(key, rows)?, dtype);
                let labels = task == TaskKind::Labels;
                Ok(if labels { Truth::Labels(numbers) } else { Truth::Values(numbers) })
            }
            _ => Ok(Truth::Unknown),
        }
    }
}

fn floats(bytes: &[u8], dtype: DType) -> Vec<f64> {
    if dtype == DType::F32 {
        return bytes.as_chunks().0.iter().map(|&one| f32::from_le_bytes(one).into()).collect();
    }
    bytes.as_chunks().0.iter().map(|&one| f64::from_le_bytes(one)).collect()
}

/// The key of the split `test`, or of another split whose name ends with it, such as `0-test`.
fn test_split<'a>(splits: impl Iterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let tests = splits.filter(|(name, _)| name.ends_with(TEST));
    tests.min_by_key(|(name, _)| name.len()).map(|(_, key)| key)
}

/// Draws ids from a split, or from all ids; ascending and without duplicates.
fn drawn(dataset: &DataSet, split: Option<&str>, all: u64) -> Result<Vec<u64>> {
    let rows = split.map_or(Ok(all), |key| dataset.array(key).map(|array| array.rows()))?;
    let order = Permutation::new(rows, SEED, 0);
    let mut places: Vec<u64> = (0..rows.min(MOST)).map(|place| order.at(place)).collect();
    places.sort_unstable();
    let Some(key) = split else { return Ok(places) };
    let bytes = dataset.read_rows(key, &places)?;
    let ids = bytes.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    let mut ids: Vec<u64> = ids.filter(|&id| id < all).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// One in-neighbour of a node in the arrays. `draw` returns a number below its argument. `None` if
/// the node has no in-neighbour.
fn neighbour(
    dataset: &DataSet,
    node: NodeId,
    mut draw: impl FnMut(u64) -> u64,
) -> Result<Option<NodeId>> {
    let bytes = dataset.read_rows(keys::OFFSETS, &[node, node + 1])?;
    let ends: Vec<u64> = bytes.as_chunks().0.iter().map(|&one| u64::from_le_bytes(one)).collect();
    let [first, end] = ends[..] else { return Ok(None) };
    if first >= end {
        return Ok(None);
    }
    let bytes = dataset.read_rows(keys::SOURCES, &[first + draw(end - first)])?;
    let mut id = [0; 8];
    id[..bytes.len()].copy_from_slice(&bytes);
    Ok(Some(u64::from_le_bytes(id)))
}

/// A question about pairs that computes each node once.
fn question_of_pairs(pairs: &[(NodeId, NodeId)]) -> (Vec<NodeId>, Asked) {
    let mut nodes: Vec<NodeId> = pairs.iter().flat_map(|&(one, other)| [one, other]).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let place = |node| nodes.partition_point(|&one| one < node) as u32;
    let places = pairs.iter().map(|&(one, other)| (place(one), place(other))).collect();
    (nodes, Asked::Edges(places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_split_is_the_one_named_so_or_the_first_of_many() {
        let split = |names: &[&'static str]| test_split(names.iter().map(|&name| (name, name)));
        assert_eq!(split(&["0-test", "test", "train"]), Some("test"));
        assert_eq!(split(&["0-test", "0-train", "1-test"]), Some("0-test"));
        assert_eq!(split(&["train", "testing"]), None);
    }

    #[test]
    fn pairs_name_each_node_once() {
        let (nodes, asked) = question_of_pairs(&[(7, 3), (7, 9), (3, 3)]);
        assert_eq!(nodes, [3, 7, 9]);
        assert_eq!(asked, Asked::Edges(vec![(1, 0), (1, 2), (0, 0)]));
    }
}
