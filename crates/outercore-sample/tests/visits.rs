//! Compares expected visits with a dense model, and with the visits of real batches.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use outercore_core::{EdgeId, NodeId, Result, Stream};
use outercore_io::{CostModel, EngineConfig};
use outercore_sample::hotness::{PresampleConfig, presample};
use outercore_sample::visits::expected_visits;
use outercore_sample::{FanOut, SampleConfig, Seeds, TypedFanOuts};
use outercore_store::paged::PagedTopology;
use outercore_store::resident::ResidentTopology;
use outercore_store::{Extent, Topology};
use outercore_testkit::{Csc, TypedGraph, Width, write_data_set};

fn resident(graph: &Csc) -> ResidentTopology {
    let Csc { offsets, sources, ids } = graph.clone();
    ResidentTopology::from_csc(offsets, sources, Some(ids.into())).unwrap()
}

fn config(fan_outs: Vec<FanOut>) -> SampleConfig {
    SampleConfig { fan_outs, ..SampleConfig::full_neighbours() }
}

/// The graph with every edge in both directions.
fn mirrored(graph: &Csc) -> Csc {
    let mut edges = Vec::new();
    for target in 0..graph.num_nodes() {
        for at in graph.offsets[target as usize]..graph.offsets[target as usize + 1] {
            let source = graph.sources[at as usize];
            edges.extend([(source, target), (target, source)]);
        }
    }
    Csc::from_edges(graph.num_nodes(), &edges)
}

/// The visits from a dense matrix, one column at a time: the chance that each edge is taken, by
/// target and source.
fn dense_visits(graph: &Csc, seeds: &[u64], hops: &[FanOut], mirrored: bool) -> Vec<f64> {
    let nodes = graph.num_nodes() as usize;
    let mut now = vec![0.0; nodes];
    seeds.iter().for_each(|&seed| now[seed as usize] += 1.0);
    let (mut sum, mut came) = (now.clone(), vec![0.0; nodes]);
    for &fan_out in hops {
        let (mut next, mut carried) = (vec![0.0; nodes], vec![0.0; nodes]);
        for target in 0..nodes {
            let own = graph.offsets[target] as usize..graph.offsets[target + 1] as usize;
            let chance = match fan_out {
                FanOut::All => 1.0,
                FanOut::Take(count) => (f64::from(count) / own.len() as f64).min(1.0),
            };
            for &source in &graph.sources[own] {
                let back = if mirrored { came[source as usize] } else { 0.0 };
                next[source as usize] += f64::max(now[target] - back, 0.0) * chance;
                carried[target] = now[target] * chance;
            }
        }
        (now, came) = (next, carried);
        sum.iter_mut().zip(&now).for_each(|(sum, now)| *sum += now);
    }
    sum
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (node, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= 1e-5 * expected.max(1.0), "{what}: node {node}: {found}, {expected}");
    }
}

#[test]
fn visits_equal_those_of_a_dense_model() {
    let fan_outs = [
        vec![],
        vec![FanOut::Take(2)],
        vec![FanOut::Take(3), FanOut::All, FanOut::Take(2)],
        vec![FanOut::Take(0), FanOut::Take(4)],
    ];
    for (name, graph) in Csc::zoo() {
        for (hops, both) in fan_outs.iter().flat_map(|hops| [(hops, false), (hops, true)]) {
            let graph = if both { mirrored(&graph) } else { graph.clone() };
            let seeds: Vec<u64> = (0..graph.num_nodes()).step_by(3).collect();
            let expected = dense_visits(&graph, &seeds, hops, both);
            let config = config(hops.clone());
            let found = expected_visits(&resident(&graph), seeds.into_iter(), &config, both);
            assert_close(&found.unwrap(), &expected, &format!("{name}, {hops:?}, {both}"));
        }
    }
}

