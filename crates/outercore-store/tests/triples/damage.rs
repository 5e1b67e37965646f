//! Problems that `check` finds in triples and names of a faulty writer: the checksums match, but
//! the values are wrong.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use outercore_core::ErrorKind;
use outercore_format::DType;
use outercore_io::RealDisk;
use outercore_store::check::{CheckOptions, Problem, check};
use outercore_store::import::{Part, TripleImportOptions};
use outercore_store::npy::ArrayWriter;
use serde_json::json;

use crate::altered::{edit, put_as_written};
use crate::model::options;
use crate::rules::import;

/// The problems after `damage` of two triples of the entities `a`, `bb` and `ccc`, with weights.
fn problems(damage: impl FnOnce(&Path)) -> Vec<Problem> {
    let texts: [(Part, &[u8]); 1] = [(Part::Train, b"a r bb 1\nbb r ccc 2\n")];
    let weighted = TripleImportOptions { columns: "hrtw".parse().unwrap(), ..options() };
    let (directory, _, _) = import(&texts, &weighted).unwrap();
    let root = directory.path().join("graph");
    damage(&root);
    check(&root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap().problems
}

#[test]
fn ids_weights_and_ends_of_names_out_of_range_are_named_with_their_row() {
    assert!(problems(|_| {}).is_empty());
    let word = |value: i64| value.to_le_bytes();
    let (triples, ends) = ("triples/train", "names/entity.offsets");
    for (key, element, bytes, expected) in [
        (triples, 0, &word(3)[..], "`triples/train`: row 0: head 3, expected 0 to 2"),
        (triples, 3, &word(-1), "row 1: head -1, expected 0 to 2"),
        (triples, 4, &word(1), "row 1: relation 1, expected 0 to 0"),
        (triples, 5, &word(i64::MAX), "row 1: tail 9223372036854775807, expected 0 to 2"),
        (ends, 0, &word(1), "row 0: the first name begins at byte 1, expected 0"),
        (ends, 2, &word(7), "row 2: a name of bytes 1 to 7, of 6"),
        (ends, 2, &word(1), "row 2: an empty name"),
        (ends, 3, &word(4), "row 3: the last name ends at byte 4, expected 6"),
        (ends, 1, &word(-1), "row 1: a name of bytes 0 to 18446744073709551615, of 6"),
    ] {
        let found = problems(|root| put_as_written(root, key, element * 8, bytes));
        let text = found.first().unwrap_or_else(|| panic!("nothing for {expected}")).to_string();
        assert!(text.contains(expected), "{text}");
        assert_eq!(found[0].kind, ErrorKind::Corrupt);
    }
    for (weight, shown) in [(-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let found = problems(|root| {
            put_as_written(root, "triples/train.weight", 4, &f32::to_le_bytes(weight))
        });
        assert!(found[0].to_string().contains(&format!("row 1: weight {shown}")), "{}", found[0]);
    }
}

#[test]
fn an_order_of_names_holds_ids() {
    let ordered = |ids: &[u64]| {
        problems(|root| {
            let mut writer =
                ArrayWriter::create(&RealDisk, root, "names/entity.order.npy", DType::U64, &[])
                    .unwrap();
            writer.write_slice(ids).unwrap();
            let entry = writer.finish().unwrap();
            edit(root, |json| json["arrays"]["names/entity.order"] = json!(entry));
        })
    };
    assert!(ordered(&[0, 1, 2]).is_empty());
    assert_eq!(
        ordered(&[0, 3, 1])[0].to_string(),
        "array `names/entity.order`: row 1: id 3, expected 0 to 2"
    );
    assert_eq!(
        ordered(&[0, 1])[0].to_string(),
        "array `names/entity.order`: uint64 [2], expected uint64 [3]"
    );
}

#[test]
fn triples_of_another_shape_are_named() {
    let found = problems(|root| {
        let header = "{'descr': '<i8', 'fortran_order': False, 'shape': (6,), }";
        // A header of 4096 bytes; its first ten bytes include its length.
        let width = 4096 - 11;
        let padded = format!("{header:<width$}\n");
        let file = File::options().write(true).open(root.join("triples/train.npy")).unwrap();
        file.write_all_at(padded.as_bytes(), 10).unwrap();
        edit(root, |json| json["arrays"]["triples/train"]["shape"] = json!([6]));
    });
    let expected = "array `triples/train`: int64 [6], expected int64 [any, 3]";
    assert_eq!(found[0].to_string(), expected);
}
