//! After any accepted update, `check` finds the data set sound.

use std::path::Path;

use outercore_core::{ErrorKind, Stream, Uniform};
use outercore_format::{
    ArrayEntry, Checksum, DType, MANIFEST_FILE, Manifest, NewEdge, NpyHeader, Rows, Update, keys,
};
use outercore_io::{FileLock, RealDisk};
use outercore_layout::{BuildOptions, Method, Precision};
use outercore_live::{Committer, NEW_NODE};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_testkit::LiveModel;

const SEEDS: u64 = 60;

/// Number of records per history.
const RECORDS: usize = 40;

/// Keys of the label arrays of a data set.
const LABELS: [&str; 3] = [keys::LABELS, "nodes/node/several", "nodes/node/number"];

/// A directory in memory if possible: on a disk, hundreds of syncs would each wait.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// A random data set with arrays of every kind.
fn data_set(root: &Path, seed: u64) -> DataSet {
    let undirected = seed.is_multiple_of(2);
    let model = match seed % 3 {
        0 => LiveModel::random_graphs(4, undirected, seed),
        _ => LiveModel::random(9, 20, undirected, seed),
    };
    model.write(root);
    let text = std::fs::read(root.join(MANIFEST_FILE)).unwrap();
    let mut manifest = Manifest::from_json(&text).unwrap();
    let (nodes, edges) = (model.nodes, model.next_edge);
    let mut write = |key: &str, dtype: DType, shape: &[u64]| {
        let elements: u64 = shape.iter().product();
        let data = vec![0; elements as usize * dtype.size()];
        let path = root.join(format!("{key}.npy"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, [NpyHeader::encode(dtype.stored(), shape), data.clone()].concat())
            .unwrap();
        let entry = ArrayEntry::inside(key, dtype, shape, Checksum::of(&data));
        manifest.arrays.insert(key.to_owned(), entry);
    };
    write(LABELS[1], DType::F32, &[nodes, 2]);
    write(LABELS[2], DType::F64, &[nodes]);
    write("nodes/node/flag", DType::Bool, &[nodes]);
    write("nodes/node/half", DType::BF16, &[nodes, 2]);
    write("nodes/node/small", DType::I8, &[nodes]);
    write("edges/edge/time", DType::I64, &[edges]);
    write("edges/edge/large", DType::U64, &[edges]);
    manifest.roles.labels = Some(LABELS[seed as usize / 3 % 3].to_owned());
    std::fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    DataSet::open(root).unwrap()
}

/// An element as a hostile client could send it.
fn element(dtype: DType, draws: &mut Uniform) -> Vec<u8> {
    let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.5, 1e300, -0.0, 3.0];
    let ints = [i64::MIN, i64::MAX, -5, -2, -1, 3, 1 << 31, u32::MAX.into()];
    let at = draws.below(8) as usize;
    match dtype {
        DType::F64 => floats[at].to_le_bytes().to_vec(),
        DType::F32 => (floats[at] as f32).to_le_bytes().to_vec(),
        DType::F16 | DType::BF16 => (0..2).map(|_| draws.below(256) as u8).collect(),
        _ => ints[at].to_le_bytes()[..dtype.size()].to_vec(),
    }
}

/// Rows of arrays. Most are valid; some have another length or belong to other arrays.
fn rows(data_set: &DataSet, prefix: &str, draws: &mut Uniform) -> Rows {
    let topology = [keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS];
    let own = |key: &&String| key.starts_with(prefix) && !topology.contains(&key.as_str());
    let arrays = &data_set.manifest().arrays;
    let mut rows = Rows::new();
    for key in
        arrays.keys().filter(own).filter(|key| !key.contains("splits") && !key.contains("first"))
    {
        let (dtype, columns) = (arrays[key].dtype, arrays[key].row_elements());
        let is_hostile = draws.below(12) == 0;
        let mut row: Vec<u8> = (0..columns)
            .flat_map(|_| match is_hostile {
                true => element(dtype, draws),
                false => match (dtype, draws.below(3)) {
                    (DType::F32, one) => (one as f32 / 2.0).floor().to_le_bytes().to_vec(),
                    (_, one) => one.min(1).to_le_bytes()[..dtype.size()].to_vec(),
                },
            })
            .collect();
        if draws.below(60) == 0 {
            row.pop();
        }
        if draws.below(60) > 0 {
            rows.insert(key.clone(), row);
        }
    }
    if draws.below(60) == 0 {
        rows.insert("edges/edge/offsets".to_owned(), vec![0; 8]);
    }
    rows
}

