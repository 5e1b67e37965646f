//! A data set of format version 2 with a log, as written by the first release with updates, has the
//! same meaning for every later release.

use std::path::{Path, PathBuf};

use outercore_format::log::{Frame, Segment, decode_frame};
use outercore_format::{Rows, Update, keys};
use outercore_live::verify;
use outercore_store::dataset::DataSet;

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/format-2")
}

/// Content of its log: each kind of update, in three records.
fn records() -> Vec<Vec<Update>> {
    let weight =
        |weight: f32| Rows::from([(keys::EDGE_WEIGHTS.to_owned(), weight.to_le_bytes().to_vec())]);
    let x = |x: [f32; 3]| x.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let new = Rows::from([
        (keys::FEATURES.to_owned(), x([1.5, 2.5, 3.5])),
        (keys::LABELS.to_owned(), 2i64.to_le_bytes().to_vec()),
    ]);
    let changed = Rows::from([(keys::FEATURES.to_owned(), x([-1.0, -2.0, -3.0]))]);
    vec![
        vec![
            Update::AddNode { graph: None, rows: new },
            Update::AddEdge { source: 1, target: 5, rows: weight(0.5) },
            Update::AddEdge { source: 5, target: 0, rows: weight(8.0) },
        ],
        vec![Update::RemoveEdge { source: 0, target: 1 }],
        vec![Update::UpdateNode { node: 3, rows: changed }, Update::RemoveNode { node: 2 }],
    ]
}

fn copied() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut todo = vec![PathBuf::new()];
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(frozen().join(&at)).unwrap() {
            let path = at.join(entry.unwrap().file_name());
            if frozen().join(&path).is_dir() {
                std::fs::create_dir_all(directory.path().join(&path)).unwrap();
                todo.push(path);
            } else {
                std::fs::copy(frozen().join(&path), directory.path().join(&path)).unwrap();
            }
        }
    }
    directory
}

#[test]
fn its_log_is_read_and_written_byte_for_byte() {
    let data_set = DataSet::open(frozen()).unwrap();
    assert_eq!(verify(&data_set).unwrap(), 3);
    let live = data_set.manifest().live.clone().unwrap();
    let segment = Segment { id: live.id_bytes().unwrap(), first: 1 };
    let bytes = std::fs::read(frozen().join("live/00000000000000000001.log")).unwrap();
    let mut again = segment.encode().to_vec();
    let mut at = again.len();
    for (lsn, updates) in (1..).zip(records()) {
        let Frame::Whole(record, len) = decode_frame(&segment, &bytes[at..]).unwrap() else {
            panic!("no record {lsn}")
        };
        assert_eq!((record.lsn, record.durable, &record.updates), (lsn, lsn - 1, &updates));
        record.encode(&segment, &mut again).unwrap();
        at += len;
    }
    assert_eq!(again, bytes);
}

#[test]
fn it_folds_into_the_arrays_that_its_updates_define() {
    let directory = copied();
    let data_set = outercore_live::open(directory.path(), &|| Ok(())).unwrap();
    let words = |key: &str, size: usize| -> Vec<u64> {
        let wide = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..size].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        };
        data_set.read_array(key).unwrap().chunks(size).map(wide).collect()
    };
    let floats = |key: &str| -> Vec<f32> {
        let bytes = data_set.read_array(key).unwrap();
        bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    // 0 -> 1 (removed), 2 -> 1 and 1 -> 2 (with node 2), 3 -> 4, 4 -> 4; then 1 -> 5, 5 -> 0.
    assert_eq!(words(keys::OFFSETS, 8), [0, 1, 1, 1, 1, 3, 4]);
    assert_eq!(words(keys::SOURCES, 4), [5, 3, 4, 1]);
    assert_eq!(words(keys::EDGE_IDS, 4), [6, 3, 4, 5]);
    let x = floats(keys::FEATURES);
    assert_eq!((x.len(), &x[9..12], &x[15..]), (18, &[-1.0, -2.0, -3.0][..], &[1.5, 2.5, 3.5][..]));
    assert_eq!(data_set.read_i64(keys::LABELS).unwrap(), [0, 1, 2, 0, 1, 2]);
    assert_eq!(floats(keys::EDGE_WEIGHTS), [0.0, 0.5, 1.0, 1.5, 2.0, 0.5, 8.0]);
    assert_eq!(data_set.read_i64("live/removed").unwrap(), [2]);
    assert_eq!(data_set.read_split("train").unwrap(), [0, 4]);
    assert_eq!(data_set.manifest().live.as_ref().unwrap().lsn, 3);
}

#[test]
#[ignore = "writes the frozen data set; it is there"]
fn write_it() {
    use outercore_testkit::LiveModel;

    std::fs::create_dir(frozen()).unwrap();
    let mut model = LiveModel::random(5, 0, false, 0);
    for (id, edge) in (0..).zip([(0, 1), (2, 1), (1, 2), (3, 4), (4, 4)]) {
        model.edges.insert(id, edge);
        model.weights.push(id as f32 / 2.0);
    }
    model.next_edge = 5;
    model.write(&frozen());
    let lock = outercore_io::FileLock::try_directory(&frozen()).unwrap().unwrap();
    let mut committer =
        outercore_live::Committer::open(&outercore_io::RealDisk, &frozen(), &lock).unwrap();
    for record in records() {
        committer.commit(vec![record]).remove(0).unwrap();
    }
}