#[test]
fn visits_over_several_edge_types_add_up() {
    let graph = TypedGraph::bibliography(20, 50, 6);
    let Csc { offsets, sources, ids } = graph.union();
    let nodes = graph.schema.num_nodes();
    let schema = Arc::new(graph.schema.clone());
    let of: Vec<Vec<FanOut>> = (0..schema.edge_types().len() as u32)
        .map(|number| vec![FanOut::Take(1 + number % 2), FanOut::Take(3 - number % 3)])
        .collect();
    let mut now: Vec<f64> = (0..nodes).map(|node| f64::from(node % 4 == 0)).collect();
    let mut expected = now.clone();
    for later in [false, true] {
        let mut next = vec![0.0; nodes as usize];
        for column in 0..schema.num_columns() {
            let fan_outs = &of[schema.edge_type_of(column)];
            let FanOut::Take(count) = fan_outs[usize::from(later)] else { unreachable!() };
            let own = offsets[column as usize] as usize..offsets[column as usize + 1] as usize;
            let chance = (f64::from(count) / own.len() as f64).min(1.0);
            for &source in &sources[own] {
                next[source as usize] += now[schema.target_of(column) as usize] * chance;
            }
        }
        now = next;
        expected.iter_mut().zip(&now).for_each(|(sum, now)| *sum += now);
    }
    let topology =
        ResidentTopology::from_columns(nodes, offsets, sources, Some(ids.into())).unwrap();
    let types = Some(TypedFanOuts { schema, of });
    let config = SampleConfig { types, ..config(vec![FanOut::All; 2]) };
    let seeds = (0..nodes).filter(|node| node % 4 == 0);
    let found = expected_visits(&topology, seeds, &config, false).unwrap();
    assert_close(&found, &expected, "bibliography");
}

#[test]
fn a_topology_on_disk_gives_the_same_bits() {
    // More columns and edges than one look-up examines.
    let graph = Csc::power_law(100_000, 600_000, 3);
    let config = config(vec![FanOut::Take(10), FanOut::Take(5)]);
    let seeds = || (0..graph.num_nodes()).step_by(2);
    let expected = expected_visits(&resident(&graph), seeds(), &config, false).unwrap();
    let root = tempfile::tempdir().unwrap();
    let data_set = write_data_set(root.path(), &graph, Width::Narrow);
    for offsets_resident in [true, false] {
        let engine = EngineConfig::default();
        let paged = PagedTopology::open(&data_set, engine, CostModel::default(), offsets_resident);
        let found = expected_visits(&paged.unwrap(), seeds(), &config, false).unwrap();
        assert!(found == expected, "offsets resident: {offsets_resident}");
    }
}

#[test]
fn no_edge_is_read_where_none_is_taken() {
    let topology = Counting(resident(&Csc::power_law(300, 4000, 1)), AtomicU64::new(0));
    let visits = |fan_outs: &[FanOut]| {
        expected_visits(&topology, 0..300, &config(fan_outs.to_vec()), false).unwrap()
    };
    assert_eq!(visits(&[FanOut::Take(0), FanOut::Take(5)]), [1.0; 300]);
    assert_eq!(topology.1.load(Relaxed), 0);
    visits(&[FanOut::Take(5), FanOut::Take(0)]);
    assert_eq!(topology.1.load(Relaxed), 4000);
}

/// Counts the edges whose sources are looked up.
struct Counting(ResidentTopology, AtomicU64);

impl Topology for Counting {
    fn num_nodes(&self) -> u64 {
        self.0.num_nodes()
    }
    fn num_edges(&self) -> u64 {
        self.0.num_edges()
    }
    fn extents(&self, columns: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        self.0.extents(columns, extents)
    }
    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()> {
        self.1.fetch_add(positions.len() as u64, Relaxed);
        self.0.sources(positions, sources)
    }
    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()> {
        self.0.edge_ids(positions, ids)
    }
}

#[test]
fn the_rows_with_most_visits_absorb_what_those_of_another_epoch_do() {
    let graph = mirrored(&Csc::power_law(4000, 16_000, 5));
    let topology = resident(&graph);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let config = config(vec![FanOut::Take(10), FanOut::Take(5)]);
    let seeds: Vec<u64> = (0..graph.num_nodes()).step_by(2).collect();
    let counted = |epoch: u64| {
        let batches = seeds.chunks(8).zip(0..);
        let batches =
            batches.map(|(own, batch)| Seeds { batch, nodes: own.to_vec(), times: vec![] });
        let all = PresampleConfig { max_batches: u64::MAX, group: 8 };
        presample(&topology, Stream::new(9, epoch), batches, &config, &pool, all).unwrap()
    };
    let (earlier, later) = (counted(0), counted(1));
    let visits = expected_visits(&topology, seeds.iter().copied(), &config, true).unwrap();
    let mut by_visits: Vec<u64> = (0..graph.num_nodes()).collect();
    by_visits.sort_by(|&a, &b| visits[b as usize].total_cmp(&visits[a as usize]));
    for count in [80, 400, 1000] {
        let absorbed = |rows: &[u64]| -> u64 {
            rows.iter().map(|&row| u64::from(later.counts[row as usize])).sum()
        };
        let (ours, sampled) = (absorbed(&by_visits[..count]), absorbed(&earlier.hottest(count)));
        assert!(ours * 100 >= sampled * 97, "{count} rows: {ours}, {sampled}");
    }
}
