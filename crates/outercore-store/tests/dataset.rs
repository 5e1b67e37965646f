//! Opening data sets, whole and damaged, and reading their arrays.

mod tiny;

use std::fs;

use outercore_core::ErrorKind;
use outercore_format::keys;
use outercore_store::dataset::DataSet;

type Damage<'a> = &'a dyn Fn(&std::path::Path);

#[test]
fn what_is_not_there_is_said_with_the_next_step() {
    let (directory, root) = tiny::place();
    let error = DataSet::open(&root).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no such directory\nhint: "), "{error}");

    let error = DataSet::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("no `graph.json` in it"), "{error}");

    fs::create_dir(directory.path().join(".import")).unwrap();
    let error = DataSet::open(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let expected = "import was interrupted\nhint: run the same command again to resume";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn a_damaged_data_set_does_not_open() {
    let damages: [(&str, Damage, ErrorKind, &str); 4] = [
        (
            "truncated",
            &|root| {
                let path = root.join("nodes/node/y.npy");
                fs::File::options().write(true).open(path).unwrap().set_len(4135).unwrap();
            },
            ErrorKind::Corrupt,
            "array `nodes/node/y`: file has 4,135 bytes, expected 4,136 (5 rows x int64 + header)",
        ),
        (
            "missing",
            &|root| fs::remove_file(root.join("edges/edge/ids.npy")).unwrap(),
            ErrorKind::NotFound,
            "array `edges/edge/ids`: file `",
        ),
        (
            "a directory",
            &|root| {
                fs::remove_file(root.join("edges/edge/ids.npy")).unwrap();
                fs::create_dir(root.join("edges/edge/ids.npy")).unwrap();
            },
            ErrorKind::Corrupt,
            "is not a file",
        ),
        (
            "newer",
            &|root| {
                fs::write(root.join("graph.json"), r#"{"format":"outercore","version":9}"#).unwrap()
            },
            ErrorKind::Version,
            "`graph.json`: data set of format version 9, expected at most ",
        ),
    ];
    for (name, damage, kind, expected) in damages {
        let (_directory, root) = tiny::on_disk();
        damage(&root);
        let error = DataSet::open(&root).unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains(expected), "{name}: {error}");
        assert!(error.to_string().contains("\nhint: "), "{name}: {error}");
    }
}

#[test]
fn rows_come_in_the_order_asked_for_with_repetitions() {
    let (_directory, root) = tiny::on_disk();
    let graph = DataSet::open(&root).unwrap();
    let whole = graph.read_array("x").unwrap();
    for ids in [&[][..], &[0], &[4, 0], &[1, 2, 3], &[2, 2, 3, 0, 1, 4, 4]] {
        let expected: Vec<u8> =
            ids.iter().flat_map(|id| whole[*id as usize * 6..][..6].to_vec()).collect();
        assert_eq!(graph.read_rows("x", ids).unwrap(), expected, "{ids:?}");
    }
    let error = graph.read_rows("nodes/node/x", &[1, 5]).unwrap_err();
    let expected = "array `nodes/node/x`: row 5 asked for (at position 1), it has 5 rows";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Invalid, expected));
}

#[test]
fn names_that_do_not_exist_come_with_those_that_do() {
    let (_directory, root) = tiny::on_disk();
    let graph = DataSet::open(&root).unwrap();
    let error = graph.split("test").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().ends_with("has no split `test`\nhint: it has train, valid"),
        "{error}"
    );
    let error = graph.array("z").unwrap_err();
    assert!(error.to_string().contains("has no array `nodes/node/z`"), "{error}");
    assert!(error.to_string().contains("splits/train"), "{error}");
    let error = graph.read_i64("year").unwrap_err();
    assert_eq!(error.to_string(), "array `nodes/node/year`: type int32, expected int64");
}

#[test]
fn arrays_are_found_by_short_name_and_by_key() {
    let (_directory, root) = tiny::on_disk();
    let graph = DataSet::open(&root).unwrap();
    assert_eq!(graph.array("x").unwrap(), graph.array(keys::FEATURES).unwrap());
    assert!(graph.has_array("year") && graph.has_array(keys::OFFSETS) && !graph.has_array("z"));
    let names: Vec<String> = graph.node_arrays().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x", "y", "year"]);
    assert!(graph.root().is_absolute());
}

#[test]
fn a_read_from_a_file_that_became_shorter_names_array_and_byte() {
    let (_directory, root) = tiny::on_disk();
    let graph = DataSet::open(&root).unwrap();
    let file = fs::File::options().write(true).open(root.join("nodes/node/y.npy")).unwrap();
    file.set_len(4100).unwrap();
    let error = graph.read_array("y").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().starts_with("array `nodes/node/y` at byte 4096: "), "{error}");
    let error = graph.read_rows("y", &[3]).unwrap_err();
    assert!(error.to_string().starts_with("array `nodes/node/y` at byte 4120: "), "{error}");
}
