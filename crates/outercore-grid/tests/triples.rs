//! The grid of a knowledge graph contains the triples of all relations, or of one.

mod common;

use std::fs;
use std::path::Path;

use common::{Arc, grid_arcs, write_array, write_shaped};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_format::{DType, MANIFEST_FILE, Manifest, keys};
use outercore_grid::{BuildOptions, BuildSummary, Grid, GridSource, Order, build, verify};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use proptest::prelude::*;

const NAMES: [&str; 4] = ["likes", "has part", "it's", "/a/b.c"];

/// Writes entities, triples with weights equal to their row, and the names of the relations.
fn write(root: &Path, entities: u64, triples: &[[i64; 3]]) -> DataSet {
    let mut manifest = Manifest::homogeneous(entities, 0, false);
    manifest.edge_types.clear();
    manifest.arrays.clear();
    let shape = [triples.len() as u64, 3];
    write_shaped(root, &mut manifest, keys::TRIPLES, DType::I64, &shape, triples);
    let weights: Vec<f32> = (0..triples.len()).map(weight).collect();
    write_array(root, &mut manifest, "triples/train.weight", DType::F32, &weights);
    let ends: Vec<u64> = (0..=NAMES.len()).map(|n| NAMES[..n].concat().len() as u64).collect();
    write_array(root, &mut manifest, "names/relation.offsets", DType::U64, &ends);
    let bytes = NAMES.concat().into_bytes();
    write_array(root, &mut manifest, "names/relation.bytes", DType::U8, &bytes);
    fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    DataSet::open(root).unwrap()
}

fn weight(row: usize) -> f32 {
    row as f32 / 4.0
}

fn run(root: &Path, options: &BuildOptions) -> Result<BuildSummary> {
    build(&RealDisk, &DataSet::open(root)?, options, &mut |_, _, _, _| Ok(()))
}

/// Builds, compares and verifies the grid of all relations and of each one, with and without
/// weights.
fn check(entities: u64, triples: &[[i64; 3]], options: &BuildOptions) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(root, entities, triples);
    let each = (0..NAMES.len() as i64).map(Some);
    for relation in [None].into_iter().chain(each) {
        for weighted in [false, true] {
            let options = BuildOptions {
                relation: relation.map(|id| id.to_string()),
                weights: weighted.then(|| "weight".to_owned()),
                overwrite: true,
                ..options.clone()
            };
            let built = run(root, &options).unwrap();
            let data_set = DataSet::open(root).unwrap();
            let grid = Grid::open(&data_set).unwrap();
            let mut arcs: Vec<Arc> = (0..triples.len())
                .filter(|row| relation.is_none_or(|chosen| triples[*row][1] == chosen))
                .map(|row| {
                    let length = if weighted { f64::from(weight(row)) } else { 1.0 };
                    (triples[row][0] as u64, triples[row][2] as u64, length.to_bits())
                })
                .collect();
            arcs.sort_unstable();
            assert_eq!(grid.shape().nodes, entities, "{relation:?}");
            assert_eq!((built.arcs, grid.shape().arcs), (arcs.len() as u64, arcs.len() as u64));
            assert_eq!(grid_arcs(&data_set, &grid), arcs, "{relation:?}, weights {weighted}");
            assert_eq!(verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap(), [], "{relation:?}");
            let kept = BuildOptions { overwrite: false, ..options };
            assert_eq!(run(root, &kept).unwrap().written, Bytes(0));
        }
    }
}

fn options(order: Option<Order>, log2: Option<u32>) -> BuildOptions {
    BuildOptions { order, partition_log2: log2, threads: Some(2), ..BuildOptions::default() }
}

/// Some triples; most belong to the first relation.
fn made(entities: u64, count: u64) -> Vec<[i64; 3]> {
    let entity = |number: u64| (number * number * 31 % entities) as i64;
    let triple = |row: u64| [entity(row), (row % 5 % 3) as i64, entity(7 * row + 1)];
    (0..count).map(triple).collect()
}

#[test]
fn the_arcs_of_a_grid_are_the_triples_of_the_relations_asked_for() {
    for order in [Order::Degree, Order::Natural] {
        check(300, &made(300, 900), &options(Some(order), Some(4)));
    }
    // Several chunks of 4096 triples, and edges dealt to a file.
    check(
        5000,
        &made(5000, 30_000),
        &BuildOptions { memory: Bytes::mib(6), ..options(None, None) },
    );
}

proptest! {
    // Each case builds ten grids.
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_triples_are_arcs(
        triples in prop::collection::vec((0i64..9, 0i64..4, 0i64..9), 0..40),
        log2 in 1u32..5,
    ) {
        let triples: Vec<[i64; 3]> = triples.into_iter().map(|(h, r, t)| [h, r, t]).collect();
        check(9, &triples, &options(None, Some(log2)));
    }
}

#[test]
fn a_grid_of_other_relations_names_the_command_that_builds_the_one_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(root, 9, &made(9, 30));
    let of = |relation: Option<&str>| BuildOptions {
        relation: relation.map(str::to_owned),
        ..BuildOptions::default()
    };
    run(root, &of(Some("0"))).unwrap();
    let told = run(root, &of(None)).unwrap_err().to_string();
    assert!(told.contains("has the arcs of likes, expected all relations"), "{told}");
    let quoted = ["likes", "'has part'", r"'it'\''s'", "/a/b.c"];
    for (id, quoted) in ["1", "2", "3"].iter().zip(&quoted[1..]) {
        let told = run(root, &of(Some(id))).unwrap_err().to_string();
        let command =
            format!("`outercore grid {} --relation {quoted} --overwrite`", root.display());
        assert!(told.contains(&command), "{told}");
    }
}

#[test]
fn a_budget_without_room_for_an_order_keeps_the_relation_in_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(root, 2_000_000, &made(2_000_000, 30));
    let options = BuildOptions {
        relation: Some("1".into()),
        weights: Some("weight".into()),
        memory: Bytes::mib(24),
        order: Some(Order::Degree),
        threads: Some(1),
        ..BuildOptions::default()
    };
    let error = run(root, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    let command = format!(
        "`outercore grid {} --relation 'has part' --weights weight --overwrite --order natural`",
        root.display()
    );
    assert!(error.to_string().contains(&command), "{error}");
}

#[test]
fn what_is_no_triple_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut triples = made(9, 30);
    triples[17] = [9, 0, 1];
    triples[18] = [1, 2, -1];
    let data_set = write(root, 9, &triples);
    let error = run(root, &BuildOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("row 17: entity 9, expected 0 to 8"), "{error}");
    let only = BuildOptions { relation: Some("2".into()), ..BuildOptions::default() };
    let error = run(root, &only).unwrap_err();
    assert!(error.to_string().contains("entity -1, expected 0 to 8"), "{error}");
    let error = GridSource::of(&data_set, Some("likes")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let weights = BuildOptions { weights: Some("size".into()), ..BuildOptions::default() };
    let error = run(root, &weights).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("it has weight"), "{error}");
}

#[test]
fn a_grid_whose_triples_have_changed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    write(root, 9, &made(9, 30));
    run(root, &BuildOptions::default()).unwrap();
    let grid = DataSet::read_manifest(root).unwrap();
    write(root, 9, &made(9, 31));
    let mut manifest = DataSet::read_manifest(root).unwrap();
    for (key, entry) in grid.arrays {
        manifest.arrays.entry(key).or_insert(entry);
    }
    fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    let error = Grid::open(&DataSet::open(root).unwrap()).unwrap_err();
    assert!(error.to_string().contains("belongs to another topology"), "{error}");
}
