//! The manifest: which content it accepts and rejects, and with which messages.

use outercore_core::{Error, ErrorKind};
use outercore_format::{ArrayEntry, Checksum, DType, Live, Manifest, NEWEST_VERSION, keys};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Five nodes, six edges, features, labels and a split.
fn valid() -> Manifest {
    let mut manifest = Manifest::homogeneous(5, 6, true);
    manifest.created = "2026-01-31T12:00:00Z".into();
    for (key, dtype, shape) in [
        (keys::OFFSETS, DType::U64, vec![6]),
        (keys::SOURCES, DType::U32, vec![6]),
        (keys::EDGE_IDS, DType::U32, vec![6]),
        (keys::FEATURES, DType::BF16, vec![5, 3]),
        (keys::LABELS, DType::I64, vec![5]),
        ("splits/train", DType::I64, vec![2]),
        ("nodes/node/year", DType::I32, vec![5]),
    ] {
        manifest
            .arrays
            .insert(key.into(), ArrayEntry::inside(key, dtype, &shape, Checksum::of(b"")));
    }
    manifest.roles.features = Some(keys::FEATURES.into());
    manifest.roles.labels = Some(keys::LABELS.into());
    manifest.roles.classes = Some(3);
    manifest.roles.splits.insert("train".into(), "splits/train".into());
    manifest.roles.times.insert("nodes/node/year".into(), "date[us]".into());
    manifest
}

/// The error of the valid manifest after `damage`.
fn refused(damage: impl FnOnce(&mut Value)) -> Error {
    let mut json = serde_json::to_value(valid()).unwrap();
    damage(&mut json);
    Manifest::from_json(json.to_string().as_bytes()).expect_err(&json.to_string())
}

#[test]
fn a_valid_manifest_survives_the_round_trip() {
    let manifest = valid();
    manifest.validate().unwrap();
    assert_eq!(Manifest::from_json(manifest.to_json().as_bytes()).unwrap(), manifest);
}

#[test]
fn a_manifest_without_times_is_written_as_before_there_was_the_role() {
    let mut manifest = valid();
    manifest.roles.times.clear();
    assert!(!manifest.to_json().contains("\"times\""));
}

#[test]
fn a_manifest_keeps_what_files_call_node_0_and_does_not_say_what_counts_from_0() {
    let mut manifest = valid();
    assert!(!manifest.to_json().contains("first_id"));
    manifest.node_types.get_mut(keys::NODE).unwrap().first_id = 1;
    let read = Manifest::from_json(manifest.to_json().as_bytes()).unwrap();
    assert_eq!(read.node_types[keys::NODE].first_id, 1);
    let error = refused(|json| json["node_types"]["node"]["first_id"] = json!(2));
    assert!(error.to_string().contains("first id 2, expected 0 or 1"), "{error}");
}

#[test]
fn the_manifest_of_the_specification_parses() {
    let specification = include_str!("../../../docs/format.md");
    let (_, rest) = specification.split_once("```json\n").unwrap();
    let (json, _) = rest.split_once("```").unwrap();
    let manifest = Manifest::from_json(json.as_bytes()).unwrap();
    let written: Value = serde_json::from_str(&manifest.to_json()).unwrap();
    assert_eq!(written, serde_json::from_str::<Value>(json).unwrap(), "no member is lost");
    assert_eq!(manifest.arrays["nodes/node/x"].row_bytes(), 512);
    assert_eq!(manifest.arrays["nodes/node/x"].file_len(), 128 + 5 * 512);
}

#[test]
fn what_may_be_absent_may_be_absent_and_unknown_members_are_ignored() {
    let json = json!({
        "format": "outercore", "version": 1, "created": "", "node_types": {"node": {"count": 2}},
        "edge_types": {}, "unknown": {"members": ["are", "ignored"]},
        "arrays": {"nodes/node/z": {"file": "nodes/node/z.npy", "dtype": "uint8", "shape": [2],
            "data_offset": 4096, "checksum": "xxh3:0123456789abcdef", "unknown": 1}}
    });
    let manifest = Manifest::from_json(json.to_string().as_bytes()).unwrap();
    assert!(!manifest.arrays["nodes/node/z"].external);
}

