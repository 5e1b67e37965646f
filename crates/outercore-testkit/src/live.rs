//! A reference model of a changing graph, written directly from the definition of each update.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use outercore_core::{Stream, Uniform};
use outercore_format::{
    ArrayEntry, Checksum, DType, MANIFEST_FILE, Manifest, NewEdge, NpyHeader, Rows, Update, keys,
};
use outercore_store::Topology;
use outercore_store::dataset::DataSet;
use outercore_store::topology::Extent;

use crate::live_graphs::LiveGraphs;

/// Number of columns of the features.
const COLUMNS: usize = 3;

/// A graph with features, labels, edge weights and a split, as plain maps.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveModel {
    /// Whether every edge has two arcs.
    pub undirected: bool,
    /// Number of nodes, including removed ones.
    pub nodes: u64,
    /// Source and target of each edge, by id.
    pub edges: BTreeMap<u64, (u64, u64)>,
    /// The next edge's id.
    pub next_edge: u64,
    /// Removed nodes.
    pub removed: BTreeSet<u64>,
    /// Features of each node.
    pub x: Vec<[f32; COLUMNS]>,
    /// Label of each node.
    pub y: Vec<i64>,
    /// Weight of each edge id.
    pub weights: Vec<f32>,
    /// A split.
    pub train: Vec<i64>,
    /// The graphs, in a data set of many graphs.
    pub graphs: Option<LiveGraphs>,
}

impl LiveModel {
    /// A random graph.
    pub fn random(nodes: u64, edges: u64, undirected: bool, seed: u64) -> Self {
        let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
        let mut node = || draws.below(nodes);
        let edges: BTreeMap<u64, (u64, u64)> =
            (0..edges).map(|id| (id, (node(), node()))).collect();
        let row = |node: u64| std::array::from_fn(|column| node as f32 + column as f32 / 4.0);
        Self {
            undirected,
            nodes,
            next_edge: edges.len() as u64,
            weights: edges.keys().map(|&id| id as f32 / 2.0).collect(),
            edges,
            removed: BTreeSet::new(),
            x: (0..nodes).map(row).collect(),
            y: (0..nodes).map(|node| node as i64 % 3).collect(),
            train: (0..nodes as i64).step_by(2).collect(),
            graphs: None,
        }
    }

    /// A data set of random graphs.
    pub fn random_graphs(count: u64, undirected: bool, seed: u64) -> Self {
        let mut draws = Stream::new(seed, 1).uniform(0, 0, 0);
        let sizes: Vec<u64> = (0..count).map(|_| 1 + draws.below(4)).collect();
        let mut model = Self::graphs_of(&sizes, undirected);
        let graphs = LiveGraphs::new(&sizes);
        for node in 0..model.nodes {
            for _ in 0..draws.below(3) {
                let other = graphs.neighbour(node, &mut draws);
                model.edges.insert(model.next_edge, (node, other));
                model.weights.push(model.next_edge as f32 / 2.0);
                model.next_edge += 1;
            }
        }
        model
    }

    /// A data set of graphs with these numbers of nodes, without edges.
    pub fn graphs_of(sizes: &[u64], undirected: bool) -> Self {
        let graphs = Some(LiveGraphs::new(sizes));
        Self { graphs, ..Self::random(sizes.iter().sum(), 0, undirected, 0) }
    }

    /// In-edges (source, id) of every node, ascending.
    pub fn in_lists(&self) -> Vec<Vec<(u64, u64)>> {
        let mut lists = vec![Vec::new(); self.nodes as usize];
        for (&id, &(source, target)) in &self.edges {
            lists[target as usize].push((source, id));
            if self.undirected && source != target {
                lists[source as usize].push((target, id));
            }
        }
        lists.iter_mut().for_each(|list| list.sort_unstable());
        lists
    }

