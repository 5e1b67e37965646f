//! Generators: their promised properties, and the validity of the generated data sets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use outercore_core::{Bytes, Error, ErrorKind};
use outercore_format::{DType, Manifest};
use outercore_io::RealDisk;
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_store::generate::{Planted, PlantedOptions, RmatOptions, planted, rmat};
use outercore_store::import::{EdgeImportOptions, GraphImportOptions, Phase, Progress};

const SMALL: PlantedOptions = PlantedOptions {
    nodes: 4_003,
    degree: 20,
    features: 64,
    classes: 8,
    homophily: 0.8,
    noise: 1.0,
    seed: 7,
    dtype: DType::F32,
    splits: [0.5, 0.25, 0.25],
};

fn import(threads: usize) -> GraphImportOptions {
    let edges =
        EdgeImportOptions { memory: Bytes::mib(32), threads, ..EdgeImportOptions::default() };
    GraphImportOptions { edges, ..GraphImportOptions::default() }
}

fn checksums(manifest: &Manifest) -> BTreeMap<&str, &str> {
    manifest.arrays.iter().map(|(key, entry)| (&**key, &*entry.checksum)).collect()
}

/// A whole array of the data set.
fn read<T: bytemuck::AnyBitPattern>(root: &Path, manifest: &Manifest, key: &str) -> Vec<T> {
    let entry = &manifest.arrays[key];
    assert_eq!(size_of::<T>(), entry.dtype.size(), "{key}");
    let bytes = std::fs::read(root.join(&entry.file)).unwrap();
    bytes[entry.data_offset as usize..]
        .chunks_exact(size_of::<T>())
        .map(bytemuck::pod_read_unaligned)
        .collect()
}

#[test]
fn the_same_seed_gives_the_same_graph_for_any_number_of_threads() {
    let options = RmatOptions { scale: 10, edge_factor: 8, seed: 3 };
    let make = |options, threads| {
        let directory = tempfile::tempdir().unwrap();
        rmat(Arc::new(RealDisk), directory.path(), options, import(threads), &mut |_| Ok(()))
            .unwrap()
    };
    let (one, three) = (make(options, 1), make(options, 3));
    assert_eq!(checksums(&one), checksums(&three));
    assert_eq!(one.node_types["node"].count, 1024);
    assert_eq!(one.edge_types["edge"].count, 8192);
    assert_ne!(checksums(&one), checksums(&make(RmatOptions { seed: 4, ..options }, 2)));
}

#[test]
fn a_planted_data_set_passes_the_check_and_has_what_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let manifest = planted(Arc::new(RealDisk), root, SMALL, import(2), &mut |_| Ok(())).unwrap();
    let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    let data = DataSet::open(root).unwrap();
    assert_eq!(data.num_nodes(), SMALL.nodes);
    assert_eq!(manifest.arrays["nodes/node/x"].shape, [4_003, 64]);
    assert_eq!(manifest.roles.classes, Some(8));
    let labels: Vec<i64> = read(root, &manifest, "nodes/node/y");
    let graph = Planted::new(SMALL).unwrap();
    assert!((0..).zip(&labels).all(|(node, &label)| graph.class(node) == label as u64));

    let mut ids: Vec<i64> = Vec::new();
    for (name, size) in [("train", 2002), ("valid", 1000), ("test", 1001)] {
        let split: Vec<i64> = read(root, &manifest, &format!("splits/{name}"));
        assert!(split.len().abs_diff(size) <= 1, "{name}: {}", split.len());
        ids.extend(split);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..4_003).collect::<Vec<_>>());
    assert!(!root.join(".import").exists());
}

#[test]
fn features_alone_tell_few_classes_and_the_mean_over_neighbours_nearly_all() {
    let options = PlantedOptions { nodes: 20_000, ..SMALL };
    let graph = Planted::new(options).unwrap();
    let (nodes, width) = (options.nodes as usize, options.features as usize);
    let mut x = vec![0.0; nodes * width];
    for (node, row) in x.chunks_exact_mut(width).enumerate() {
        graph.features(node as u64, row);
    }
    let mut means = vec![0.0; nodes * width];
    let mut degrees = vec![0u32; nodes];
    let mut same = 0;
    for number in 0..graph.num_edges() {
        let [u, v] = graph.edge(number);
        same += u64::from(graph.class(u) == graph.class(v));
        for (u, v) in [(u as usize, v as usize), (v as usize, u as usize)] {
            degrees[v] += 1;
            for feature in 0..width {
                means[v * width + feature] += x[u * width + feature];
            }
        }
    }
    let homophily = same as f64 / graph.num_edges() as f64;
    assert!((homophily - 0.8).abs() < 0.01, "homophily {homophily}");
    assert!(*degrees.iter().min().unwrap() >= 10);
    assert!(*degrees.iter().max().unwrap() > 200, "no hubs: {:?}", degrees.iter().max());

    // Estimate the centroids from the features, as a classifier would.
    let mut centroids = vec![0.0f32; 8 * width];
    for (node, row) in x.chunks_exact(width).enumerate() {
        let class = graph.class(node as u64) as usize;
        for (sum, value) in centroids[class * width..][..width].iter_mut().zip(row) {
            *sum += value / (nodes / 8) as f32;
        }
    }
    let accuracy = |rows: &[f32]| {
        let right = rows.chunks_exact(width).enumerate().filter(|(node, row)| {
            let score = |class: usize| -> f32 {
                let centroid = &centroids[class * width..][..width];
                row.iter().zip(centroid).map(|(a, b)| a * b).sum()
            };
            let best = (0..8).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap();
            best as u64 == graph.class(*node as u64)
        });
        right.count() as f64 / nodes as f64
    };
    let (alone, neighbours) = (accuracy(&x), accuracy(&means));
    assert!((0.57..0.67).contains(&alone), "features alone: {alone}");
    assert!(neighbours > 0.95, "mean over neighbours: {neighbours}");
}

