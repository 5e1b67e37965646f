//! Separates a batch of a graph with several types by type.

use outercore_core::EdgeId;
use outercore_format::Schema;

use crate::batch::SampledBatch;

/// The nodes and edges of a batch by type. Every type has an entry, even if it is empty.
///
/// The nodes of a type are numbered in the order in which the batch found them, so nodes of earlier
/// hops come first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedBatch {
    /// By node type, in the schema's order.
    pub nodes: Vec<NodesOfType>,
    /// By edge type, in the schema's order.
    pub edges: Vec<EdgesOfType>,
}

/// The nodes of one type in a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodesOfType {
    /// Their ids within the type.
    pub ids: Vec<i64>,
    /// Their indices among the nodes of the batch.
    pub places: Vec<u32>,
    /// For each node, the index of the seed whose neighbourhood it belongs to. Empty unless the
    /// neighbourhoods are disjoint.
    pub trees: Vec<i64>,
    /// Number of seeds, then number of new nodes per hop.
    pub per_hop: Vec<u64>,
}

/// The edges of one type in a batch, hop by hop, and within a hop by target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgesOfType {
    /// Indices of their sources among the batch's nodes of the source type.
    pub sources: Vec<i64>,
    /// Indices of their targets among the batch's nodes of the target type.
    pub targets: Vec<i64>,
    /// Their rows within the edge type; empty unless the batch has edge ids.
    pub ids: Vec<i64>,
    /// Number of edges per hop.
    pub per_hop: Vec<u64>,
}

impl SampledBatch {
    /// Separates the batch by the types of `schema`, the schema that it was sampled with.
    ///
    /// **Cost** one pass over its nodes and edges.
    ///
    /// # Panics
    /// If the batch was sampled from a graph with other types.
    ///
    /// # Example
    /// ```
    /// use outercore_format::Schema;
    /// use outercore_sample::SampledBatch;
    /// // Paper 0 of two papers (nodes 1 and 2), written by the one author (node 0).
    /// let schema = Schema::new(
    ///     [("author".to_owned(), 1), ("paper".to_owned(), 2)],
    ///     [("author__writes__paper".to_owned(), "author", "paper", 1)],
    /// )?;
    /// let batch = SampledBatch {
    ///     num_seeds: 1,
    ///     nodes: vec![1u32, 0].into(),
    ///     nodes_per_hop: vec![1, 1],
    ///     edges_per_hop: vec![1],
    ///     sources: vec![1],
    ///     picked: vec![1],
    ///     ..Default::default()
    /// };
    /// let typed = batch.by_type(&schema);
    /// assert_eq!((&typed.nodes[0].ids[..], &typed.nodes[1].ids[..]), (&[0][..], &[0][..]));
    /// assert_eq!((typed.edges[0].sources[0], typed.edges[0].targets[0]), (0, 0));
    /// # Ok::<(), outercore_core::Error>(())
    /// ```
    pub fn by_type(&self, schema: &Schema) -> TypedBatch {
        let (nodes, place_in_type) = self.nodes_by_type(schema);
        let types = schema.edge_types();
        let total = |number: usize| -> usize {
            self.edges_per_hop.iter().skip(number).step_by(types.len()).sum::<u64>() as usize
        };
        let mut edges: Vec<EdgesOfType> = (0..types.len())
            .map(|number| EdgesOfType {
                sources: Vec::with_capacity(2 * total(number)),
                targets: Vec::with_capacity(total(number)),
                ..EdgesOfType::default()
            })
            .collect();
        let (mut edge, mut column) = (0usize, 0usize);
        let hops = self.edges_per_hop.len().checked_div(types.len()).unwrap_or(0);
        let mut counts = self.edges_per_hop.iter();
        for hop in 0..hops {
            for (of_type, edge_type) in edges.iter_mut().zip(types) {
                let count = *counts.next().expect("a count for each edge type and hop") as usize;
                of_type.per_hop.push(count as u64);
                let sources = &self.sources[edge..edge + count];
                of_type
                    .sources
                    .extend(sources.iter().map(|&place| i64::from(place_in_type[place as usize])));
                if !self.edge_ids.is_empty() {
                    let ids = &self.edge_ids[edge..edge + count];
                    of_type.ids.extend(ids.iter().map(|&id| within(id, edge_type.rows.start)));
                }
                let of_target = &nodes[edge_type.target].places;
                let reached = self.targets_of(hop);
                let before =
                    |end: usize| of_target.partition_point(|&place| (place as usize) < end);
                let targets = before(reached.start)..before(reached.end);
                let picked = &self.picked[column..column + targets.len()];
                for (target, &picked) in targets.zip(picked) {
                    let own = std::iter::repeat_n(target as i64, picked as usize);
                    of_type.targets.extend(own);
                }
                (edge, column) = (edge + count, column + picked.len());
            }
        }
        TypedBatch { nodes, edges }
    }

    /// The nodes by type, and the index of each node among the nodes of its type.
    fn nodes_by_type(&self, schema: &Schema) -> (Vec<NodesOfType>, Vec<u32>) {
        let types = schema.node_types();
        // With few types, comparing all range ends costs less than a search.
        let ends: Vec<u64> = types.iter().map(|range| range.nodes.end).collect();
        let type_of = |node: u64| ends.iter().filter(|&&end| end <= node).count();
        let mut counts = vec![0usize; types.len()];
        self.nodes.iter().for_each(|node| counts[type_of(node)] += 1);
        let mut nodes: Vec<NodesOfType> = counts
            .into_iter()
            .map(|count| NodesOfType {
                ids: Vec::with_capacity(count),
                places: Vec::with_capacity(count),
                ..NodesOfType::default()
            })
            .collect();
        let mut place_in_type = Vec::with_capacity(self.nodes.len());
        let (mut all, mut place) = (self.nodes.iter(), 0u32);
        for &of_hop in &self.nodes_per_hop {
            let before: Vec<usize> = nodes.iter().map(|of_type| of_type.ids.len()).collect();
            for node in all.by_ref().take(of_hop as usize) {
                let node_type = type_of(node);
                let of_type = &mut nodes[node_type];
                place_in_type.push(of_type.ids.len() as u32);
                of_type.ids.push(within(node, types[node_type].nodes.start));
                of_type.places.push(place);
                place += 1;
            }
            for (of_type, before) in nodes.iter_mut().zip(before) {
                of_type.per_hop.push((of_type.ids.len() - before) as u64);
            }
        }
        if !self.trees.is_empty() {
            for of_type in &mut nodes {
                let trees = of_type.places.iter().map(|&place| self.trees[place as usize]);
                of_type.trees = trees.map(i64::from).collect();
            }
        }
        (nodes, place_in_type)
    }
}

/// The number relative to the first number of its type.
fn within(number: EdgeId, first: u64) -> i64 {
    (number - first) as i64
}
