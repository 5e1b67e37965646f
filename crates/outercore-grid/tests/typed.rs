//! The grid of a graph with several types contains the arcs of all edge types, or of one.

mod common;

use std::path::Path;

use common::{Arc, grid_arcs, write_array};
use outercore_core::{Bytes, ErrorKind};
use outercore_format::{DType, EdgeType, MANIFEST_FILE, NodeType};
use outercore_grid::{BuildOptions, Grid, GridSource, Order, build, verify};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_testkit::{TypedGraph, Width, write_data_set};
use proptest::prelude::*;

fn quiet(_: &str, _: u64, _: u64, _: &str) -> outercore_core::Result<()> {
    Ok(())
}

/// The weight of a row of an edge type.
fn weight(edge_type: usize, row: u64) -> f64 {
    (100 * edge_type as u64 + row) as f64 / 8.0
}

/// Writes a typed data set, each edge type with the array `w`.
fn write(root: &Path, graph: &TypedGraph, width: Width) -> DataSet {
    write_data_set(root, &graph.union(), width);
    let mut manifest = DataSet::read_manifest(root).unwrap();
    let (node_types, edge_types) = (graph.schema.node_types(), graph.schema.edge_types());
    manifest.node_types = node_types
        .iter()
        .map(|range| (range.name.clone(), NodeType::of(range.nodes.end - range.nodes.start)))
        .collect();
    manifest.edge_types = edge_types
        .iter()
        .map(|range| {
            let rows = range.rows.end - range.rows.start;
            let edges = EdgeType {
                source: node_types[range.source].name.clone(),
                target: node_types[range.target].name.clone(),
                count: rows,
                undirected: false,
                rows: Some(rows),
            };
            (range.name.clone(), edges)
        })
        .collect();
    for (place, range) in edge_types.iter().enumerate() {
        let weights: Vec<f64> =
            (0..range.rows.end - range.rows.start).map(|row| weight(place, row)).collect();
        let key = format!("edges/{}/w", range.name);
        write_array(root, &mut manifest, &key, DType::F64, &weights);
    }
    manifest.version = manifest.needed_version();
    std::fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    DataSet::open(root).unwrap()
}

/// The arcs of one edge type, or of all, from the definition: nodes of the used types, in the order
/// of their names.
fn naive(graph: &TypedGraph, relation: Option<usize>, weighted: bool) -> (u64, Vec<Arc>) {
    let (node_types, edge_types) = (graph.schema.node_types(), graph.schema.edge_types());
    let counts = |place: usize| match relation {
        None => true,
        Some(chosen) => [edge_types[chosen].source, edge_types[chosen].target].contains(&place),
    };
    let count = |place: usize| node_types[place].nodes.end - node_types[place].nodes.start;
    let first = |place: usize| (0..place).filter(|place| counts(*place)).map(count).sum::<u64>();
    let mut arcs = Vec::new();
    for (place, (range, csc)) in edge_types.iter().zip(&graph.edges).enumerate() {
        if relation.is_some_and(|chosen| chosen != place) {
            continue;
        }
        for target in 0..csc.num_nodes() as usize {
            for at in csc.offsets[target] as usize..csc.offsets[target + 1] as usize {
                let length = if weighted { weight(place, csc.ids[at]) } else { 1.0 };
                arcs.push((
                    first(range.source) + csc.sources[at],
                    first(range.target) + target as u64,
                    length.to_bits(),
                ));
            }
        }
    }
    arcs.sort_unstable();
    (first(node_types.len()), arcs)
}

/// Builds, compares and verifies the grid of all edge types, and of each with and without weights.
fn check(graph: &TypedGraph, width: Width, options: &BuildOptions) {
    let directory = tempfile::tempdir().unwrap();
    let mut data_set = write(directory.path(), graph, width);
    let relations = graph.schema.edge_types().iter().map(|range| Some(range.name.clone()));
    let choices: Vec<_> = [None].into_iter().chain(relations).collect();
    for relation in choices {
        let place = relation.as_deref().map(|name| graph.schema.edge_type(name).unwrap());
        for weighted in [false, true] {
            if weighted && relation.is_none() {
                continue;
            }
            let options = BuildOptions {
                relation: relation.clone(),
                weights: weighted.then(|| "w".to_owned()),
                overwrite: true,
                ..options.clone()
            };
            build(&RealDisk, &data_set, &options, &mut quiet).unwrap();
            data_set = DataSet::open(directory.path()).unwrap();
            let grid = Grid::open(&data_set).unwrap();
            let (nodes, arcs) = naive(graph, place, weighted);
            assert_eq!(grid.shape().nodes, nodes, "{relation:?}");
            assert_eq!(grid_arcs(&data_set, &grid), arcs, "{relation:?}, weights {weighted}");
            assert_eq!(verify(&data_set, &mut quiet).unwrap(), [], "{relation:?}");
            let kept = BuildOptions { overwrite: false, ..options };
            assert_eq!(build(&RealDisk, &data_set, &kept, &mut quiet).unwrap().written, Bytes(0));
        }
    }
}

fn options(order: Option<Order>, log2: Option<u32>) -> BuildOptions {
    BuildOptions { order, partition_log2: log2, threads: Some(2), ..BuildOptions::default() }
}

#[test]
fn the_arcs_of_a_grid_are_those_of_the_edge_types_asked_for() {
    for width in [Width::Narrow, Width::Wide] {
        for order in [Order::Degree, Order::Natural] {
            let graph = TypedGraph::bibliography(120, 90, 7);
            check(&graph, width, &options(Some(order), Some(4)));
        }
    }
    // Several chunks of 4096 arcs, which start and end anywhere, and edges dealt to a file.
    let graph = TypedGraph::bibliography(2000, 9000, 40);
    check(&graph, Width::Narrow, &BuildOptions { memory: Bytes::mib(6), ..options(None, None) });
}