#[test]
fn every_feature_type_holds_the_same_rows() {
    let of_type = |dtype| {
        let directory = tempfile::tempdir().unwrap();
        let options = PlantedOptions { nodes: 300, dtype, ..SMALL };
        let root = directory.path();
        let manifest =
            planted(Arc::new(RealDisk), root, options, import(2), &mut |_| Ok(())).unwrap();
        assert_eq!(manifest.arrays["nodes/node/x"].dtype, dtype);
        let key = "nodes/node/x";
        match dtype {
            DType::F32 => read::<f32>(root, &manifest, key),
            DType::F16 => {
                read::<half::f16>(root, &manifest, key).iter().map(|v| v.to_f32()).collect()
            }
            _ => read::<half::bf16>(root, &manifest, key).iter().map(|v| v.to_f32()).collect(),
        }
    };
    let full = of_type(DType::F32);
    for (dtype, step) in [(DType::F16, 1e-3), (DType::BF16, 1e-2)] {
        for (short, full) in of_type(dtype).iter().zip(&full) {
            assert!((short - full).abs() <= step * full.abs().max(1e-2), "{dtype}: {short} {full}");
        }
    }
}

#[test]
fn features_have_the_noise_they_should() {
    let graph = Planted::new(PlantedOptions { features: 1000, ..SMALL }).unwrap();
    let mut values = Vec::new();
    let (mut a, mut b) = (vec![0.0; 1000], vec![0.0; 1000]);
    for node in 0..200 {
        // Two nodes of the same class have the same centroid.
        let twin = (200..).find(|&other| graph.class(other) == graph.class(node)).unwrap();
        graph.features(node, &mut a);
        graph.features(twin, &mut b);
        values.extend(a.iter().zip(&b).map(|(a, b)| f64::from(a - b)));
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
    assert!(mean.abs() < 0.02, "mean {mean}");
    assert!((variance - 2.0).abs() < 0.05, "variance of a difference {variance}");
}

#[test]
fn stopped_anywhere_a_generator_goes_on_to_the_same_data_set() {
    let options = PlantedOptions { nodes: 2_000, ..SMALL };
    let whole = tempfile::tempdir().unwrap();
    let mut calls = 0;
    let expected = planted(Arc::new(RealDisk), whole.path(), options, import(2), &mut |_| {
        calls += 1;
        Ok(())
    })
    .unwrap();
    for stop in 1..=calls {
        let directory = tempfile::tempdir().unwrap();
        let mut left = stop;
        let mut watch = |_: Progress| {
            left -= 1;
            if left == 0 { Err(Error::new(ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
        };
        let disk = || Arc::new(RealDisk);
        let error = planted(disk(), directory.path(), options, import(2), &mut watch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert!(DataSet::open(directory.path()).is_err(), "half a data set after call {stop}");
        let found = planted(disk(), directory.path(), options, import(1), &mut |_| Ok(())).unwrap();
        assert_eq!(checksums(&found), checksums(&expected), "stopped at call {stop}");
    }
}

#[test]
fn a_finished_array_is_not_made_again_and_a_finished_data_set_is_left_alone() {
    let options = PlantedOptions { nodes: 300_000, features: 8, ..SMALL };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let run = |import, watch: &mut dyn FnMut(Progress) -> outercore_core::Result<()>| {
        planted(Arc::new(RealDisk), root, options, import, watch)
    };
    let mut rows = 0;
    // Labels come after features. A directory in place of the file stops the import there.
    let obstacle = root.join(".import/files.tmp");
    run(import(2), &mut |progress| {
        if progress.phase == Phase::Array && progress.done == progress.total {
            rows = progress.done;
            std::fs::create_dir(&obstacle).unwrap();
        }
        Ok(())
    })
    .unwrap_err();
    assert_eq!(rows, options.nodes);
    std::fs::remove_dir(&obstacle).unwrap();
    run(import(2), &mut |progress| {
        assert_ne!(progress.phase, Phase::Array, "features are made twice");
        Ok(())
    })
    .unwrap();
    let error = run(import(2), &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("holds a data set already"), "{error}");
    let again = GraphImportOptions { overwrite: true, ..import(2) };
    run(again, &mut |_| Ok(())).unwrap();
}

#[test]
fn options_that_cannot_be_are_refused_by_name() {
    for (options, expected) in [
        (PlantedOptions { classes: 1, ..SMALL }, "1 classes for 4003 nodes"),
        (PlantedOptions { nodes: 5, ..SMALL }, "8 classes for 5 nodes"),
        (PlantedOptions { degree: 0, ..SMALL }, "degree 0"),
        (PlantedOptions { features: 0, ..SMALL }, "0 features"),
        (PlantedOptions { homophily: 1.5, ..SMALL }, "homophily 1.5"),
        (PlantedOptions { homophily: f64::NAN, ..SMALL }, "homophily NaN"),
        (PlantedOptions { noise: -1.0, ..SMALL }, "noise -1"),
        (PlantedOptions { dtype: DType::I64, ..SMALL }, "features of int64"),
        (PlantedOptions { splits: [0.9, 0.2, 0.0], ..SMALL }, "split shares [0.9, 0.2, 0.0]"),
    ] {
        let error = Planted::new(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
}
