//! A data set of format version 3, with many graphs and a log, has the same meaning for every later
//! release.

use std::path::{Path, PathBuf};

use outercore_format::log::{Frame, Segment, decode_frame};
use outercore_format::{NewEdge, Rows, Update, keys};
use outercore_live::verify;
use outercore_store::dataset::DataSet;
use outercore_store::delta::GRAPHS;

const SEGMENT: &str = "live/00000000000000000001.log";

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/format-3")
}

fn node(value: f32) -> Rows {
    let x = [value; 3].iter().flat_map(|value| value.to_le_bytes()).collect();
    let y = 1i64.to_le_bytes().to_vec();
    Rows::from([(keys::FEATURES.to_owned(), x), (keys::LABELS.to_owned(), y)])
}

fn weight(weight: f32) -> Rows {
    Rows::from([(keys::EDGE_WEIGHTS.to_owned(), weight.to_le_bytes().to_vec())])
}

/// Content of its log: each kind of update of graphs.
fn records() -> Vec<Vec<Update>> {
    vec![
        vec![
            Update::AddNode { graph: Some(0), rows: node(1.5) },
            Update::RegisterGraph {
                rows: Rows::from([(keys::GRAPH_LABELS.to_owned(), 1i64.to_le_bytes().to_vec())]),
                nodes: vec![node(2.5), node(3.5)],
                edges: vec![NewEdge { source: 1, target: 0, rows: weight(0.25) }],
            },
        ],
        vec![Update::UnregisterGraph { graph: 1 }],
    ]
}

#[test]
fn its_log_is_read_and_written_byte_for_byte() {
    let data_set = DataSet::open(frozen()).unwrap();
    assert_eq!(data_set.manifest().version, 3);
    assert_eq!(verify(&data_set).unwrap(), 2);
    let live = data_set.manifest().live.clone().unwrap();
    let segment = Segment { id: live.id_bytes().unwrap(), first: 1 };
    let bytes = std::fs::read(frozen().join(SEGMENT)).unwrap();
    let mut again = segment.encode().to_vec();
    let mut at = again.len();
    for updates in records() {
        let Frame::Whole(record, len) = decode_frame(&segment, &bytes[at..]).unwrap() else {
            panic!("no record at byte {at}")
        };
        assert_eq!(record.updates, updates);
        record.encode(&segment, &mut again).unwrap();
        at += len;
    }
    assert_eq!(again, bytes);
}

#[test]
fn it_folds_into_the_arrays_that_its_updates_define() {
    let directory = tempfile::tempdir().unwrap();
    copy(&frozen(), directory.path());
    let data_set = outercore_live::open(directory.path(), &|| Ok(())).unwrap();
    let read = |key: &str| data_set.read_i64(key).unwrap();
    assert_eq!(read(keys::FIRST_NODES), [0, 2, 3]);
    assert_eq!(read(GRAPHS), [0, 3, 3]);
    assert_eq!(read("live/removed"), [2]);
    assert_eq!(read(keys::GRAPH_LABELS), [0, 1, 0, 1]);
    assert_eq!(read("graphs/splits/train"), [2, 0]);
    assert_eq!(read(keys::LABELS).len(), 8);
    // The new edge, 7 -> 6, is the last one.
    let sources = data_set.read_array(keys::SOURCES).unwrap();
    assert_eq!(sources[sources.len() - 4..], 7u32.to_le_bytes());
    let ends = data_set.read_array(keys::OFFSETS).unwrap();
    let ends: Vec<u64> =
        ends.as_chunks::<8>().0.iter().map(|end| u64::from_le_bytes(*end)).collect();
    assert_eq!(ends[6..], [ends[8] - 1, ends[8], ends[8]]);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, target).unwrap()),
        }
    }
}

#[test]
#[ignore = "writes the frozen data set; it is there"]
fn write_it() {
    use outercore_testkit::LiveModel;

    std::fs::create_dir(frozen()).unwrap();
    let mut model = LiveModel::graphs_of(&[2, 1, 2], false);
    for (id, edge) in (0..).zip([(0, 1), (2, 2), (3, 4)]) {
        model.edges.insert(id, edge);
        model.weights.push(id as f32 / 2.0);
    }
    model.next_edge = 3;
    model.write(&frozen());
    let lock = outercore_io::FileLock::try_directory(&frozen()).unwrap().unwrap();
    let mut committer =
        outercore_live::Committer::open(&outercore_io::RealDisk, &frozen(), &lock).unwrap();
    for record in records() {
        committer.commit(vec![record]).remove(0).unwrap();
    }
}