#[test]
fn a_newer_version_is_named_before_anything_else_is_parsed() {
    let newer = NEWEST_VERSION + 1;
    let json = format!(r#"{{"format":"outercore","version":{newer},"nodes":7}}"#);
    let error = Manifest::from_json(json.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    let text = error.to_string();
    assert!(text.contains(&format!("version {newer}")) && text.contains("hint: "), "{text}");
}

#[test]
fn a_log_of_updates_makes_the_version_and_its_id_is_checked() {
    let manifest = |version: u32, live: Value| {
        json!({
            "format": "outercore", "version": version, "created": "", "node_types": {},
            "edge_types": {}, "arrays": {}, "live": live,
        })
    };
    let id = "0123456789abcdef0123456789abcdef";
    let read = |json: Value| Manifest::from_json(json.to_string().as_bytes());
    let found = read(manifest(2, json!({"id": id, "lsn": 7}))).unwrap();
    let live = found.live.unwrap();
    assert_eq!((live.lsn, Live::id_of(live.id_bytes().unwrap())), (7, id.to_owned()));
    for wrong in [
        manifest(1, json!({"id": id, "lsn": 7})),
        manifest(2, Value::Null),
        manifest(2, json!({"id": &id[1..], "lsn": 7})),
        manifest(2, json!({"id": id.to_uppercase(), "lsn": 7})),
        manifest(2, json!({"id": id})),
    ] {
        assert_eq!(read(wrong).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn what_is_no_manifest_is_corrupt() {
    for json in [
        "",
        "{",
        "[]",
        "{}",
        "null",
        r#"{"format":"other","version":1}"#,
        r#"{"format":"outercore","version":0}"#,
        r#"{"format":"outercore","version":1}"#,
        r#"{"format":"outercore","version":-1}"#,
        "\u{feff}{}",
    ] {
        assert_eq!(Manifest::from_json(json.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let deep = "[".repeat(100_000);
    assert_eq!(Manifest::from_json(deep.as_bytes()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn files_outside_the_data_set_are_refused() {
    for file in
        ["../x.npy", "/etc/passwd", "a/../../x.npy", "", ".import/x.npy", "x.bin", "a//x.npy"]
    {
        let error = refused(|json| json["arrays"]["nodes/node/x"]["file"] = json!(file));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().starts_with("array `nodes/node/x`: "), "{error}");
    }
    for file in ["x.npy", "/data/../x.npy", "/data/\0.npy"] {
        refused(|json| {
            json["arrays"]["nodes/node/x"]["file"] = json!(file);
            json["arrays"]["nodes/node/x"]["external"] = json!(true);
        });
    }
    refused(|json| json["arrays"]["../x"] = json["arrays"]["nodes/node/x"].clone());
}

#[test]
fn every_contradiction_is_refused_and_named() {
    let max = u64::MAX;
    for (pointer, value, expected) in [
        ("/arrays/nodes~1node~1x/shape", json!([4, 3]), "4 rows, expected 5"),
        ("/arrays/nodes~1node~1x/shape", json!([5]), "expected 2 dimension(s)"),
        ("/arrays/nodes~1node~1x/shape", json!([5, 0]), "no columns"),
        ("/arrays/nodes~1node~1x/shape", json!([]), "no dimension"),
        ("/arrays/nodes~1node~1x/shape", json!([max, max]), "larger than any file"),
        ("/arrays/nodes~1node~1x/shape", json!([0, max, max]), "larger than any file"),
        ("/arrays/nodes~1node~1x/dtype", json!("float8"), "unknown variant `float8`"),
        ("/arrays/nodes~1node~1x/data_offset", json!(128), "data at byte 128, expected 4096"),
        ("/arrays/nodes~1node~1x/checksum", json!("crc:1"), "checksum `crc:1`"),
        ("/arrays/nodes~1node~1x/file", json!("nodes/node/y.npy"), "share the file"),
        ("/arrays/nodes~1node~1y/dtype", json!("int32"), "type int32, expected int64"),
        ("/arrays/splits~1train/dtype", json!("int32"), "type int32, expected int64"),
        ("/arrays/splits~1train/shape", json!([1, 2]), "expected 1 dimension(s)"),
        ("/arrays/edges~1edge~1offsets/shape", json!([5]), "5 rows, expected 6"),
        ("/arrays/edges~1edge~1offsets/dtype", json!("int64"), "expected uint64"),
        ("/arrays/edges~1edge~1sources/shape", json!([7]), "7 rows, expected 6"),
        ("/arrays/edges~1edge~1ids/dtype", json!("float32"), "expected uint32 or uint64"),
        ("/edge_types/edge/source", json!("paper"), "node type `paper` is not in the manifest"),
        ("/edge_types/edge/count", json!(7), "6 rows, expected 7"),
        ("/node_types/node/count", json!(max), "expected less than 2^63"),
        ("/node_types/node/count", json!(-5), "not a manifest"),
        ("/roles/features", json!("nodes/node/z"), "role `features`: array `nodes/node/z`"),
        ("/roles/features", json!("splits/train"), "not below `nodes/`"),
        ("/roles/splits/train", json!("nodes/node/y"), "not below `splits/`"),
        (
            "/roles/times",
            json!({"nodes/node/z": "timestamp[us]"}),
            "role `times`: array `nodes/node/z`",
        ),
    ] {
        let error = refused(|json| *json.pointer_mut(pointer).unwrap() = value.clone());
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(expected), "{pointer} {value}: {error}");
    }
}

#[test]
fn topology_arrays_must_be_there_but_for_the_ids() {
    for key in [keys::OFFSETS, keys::SOURCES] {
        let error = refused(|json| {
            json["arrays"].as_object_mut().unwrap().remove(key);
        });
        assert!(error.to_string().contains(key), "{error}");
    }
    let mut manifest = valid();
    manifest.arrays.remove(keys::EDGE_IDS);
    manifest.validate().unwrap();
}

proptest! {
    #[test]
    fn any_bytes_are_a_manifest_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Manifest::from_json(&bytes);
    }

    #[test]
    fn any_damage_to_a_file_changes_no_meaning(
        place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut file = valid().to_file().into_bytes();
        let place = place.index(file.len());
        if cut { file.truncate(place) } else { file[place] = byte }
        if let Ok(manifest) = Manifest::from_json(&file) {
            prop_assert_eq!(manifest, valid());
        }
    }

    #[test]
    fn any_damage_to_a_manifest_is_an_error_or_a_valid_manifest(
        place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut json = valid().to_json().into_bytes();
        let place = place.index(json.len());
        if cut { json.truncate(place) } else { json[place] = byte }
        if let Ok(manifest) = Manifest::from_json(&json) {
            manifest.validate().unwrap();
        }
    }
}