#[test]
fn weights_of_several_edge_types_and_unknown_relations_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &TypedGraph::bibliography(9, 8, 2), Width::Narrow);
    let all = BuildOptions { weights: Some("w".into()), ..BuildOptions::default() };
    let error = build(&RealDisk, &data_set, &all, &mut quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("`relation`, such as `author,reviews,paper`"), "{error}");
    let unknown = GridSource::of(&data_set, Some("paper__likes__paper")).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    assert!(unknown.to_string().contains("author__writes__paper, paper__cites__paper"));
}

#[test]
fn weights_are_those_of_the_edge_type_by_their_name_or_their_key() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &TypedGraph::bibliography(9, 8, 2), Width::Narrow);
    let weighted = |weights: &str| BuildOptions {
        relation: Some("author__reviews__paper".into()),
        weights: Some(weights.into()),
        overwrite: true,
        ..BuildOptions::default()
    };
    // Both edge types have the same number of rows, so only the key distinguishes them.
    let foreign = weighted("edges/paper__in__venue/w");
    let error = build(&RealDisk, &data_set, &foreign, &mut quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("it has w"), "{error}");
    let grids = ["w", "edges/author__reviews__paper/w"].map(|weights| {
        build(&RealDisk, &data_set, &weighted(weights), &mut quiet).unwrap();
        let data_set = DataSet::open(directory.path()).unwrap();
        grid_arcs(&data_set, &Grid::open(&data_set).unwrap())
    });
    assert_eq!(grids[0], grids[1]);
}

#[test]
fn a_grid_of_other_edge_types_is_not_taken_for_the_one_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &TypedGraph::bibliography(9, 8, 2), Width::Narrow);
    build(&RealDisk, &data_set, &BuildOptions::default(), &mut quiet).unwrap();
    let data_set = DataSet::open(directory.path()).unwrap();
    let one =
        BuildOptions { relation: Some("paper__cites__paper".into()), ..BuildOptions::default() };
    let error = build(&RealDisk, &data_set, &one, &mut quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("all edge types, expected paper,cites,paper"), "{error}");
    let root = directory.path().display();
    let command = format!("`outercore grid {root} --relation paper,cites,paper --overwrite`");
    assert!(error.to_string().contains(&command), "{error}");
}

#[test]
fn a_stale_grid_of_one_edge_type_says_how_to_build_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &TypedGraph::bibliography(9, 8, 2), Width::Narrow);
    let (relation, weights) = (Some("paper__cites__paper".into()), Some("w".into()));
    let options = BuildOptions { relation, weights, ..BuildOptions::default() };
    build(&RealDisk, &data_set, &options, &mut quiet).unwrap();
    let mut manifest = DataSet::read_manifest(directory.path()).unwrap();
    let sources = manifest.arrays.get_mut("edges/edge/sources").unwrap();
    sources.checksum = "xxh3:0123456789abcdef".into();
    std::fs::write(directory.path().join(MANIFEST_FILE), manifest.to_json()).unwrap();
    let error = Grid::open(&DataSet::open(directory.path()).unwrap()).unwrap_err().to_string();
    let root = directory.path().display();
    let command = "--relation paper,cites,paper --weights w --overwrite`";
    assert!(error.contains(&format!("`outercore grid {root} {command}")), "{error}");
}

#[test]
fn a_source_of_another_type_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut graph = TypedGraph::bibliography(9, 8, 2);
    // A source of `writes` gets an id beyond the authors' ids; papers have such ids.
    let writes = graph.schema.edge_type("author__writes__paper").unwrap();
    graph.edges[writes].sources[3] = 9;
    let data_set = write(directory.path(), &graph, Width::Narrow);
    let error = build(&RealDisk, &data_set, &BuildOptions::default(), &mut quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("9 between rows"), "{error}");
}

#[test]
fn too_little_memory_for_the_columns_is_refused_with_what_works() {
    let graph = TypedGraph::bibliography(120_000, 60_000, 40);
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &graph, Width::Narrow);
    let little = BuildOptions { memory: Bytes::mib(5), ..options(None, None) };
    let error = build(&RealDisk, &data_set, &little, &mut quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    let least = error.needed().unwrap();
    let enough = BuildOptions { memory: least, ..options(Some(Order::Natural), None) };
    build(&RealDisk, &data_set, &enough, &mut quiet).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn any_typed_graph_has_its_arcs(
        counts in proptest::collection::vec(0u64..12, 3),
        edges in proptest::collection::vec((0usize..9, any::<u64>(), any::<u64>()), 0..60),
        kinds in 1usize..512,
        log2 in 1u32..4,
    ) {
        let names = ["a", "b", "c"];
        let node_types: Vec<_> = names.iter().zip(&counts).map(|(name, count)| (*name, *count)).collect();
        let mut lists = vec![Vec::new(); 9];
        for (kind, source, target) in edges {
            let (from, to) = (counts[kind / 3], counts[kind % 3]);
            if from > 0 && to > 0 {
                lists[kind].push((source % from, target % to));
            }
        }
        let edge_types: Vec<_> = (0..9)
            .filter(|kind| kinds >> kind & 1 == 1)
            .map(|kind| (names[kind / 3], "to", names[kind % 3], &lists[kind][..]))
            .collect();
        check(&TypedGraph::new(&node_types, &edge_types), Width::Narrow, &options(None, Some(log2)));
    }
}