    /// Writes the graph as a data set and opens it.
    ///
    /// # Panics
    /// If the file system returns an error.
    pub fn write(&self, root: &Path) -> DataSet {
        let lists = self.in_lists();
        let mut offsets = vec![0u64];
        offsets.extend(lists.iter().scan(0, |end, list| {
            *end += list.len() as u64;
            Some(*end)
        }));
        let arcs = || lists.iter().flatten();
        let count = arcs().count() as u64;
        let narrow = |values: Vec<u64>| -> Vec<u8> {
            values.iter().flat_map(|&value| (value as u32).to_le_bytes()).collect()
        };
        let mut manifest = Manifest::homogeneous(self.nodes, count, self.undirected);
        manifest.edge_types.get_mut(keys::EDGE).unwrap().rows = Some(self.next_edge);
        let mut write = |key: &str, dtype: DType, shape: &[u64], data: Vec<u8>| {
            let path = root.join(format!("{key}.npy"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, [NpyHeader::encode(dtype, shape), data.clone()].concat()).unwrap();
            let entry = ArrayEntry::inside(key, dtype, shape, Checksum::of(&data));
            manifest.arrays.insert(key.to_owned(), entry);
        };
        let offsets: Vec<u8> = offsets.iter().flat_map(|end| end.to_le_bytes()).collect();
        write(keys::OFFSETS, DType::U64, &[self.nodes + 1], offsets);
        write(keys::SOURCES, DType::U32, &[count], narrow(arcs().map(|arc| arc.0).collect()));
        if !arcs().map(|arc| arc.1).eq(0..count) || count != self.next_edge {
            write(keys::EDGE_IDS, DType::U32, &[count], narrow(arcs().map(|arc| arc.1).collect()));
        }
        let x = self.x.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        write(keys::FEATURES, DType::F32, &[self.nodes, COLUMNS as u64], x);
        let y = self.y.iter().flat_map(|value| value.to_le_bytes()).collect();
        write(keys::LABELS, DType::I64, &[self.nodes], y);
        let weights = self.weights.iter().flat_map(|value| value.to_le_bytes()).collect();
        write(keys::EDGE_WEIGHTS, DType::F32, &[self.next_edge], weights);
        let train = self.train.iter().flat_map(|value| value.to_le_bytes()).collect();
        write("splits/train", DType::I64, &[self.train.len() as u64], train);
        self.graphs.iter().for_each(|graphs| graphs.write(&mut write));
        manifest.roles.features = Some(keys::FEATURES.into());
        manifest.roles.labels = Some(keys::LABELS.into());
        manifest.roles.classes = Some(3);
        manifest.roles.splits.insert("train".into(), "splits/train".into());
        fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
        DataSet::open(root).unwrap()
    }

    /// Applies an update; returns `false`, without any change, if the update is invalid.
    pub fn apply(&mut self, update: &Update) -> bool {
        let is_there = |node: u64| node < self.nodes && !self.removed.contains(&node);
        match update {
            Update::AddEdge { source, target, rows } => {
                let graphs = self.graphs.as_ref();
                if !is_there(*source)
                    || !is_there(*target)
                    || graphs.is_some_and(|graphs| !graphs.are_together(*source, *target))
                {
                    return false;
                }
                self.add_edge(*source, *target, rows);
            }
            Update::RemoveEdge { source, target } => {
                if !is_there(*source) || !is_there(*target) {
                    return false;
                }
                let undirected = self.undirected;
                let is_meant = |&mut (from, to): &mut (u64, u64)| {
                    (from, to) == (*source, *target)
                        || (undirected && (to, from) == (*source, *target))
                };
                let before = self.edges.len();
                self.edges.retain(|_, ends| !is_meant(ends));
                return self.edges.len() < before;
            }
            Update::AddNode { graph, rows } => {
                let is_joined = match (&self.graphs, graph) {
                    (Some(graphs), Some(graph)) => graphs.is_there(*graph),
                    (graphs, graph) => graphs.is_none() && graph.is_none(),
                };
                if !is_joined {
                    return false;
                }
                self.add_node(*graph, rows);
            }
            Update::RemoveNode { node } => {
                let graphs = self.graphs.as_ref();
                if !is_there(*node)
                    || graphs.is_some_and(|graphs| graphs.is_last(*node, &self.removed))
                {
                    return false;
                }
                self.remove_node(*node);
            }
            Update::RegisterGraph { rows, nodes, edges } => {
                let Some(graphs) = &mut self.graphs else { return false };
                let count = nodes.len() as u64;
                if count == 0 || edges.iter().any(|edge| edge.source.max(edge.target) >= count) {
                    return false;
                }
                let (graph, first) = (graphs.register(rows), self.nodes);
                nodes.iter().for_each(|rows| self.add_node(Some(graph), rows));
                for edge in edges {
                    self.add_edge(first + edge.source, first + edge.target, &edge.rows);
                }
            }
            Update::UnregisterGraph { graph } => {
                let Some(graphs) = &mut self.graphs else { return false };
                if !graphs.is_there(*graph) {
                    return false;
                }
                let nodes = graphs.unregister(*graph);
                nodes.into_iter().for_each(|node| self.remove_node(node));
            }
            Update::UpdateNode { node, rows } => {
                if !is_there(*node) {
                    return false;
                }
                self.x[*node as usize] = features(rows);
            }
        }
        true
    }

    fn add_edge(&mut self, source: u64, target: u64, rows: &Rows) {
        self.edges.insert(self.next_edge, (source, target));
        self.next_edge += 1;
        self.weights.push(floats(&rows[keys::EDGE_WEIGHTS])[0]);
    }

    fn add_node(&mut self, graph: Option<u64>, rows: &Rows) {
        self.nodes += 1;
        self.x.push(features(rows));
        self.y.push(i64::from_le_bytes(rows[keys::LABELS][..].try_into().unwrap()));
        if let (Some(graphs), Some(graph)) = (&mut self.graphs, graph) {
            graphs.of.push(graph);
        }
    }

    fn remove_node(&mut self, node: u64) {
        self.edges.retain(|_, ends| ends.0 != node && ends.1 != node);
        self.removed.insert(node);
        self.train.retain(|&kept| kept as u64 != node);
    }

    /// A random update, sometimes an invalid one.
    pub fn draw(&self, draws: &mut Uniform) -> Update {
        if let Some(graphs) = &self.graphs {
            return self.draw_in(graphs, draws);
        }
        // Sometimes the node does not exist.
        let (source, target) = (draws.below(self.nodes + 1), draws.below(self.nodes));
        match draws.below(10) {
            0..4 => Update::AddEdge { source, target, rows: edge_rows(draws) },
            4..6 => {
                let place = draws.below(self.edges.len().max(1) as u64) as usize;
                let (source, target) =
                    self.edges.values().nth(place).copied().unwrap_or((source, target));
                Update::RemoveEdge { source, target }
            }
            6 => Update::AddNode { graph: None, rows: node_rows(draws) },
            7 => Update::RemoveNode { node: source },
            _ => Update::UpdateNode { node: target, rows: changed_rows(draws) },
        }
    }

    /// Like `draw`, for a data set of many graphs: most edges are within one graph.
    fn draw_in(&self, graphs: &LiveGraphs, draws: &mut Uniform) -> Update {
        let (node, graph) = (draws.below(self.nodes + 1), draws.below(graphs.count() + 1));
        let other = match node < self.nodes && draws.below(8) > 0 {
            true => graphs.neighbour(node, draws),
            false => draws.below(self.nodes),
        };
        match draws.below(20) {
            0..7 => Update::AddEdge { source: node, target: other, rows: edge_rows(draws) },
            7..10 => {
                let place = draws.below(self.edges.len().max(1) as u64) as usize;
                let (source, target) =
                    self.edges.values().nth(place).copied().unwrap_or((node, other));
                Update::RemoveEdge { source, target }
            }
            10..13 => {
                let graph = (draws.below(10) > 0).then_some(graph);
                Update::AddNode { graph, rows: node_rows(draws) }
            }
            13..15 => Update::RemoveNode { node },
            15 => Update::UnregisterGraph { graph },
            16..18 => {
                let nodes: Vec<Rows> = (0..draws.below(4)).map(|_| node_rows(draws)).collect();
                let edges = (0..2 * nodes.len()).map(|_| NewEdge {
                    source: draws.below(nodes.len() as u64),
                    target: draws.below(nodes.len() as u64),
                    rows: edge_rows(draws),
                });
                let edges = edges.collect();
                Update::RegisterGraph { rows: label_rows(keys::GRAPH_LABELS, draws), nodes, edges }
            }
            _ => Update::UpdateNode { node, rows: changed_rows(draws) },
        }
    }

    /// Compares a topology with the model.
    ///
    /// # Panics
    /// If they differ.
    pub fn assert_topology(&self, topology: &dyn Topology) {
        let lists = self.in_lists();
        assert_eq!(topology.num_nodes(), self.nodes);
        assert_eq!(topology.num_edges(), lists.iter().map(Vec::len).sum::<usize>() as u64);
        let nodes: Vec<u64> = (0..self.nodes).rev().collect();
        let mut extents = vec![Extent::default(); nodes.len()];
        topology.extents(&nodes, &mut extents).unwrap();
        let positions: Vec<u64> = extents.iter().flat_map(Extent::positions).collect();
        let (mut sources, mut ids) = (vec![0; positions.len()], vec![0; positions.len()]);
        topology.sources(&positions, &mut sources).unwrap();
        topology.edge_ids(&positions, &mut ids).unwrap();
        let found: Vec<(u64, u64)> = sources.into_iter().zip(ids).collect();
        let expected: Vec<(u64, u64)> = lists.into_iter().rev().flatten().collect();
        assert_eq!(found, expected);
    }

    /// Compares the arrays of a data set with the model.
    ///
    /// # Panics
    /// If they differ.
    pub fn assert_arrays(&self, data_set: &DataSet) {
        let ids = |key: &str| -> Vec<u64> {
            let bytes = data_set.read_array(key).unwrap();
            match data_set.array(key).unwrap().dtype {
                DType::U32 => bytes
                    .chunks(4)
                    .map(|b| u32::from_le_bytes(b.try_into().unwrap()).into())
                    .collect(),
                _ => bytes.chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect(),
            }
        };
        let (ends, sources) = (ids(keys::OFFSETS), ids(keys::SOURCES));
        let edge_ids = match data_set.has_array(keys::EDGE_IDS) {
            true => ids(keys::EDGE_IDS),
            false => (0..sources.len() as u64).collect(),
        };
        let arcs: Vec<(u64, u64)> = sources.into_iter().zip(edge_ids).collect();
        let found: Vec<Vec<(u64, u64)>> =
            ends.windows(2).map(|ends| arcs[ends[0] as usize..ends[1] as usize].to_vec()).collect();
        assert_eq!(found, self.in_lists());
        let x = floats(&data_set.read_array(keys::FEATURES).unwrap());
        assert_eq!(x, self.x.concat());
        assert_eq!(data_set.read_i64(keys::LABELS).unwrap(), self.y);
        assert_eq!(floats(&data_set.read_array(keys::EDGE_WEIGHTS).unwrap()), self.weights);
        assert_eq!(data_set.read_split("train").unwrap(), self.train);
        let removed: BTreeSet<u64> = match data_set.has_array("live/removed") {
            true => data_set.read_i64("live/removed").unwrap().iter().map(|&n| n as u64).collect(),
            false => BTreeSet::new(),
        };
        assert_eq!(removed, self.removed);
        self.graphs.iter().for_each(|graphs| graphs.assert_arrays(data_set));
    }
}

fn edge_rows(draws: &mut Uniform) -> Rows {
    let weight = (draws.unit() as f32).to_le_bytes().to_vec();
    Rows::from([(keys::EDGE_WEIGHTS.to_owned(), weight)])
}

fn label_rows(key: &str, draws: &mut Uniform) -> Rows {
    Rows::from([(key.to_owned(), (draws.below(3) as i64).to_le_bytes().to_vec())])
}

fn changed_rows(draws: &mut Uniform) -> Rows {
    let x = (0..COLUMNS).flat_map(|_| (draws.unit() as f32).to_le_bytes()).collect();
    Rows::from([(keys::FEATURES.to_owned(), x)])
}

fn node_rows(draws: &mut Uniform) -> Rows {
    let mut rows = label_rows(keys::LABELS, draws);
    rows.extend(changed_rows(draws));
    rows
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn features(rows: &Rows) -> [f32; COLUMNS] {
    floats(&rows[keys::FEATURES]).try_into().unwrap()
}
