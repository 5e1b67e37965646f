//! Problems that `check` finds, and their descriptions.

mod altered;
mod tiny;

use std::fs::{self, File};
use std::path::Path;

use altered::{edit, put, put_as_written};
use outercore_core::{Error, ErrorKind};
use outercore_format::{ArrayEntry, Checksum, DType, Manifest, NEWEST_VERSION, NpyHeader, keys};
use outercore_io::RealDisk;
use outercore_store::arrays::{ArraySpec, Target, register_npy};
use outercore_store::check::{CheckOptions, Depth, Problem, Report, check};
use outercore_store::dataset::DataSet;
use outercore_store::editor::ManifestEditor;
use serde_json::{Value, json};

fn full(root: &Path) -> Report {
    check(root, &CheckOptions::default(), &mut |done, total| {
        assert!(done <= total, "{done} of {total} bytes");
        Ok(())
    })
    .unwrap()
}

/// The problems of the tiny data set after `damage`.
fn problems(damage: impl FnOnce(&Path)) -> Vec<Problem> {
    let (_directory, root) = tiny::on_disk();
    assert!(full(&root).is_sound());
    damage(&root);
    full(&root).problems
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

#[test]
fn one_altered_byte_in_any_array_is_found() {
    for key in [
        keys::FEATURES,
        keys::LABELS,
        "nodes/node/year",
        "splits/train",
        keys::EDGE_IDS,
        keys::SOURCES,
        keys::OFFSETS,
    ] {
        let found = problems(|root| put(root, key, 3, &[0x40]));
        let checksum = found.iter().find(|problem| problem.message.contains("checksum xxh3:"));
        let problem = checksum.unwrap_or_else(|| panic!("{key}: {found:?}"));
        assert_eq!(problem.array.as_deref(), Some(key));
        assert_eq!(problem.kind, ErrorKind::Corrupt);
        assert!(problem.hint.is_some());
    }
}

#[test]
fn a_truncated_and_a_missing_array_are_both_named() {
    let found = texts(&problems(|root| {
        File::options()
            .write(true)
            .open(root.join("nodes/node/x.npy"))
            .unwrap()
            .set_len(4100)
            .unwrap();
        fs::remove_file(root.join("splits/train.npy")).unwrap();
    }));
    assert_eq!(
        found[0],
        "array `nodes/node/x`: file has 4,100 bytes, expected 4,126 \
         (5 rows x 3 x bfloat16 + header)"
    );
    assert!(found[1].starts_with("array `splits/train`: file `"), "{}", found[1]);
    assert_eq!(found.len(), 2);
}

#[test]
fn a_header_that_contradicts_the_manifest_is_named() {
    let found = problems(|root| {
        edit(root, |json| json["arrays"]["nodes/node/year"]["dtype"] = json!("float32"))
    });
    assert_eq!(
        texts(&found),
        ["array `nodes/node/year`: header says type int32, the manifest float32"]
    );
    let found = problems(|root| {
        edit(root, |json| json["arrays"]["nodes/node/x"]["shape"] = json!([5, 3, 1]));
        edit(root, |json| json["roles"]["features"] = Value::Null);
    });
    assert_eq!(
        texts(&found),
        ["array `nodes/node/x`: header says shape [5, 3], the manifest [5, 3, 1]"]
    );
}

#[test]
fn a_newer_version_and_a_bad_manifest_are_problems_of_the_manifest() {
    let found = problems(|root| edit(root, |json| json["version"] = json!(NEWEST_VERSION + 1)));
    assert_eq!((found.len(), found[0].kind), (1, ErrorKind::Version));
    assert!(found[0].hint.as_ref().unwrap().contains("upgrade"));
    let found = problems(|root| fs::write(root.join("graph.json"), "{").unwrap());
    assert_eq!((found.len(), found[0].kind), (1, ErrorKind::Corrupt));
    let found = problems(|root| fs::remove_file(root.join("graph.json")).unwrap());
    assert_eq!((found.len(), found[0].kind), (1, ErrorKind::NotFound));
}

#[test]
fn wrong_structure_is_named_by_row_though_its_checksum_is_right() {
    let word = |value: u64| value.to_le_bytes();
    let half = |value: u32| value.to_le_bytes();
    for (key, offset, bytes, expected) in [
        (keys::OFFSETS, 0, &word(1)[..], "`edges/edge/offsets`: row 0: offset 1, expected 0"),
        (keys::OFFSETS, 16, &word(1)[..], "row 2: offset 1, expected 2 to 7"),
        (keys::OFFSETS, 24, &word(1 << 40)[..], "row 3: offset 1099511627776, expected 4 to 7"),
        (keys::OFFSETS, 40, &word(6)[..], "row 5: last offset 6, expected 7"),
        (keys::SOURCES, 4, &half(5)[..], "`edges/edge/sources`: row 1: node 5, the graph has 5"),
        (keys::SOURCES, 4, &half(0)[..], "row 1: column 0 is not sorted: source 0 of edge 3"),
        (keys::SOURCES, 0, &half(4)[..], ""),
        (keys::EDGE_IDS, 4, &half(4)[..], "row 1: edge id 4, the imported edge list has 4 rows"),
        (keys::LABELS, 8, &word(3)[..], "`nodes/node/y`: row 1: label 3, expected at most 2"),
        (keys::LABELS, 16, &(-2i64).to_le_bytes()[..], "row 2: label -2 is negative"),
        (
            "splits/valid",
            0,
            &word(5)[..],
            "`splits/valid`: row 0: node 5, the graph has nodes 0 to 4",
        ),
    ] {
        let found = texts(&problems(|root| put_as_written(root, key, offset, bytes)));
        if expected.is_empty() {
            // The two edges from node 4 to node 0 must be sorted by edge id.
            assert_eq!(found, Vec::<String>::new());
            continue;
        }
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn damage_to_edges_of_several_types_is_named_by_type() {
    let half = |value: u32| value.to_le_bytes();
    let word = |value: u64| value.to_le_bytes();
    let weights = "edges/author__writes__paper/weight";
    for (key, offset, bytes, expected) in [
        (
            keys::SOURCES,
            8,
            &half(2)[..],
            "row 2: node 2 of edge type `author__writes__paper`, expected one of type `author`: \
             0 to 1",
        ),
        (
            keys::SOURCES,
            16,
            &half(1)[..],
            "row 4: node 1 of edge type `paper__cites__paper`, expected one of type `paper`: \
             2 to 4",
        ),
        (keys::SOURCES, 12, &half(5)[..], "row 3: node 5 of edge type `paper__cites__paper`"),
        (
            keys::EDGE_IDS,
            8,
            &half(3)[..],
            "row 2: edge id 3 of edge type `author__writes__paper`, expected 0 to 2",
        ),
        (
            keys::EDGE_IDS,
            12,
            &half(2)[..],
            "row 3: edge id 2 of edge type `paper__cites__paper`, expected 3 to 4",
        ),
        (keys::OFFSETS, 24, &word(9)[..], "row 3: offset 9, expected 2 to 5"),
        ("splits/train", 0, &word(3)[..], "row 0: node 3, the graph has nodes 0 to 2"),
        ("nodes/paper/y", 0, &word(2)[..], "row 0: label 2, expected at most 1"),
        (weights, 0, &half(7)[..], ""),
    ] {
        let (_directory, root) = tiny::typed::on_disk();
        assert!(full(&root).is_sound());
        put_as_written(&root, key, offset, bytes);
        let found = texts(&full(&root).problems);
        assert_eq!(found.len(), usize::from(!expected.is_empty()), "{key}: {found:?}");
        assert!(
            found.iter().all(|text| text.contains(key) && text.contains(expected)),
            "{found:?}"
        );
        put(&root, key, offset, &[0x55]);
        let found = texts(&full(&root).problems);
        assert!(found.iter().any(|text| text.contains("checksum")), "{key}: {found:?}");
    }
}

#[test]
fn arrays_of_several_types_have_rows_for_their_own_edges_and_names_for_their_classes() {
    let weights = "edges/author__writes__paper/weight";
    let (_directory, root) = tiny::typed::on_disk();
    edit(&root, |json| {
        json["edge_types"]["author__writes__paper"]["rows"] = json!(4);
        json["roles"]["classes"] = json!(3);
    });
    let found = texts(&full(&root).problems);
    let expected = [
        format!("array `{weights}`: 3 rows, expected 4: one for each imported edge of type"),
        "array `names/class.offsets`: uint64 [3], expected uint64 [4]".to_owned(),
    ];
    for text in expected {
        assert!(found.iter().any(|problem| problem.starts_with(&text)), "{text}: {found:?}");
    }
}

#[test]
fn an_order_of_names_has_each_id_once() {
    let (_directory, root) = tiny::typed::on_disk();
    let key = "names/class.order";
    let ids: Vec<u8> = [1u64, 1].iter().flat_map(|id| id.to_le_bytes()).collect();
    let npy = [NpyHeader::encode(DType::U64, &[2]), ids.clone()].concat();
    std::fs::write(root.join(format!("{key}.npy")), npy).unwrap();
    let entry = ArrayEntry::inside(key, DType::U64, &[2], Checksum::of(&ids));
    edit(&root, |json| json["arrays"][key] = serde_json::to_value(&entry).unwrap());
    let found = texts(&full(&root).problems);
    assert_eq!(found, [format!("array `{key}`: row 1: id 1 comes twice")]);
}

#[test]
fn every_problem_is_reported_and_the_many_of_one_array_are_counted() {
    let (_directory, root) = tiny::on_disk();
    put(&root, keys::LABELS, 0, &[0xEE; 40]);
    put(&root, "splits/train", 0, &[0xEE; 16]);
    let options = CheckOptions { problems_per_array: 2, ..CheckOptions::default() };
    let report = check(&root, &options, &mut |_, _| Ok(())).unwrap();
    let of = |key| report.problems.iter().filter(|p| p.array.as_deref() == Some(key)).count();
    assert_eq!((of(keys::LABELS), of("splits/train")), (3, 3), "two rows and the checksum each");
    assert_eq!(report.omitted, 3);
    assert_eq!(report.arrays, 8);
}

#[test]
fn a_check_of_headers_reads_no_data() {
    let (_directory, root) = tiny::on_disk();
    put(&root, keys::LABELS, 0, &[0xEE; 40]);
    let options = CheckOptions { depth: Depth::Headers, ..CheckOptions::default() };
    let report = check(&root, &options, &mut |_, _| panic!("no progress without data")).unwrap();
    assert!(report.is_sound());
    assert_eq!(report.bytes, 0);
}

#[test]
fn a_wish_to_stop_stops_the_check() {
    let (_directory, root) = tiny::on_disk();
    let stop = &mut |_, _| Err(Error::new(ErrorKind::Interrupted, "stopped"));
    let error = check(&root, &CheckOptions::default(), stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
}

#[test]
fn a_registered_array_is_checked_where_it_is() {
    let (directory, root) = tiny::on_disk();
    let path = directory.path().join("y.npy");
    // The format of NumPy: 128 bytes of header, then a column of labels.
    let text = format!("{:<117}\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (5, 1), }");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(bytemuck::cast_slice(&tiny::LABELS));
    fs::write(&path, &bytes).unwrap();
    let labels =
        register_npy(ArraySpec::new(Target::Labels, 5), &path, &mut |_, _| Ok(())).unwrap();
    let mut editor = ManifestEditor::open(&RealDisk, &root).unwrap();
    labels.add_to(editor.manifest_mut());
    editor.commit().unwrap();
    assert!(!root.join("nodes/node/y.npy").exists(), "the copy that it replaces is removed");
    assert!(full(&root).is_sound());
    assert_eq!(DataSet::open(&root).unwrap().read_i64("y").unwrap(), tiny::LABELS);

    *bytes.last_mut().unwrap() = 0;
    fs::write(&path, &bytes).unwrap();
    let found = full(&root).problems;
    assert!(found.iter().any(|problem| problem.message.contains("checksum")), "{found:?}");
    fs::remove_file(&path).unwrap();
    let error = DataSet::open(&root).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("registered in place"), "{error}");
}

#[test]
fn every_single_bit_flip_of_the_topology_is_found() {
    let (_directory, root) = tiny::on_disk();
    for key in [keys::OFFSETS, keys::SOURCES] {
        let path = root.join(format!("{key}.npy"));
        let intact = fs::read(&path).unwrap();
        for place in 4096..intact.len() {
            for bit in 0..8 {
                let mut damaged = intact.clone();
                damaged[place] ^= 1 << bit;
                fs::write(&path, &damaged).unwrap();
                assert!(!full(&root).is_sound(), "{key} byte {place} bit {bit}");
            }
        }
        fs::write(&path, &intact).unwrap();
    }
    assert!(full(&root).is_sound());
}

#[test]
fn a_graph_without_nodes_or_edges_is_sound() {
    let (_directory, root) = tiny::place();
    let mut manifest = Manifest::homogeneous(0, 0, false);
    for (key, dtype, elements) in [
        (keys::OFFSETS, outercore_format::DType::U64, 1),
        (keys::SOURCES, outercore_format::DType::U32, 0),
    ] {
        let file = format!("{key}.npy");
        let mut writer =
            outercore_store::npy::ArrayWriter::create(&RealDisk, &root, &file, dtype, &[]).unwrap();
        writer.write(&vec![0; elements * dtype.size()]).unwrap();
        let entry: ArrayEntry = writer.finish().unwrap();
        manifest.arrays.insert(key.into(), entry);
    }
    outercore_store::editor::commit(&RealDisk, &root, &manifest).unwrap();
    assert!(full(&root).is_sound());
}