fn update(data_set: &DataSet, nodes: u64, draws: &mut Uniform) -> Update {
    let place = |draws: &mut Uniform| match draws.below(20) {
        0 => u64::MAX - draws.below(3),
        1 => NEW_NODE + draws.below(3),
        _ => draws.below(nodes + 1),
    };
    let (source, target) = (place(draws), place(draws));
    let of = |kind: &str, draws: &mut Uniform| rows(data_set, kind, draws);
    match draws.below(12) {
        0..3 => Update::AddEdge { source, target, rows: of("edges/", draws) },
        3 => Update::RemoveEdge { source, target },
        4..6 => {
            let graph = (draws.below(2) == 0).then_some(draws.below(6));
            Update::AddNode { graph, rows: of("nodes/", draws) }
        }
        6 => Update::RemoveNode { node: source },
        7..10 => {
            let mut rows = of("nodes/", draws);
            rows.retain(|_, _| draws.below(3) == 0);
            Update::UpdateNode { node: source, rows }
        }
        10 => {
            let nodes = (0..draws.below(4)).map(|_| of("nodes/", draws)).collect();
            let edges = (0..draws.below(4)).map(|_| NewEdge {
                source: draws.below(4),
                target: draws.below(4),
                rows: of("edges/", draws),
            });
            let edges = edges.collect();
            Update::RegisterGraph { rows: of("graphs/", draws), nodes, edges }
        }
        _ => Update::UnregisterGraph { graph: draws.below(6) },
    }
}

#[test]
fn every_accepted_update_leaves_the_data_set_sound() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let directory = directory();
        let root = directory.path();
        let data_set = data_set(root, seed);
        if seed.is_multiple_of(4) {
            let array = Some(keys::FEATURES.to_owned());
            let memory = outercore_core::Bytes::mib(32);
            let (method, precision) = (Method::Degree, Precision::Int8);
            let options = BuildOptions { array, method, precision, memory };
            outercore_layout::build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(()))
                .unwrap();
        }
        let lock = FileLock::try_directory(root).unwrap().unwrap();
        let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
        let mut draws = Stream::new(seed, 3).uniform(0, 0, 0);
        for record in 0..RECORDS {
            let nodes = committer.snapshot().delta.num_nodes();
            let updates: Vec<Update> =
                (0..1 + draws.below(2)).map(|_| update(&data_set, nodes, &mut draws)).collect();
            match committer.commit(vec![updates]).remove(0) {
                Ok(_) => accepted += 1,
                Err(error) => {
                    let kind = error.kind();
                    let is_told = matches!(kind, ErrorKind::Invalid | ErrorKind::NotFound);
                    assert!(is_told, "seed {seed}, record {record}: {error}");
                    refused += 1;
                }
            }
            if record % 20 == 19 {
                committer.fold(&lock, &|| Ok(())).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
                assert!(report.is_sound(), "seed {seed}: {:#?}", report.problems);
                let data_set = DataSet::open(root).unwrap();
                let problems = outercore_layout::verify(&data_set, &mut |_, _, _, _| Ok(()));
                assert!(problems.unwrap().is_empty(), "seed {seed}");
            }
        }
    }
    assert!(accepted > 200 && refused > 200, "{accepted} accepted, {refused} refused");
}

#[test]
fn a_label_is_accepted_exactly_if_its_array_can_hold_it() {
    let long = |value: i64| value.to_le_bytes().to_vec();
    let pair = |one: f32, other: f32| [one.to_le_bytes(), other.to_le_bytes()].concat();
    let cases = [
        (0, long(2), true),
        (0, long(-1), true),
        (0, long(3), false),
        (0, long(-5), false),
        (0, long(i64::MAX), false),
        (3, pair(0.0, 1.0), true),
        (3, pair(f32::NAN, -1.0), true),
        (3, pair(0.5, 1.0), false),
        (3, pair(1.0, f32::INFINITY), false),
        (6, (-7.5f64).to_le_bytes().to_vec(), true),
        (6, f64::NAN.to_le_bytes().to_vec(), true),
        (6, f64::INFINITY.to_le_bytes().to_vec(), false),
    ];
    for (seed, row, is_accepted) in cases {
        let directory = directory();
        let root = directory.path();
        let labels = data_set(root, seed + 1).manifest().roles.labels.clone().unwrap();
        let lock = FileLock::try_directory(root).unwrap().unwrap();
        let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
        let rows = Rows::from([(labels.clone(), row.clone())]);
        let done = committer.commit(vec![vec![Update::UpdateNode { node: 1, rows }]]).remove(0);
        assert_eq!(done.is_ok(), is_accepted, "{labels} {row:?}: {done:?}");
        if let Err(error) = done {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(&labels), "{error}");
        }
    }
}

#[test]
fn what_an_older_version_accepted_is_still_read() {
    let directory = directory();
    let root = directory.path();
    data_set(root, 1);
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    let rows = Rows::from([(keys::LABELS.to_owned(), 2i64.to_le_bytes().to_vec())]);
    committer.commit(vec![vec![Update::UpdateNode { node: 1, rows }]]).remove(0).unwrap();
    drop(committer);
    // The same record as an older version would have written it, with a label that is not a valid
    // class.
    let path = root.join("live/00000000000000000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let segment = {
        let header = bytes.first_chunk().unwrap();
        outercore_format::log::Segment::decode(header).unwrap()
    };
    bytes.truncate(outercore_format::log::SEGMENT_HEADER);
    let rows = Rows::from([(keys::LABELS.to_owned(), 3i64.to_le_bytes().to_vec())]);
    let updates = vec![Update::UpdateNode { node: 1, rows }];
    let record = outercore_format::log::Record { lsn: 1, durable: 0, key: None, updates };
    record.encode(&segment, &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(Committer::open(&RealDisk, root, &lock).unwrap().snapshot().delta.lsn(), 1);
}
