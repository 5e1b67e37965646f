//! Import of arrays: the stored bytes, the counts and the refusals.

use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use outercore_core::{Error, ErrorKind, Result};
use outercore_format::{Checksum, DType, NpyHeader};
use outercore_io::RealDisk;
use outercore_store::arrays::{
    ArrayBuilder, ArraySpec, Duplicates, ImportedArray, NonFinite, Target, Task, import_npy,
    register_npy,
};
use outercore_store::npy::Element;
use proptest::prelude::*;

struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn source<T: Element>(&self, shape: &[u64], elements: &[T]) -> PathBuf {
        let path = self.directory.path().join("source.npy");
        let mut bytes = NpyHeader::encode(T::DTYPE, shape);
        bytes.extend_from_slice(bytemuck::cast_slice(elements));
        fs::write(&path, bytes).unwrap();
        path
    }

    fn import(&self, spec: ArraySpec, source: &Path) -> Result<ImportedArray> {
        let root = self.directory.path().join("set");
        import_npy(&RealDisk, &root, "a.npy", spec, source, &mut |_, _| Ok(()))
    }

    /// The data bytes that an import wrote; `None` if it left no file.
    fn stored(&self) -> Option<Vec<u8>> {
        let bytes = fs::read(self.directory.path().join("set/a.npy")).ok()?;
        Some(bytes[4096..].to_vec())
    }

    fn refused<T: Element>(&self, spec: ArraySpec, shape: &[u64], elements: &[T]) -> Error {
        let source = self.source(shape, elements);
        let error = self.import(spec, &source).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(self.stored(), None, "nothing half is left");
        error
    }
}

fn features(nodes: u64) -> ArraySpec {
    ArraySpec::new(Target::Features, nodes)
}

fn labels(nodes: u64) -> ArraySpec {
    ArraySpec::new(Target::Labels, nodes)
}

fn split(nodes: u64) -> ArraySpec {
    ArraySpec::new(Target::Split("train".into()), nodes)
}

#[test]
fn features_are_copied_bit_for_bit_with_their_checksum() {
    let bench = Bench::new();
    let values: Vec<f32> = (0..600_000).map(|i| i as f32 * 0.25).collect();
    let source = bench.source(&[200_000, 3], &values);
    let array = bench.import(features(200_000), &source).unwrap();
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    assert!(bench.stored().unwrap() == bytes);
    assert_eq!(array.entry.checksum, Checksum::of(bytes));
    assert_eq!((array.entry.dtype, array.entry.shape), (DType::F32, vec![200_000, 3]));
    assert_eq!(array.summary.rows, 200_000);
}

#[test]
fn features_keep_their_type_unless_something_else_is_asked_for() {
    let bench = Bench::new();
    let check = |array: ImportedArray, dtype, expected: &[u8]| {
        assert_eq!(array.entry.dtype, dtype);
        assert_eq!(bench.stored().unwrap(), expected);
    };
    let wide = bench.source(&[2, 2], &[0.1f64, -2.0, 3.5, 1e-3]);
    let doubles = [0.1f64, -2.0, 3.5, 1e-3];
    check(bench.import(features(2), &wide).unwrap(), DType::F64, bytemuck::cast_slice(&doubles));
    let singles = [0.1f32, -2.0, 3.5, 1e-3];
    let spec = ArraySpec { dtype: Some(DType::F32), ..features(2) };
    check(bench.import(spec, &wide).unwrap(), DType::F32, bytemuck::cast_slice(&singles));
    let spec = ArraySpec { dtype: Some(DType::BF16), ..features(2) };
    let halves = singles.map(bf16::from_f32);
    check(bench.import(spec, &wide).unwrap(), DType::BF16, bytemuck::cast_slice(&halves));
    let spec = ArraySpec { dtype: Some(DType::F16), ..features(2) };
    let halves = singles.map(f16::from_f32);
    check(bench.import(spec, &wide).unwrap(), DType::F16, bytemuck::cast_slice(&halves));

    let bytes = bench.source(&[3], &[7u8, 0, 255]);
    let array = bench.import(features(3), &bytes).unwrap();
    assert_eq!(array.entry.shape, [3, 1], "one column");
    check(array, DType::U8, &[7, 0, 255]);

    let halves = bench.source(&[2, 1], &[bf16::from_f32(1.5), bf16::from_f32(-1.0)]);
    let spec = ArraySpec { source_dtype: Some(DType::BF16), ..features(2) };
    check(bench.import(spec, &halves).unwrap(), DType::BF16, &[0xC0, 0x3F, 0x80, 0xBF]);
}

#[test]
fn values_that_are_not_finite_are_counted_and_the_first_one_is_named() {
    let bench = Bench::new();
    let mut values = vec![1f32; 900_000];
    for place in [500_001, 700_000, 899_999] {
        values[place] = f32::NAN;
    }
    values[600_000] = f32::NEG_INFINITY;
    let error = bench.refused(features(300_000), &[300_000, 3], &values);
    let text = error.to_string();
    let expected = "3 NaN and 1 infinite values among 900,000, the first at row 166667, column 0";
    assert!(text.contains(expected), "{text}");
    assert!(text.starts_with("features from `"), "{text}");

    let source = bench.source(&[300_000, 3], &values);
    let spec = ArraySpec { non_finite: NonFinite::Allow, ..features(300_000) };
    let array = bench.import(spec, &source).unwrap();
    assert_eq!((array.summary.nan, array.summary.infinite), (3, 1));
    assert!(bench.stored().unwrap() == bytemuck::cast_slice::<_, u8>(&values));
}

#[test]
fn a_finite_value_that_a_smaller_type_cannot_hold_is_refused_in_any_case() {
    let bench = Bench::new();
    let spec = ArraySpec { dtype: Some(DType::F16), non_finite: NonFinite::Allow, ..features(2) };
    let error = bench.refused(spec, &[2, 2], &[1f32, f32::INFINITY, 2.0, 70_000.0]);
    assert!(error.to_string().contains("row 1, column 1: 70000.0 does not fit float16"), "{error}");
    let spec = ArraySpec { dtype: Some(DType::F32), ..features(1) };
    let error = bench.refused(spec, &[1, 1], &[1e300]);
    assert!(error.to_string().contains("does not fit float32"), "{error}");
}

#[test]
fn a_whole_number_never_becomes_another_one() {
    let bench = Bench::new();
    let single = || ArraySpec { dtype: Some(DType::F32), ..features(1) };
    let error = bench.refused(single(), &[1, 2], &[0.1, 16_777_217f64]).to_string();
    assert!(error.contains("row 0, column 1: 16777217.0 would change as float32"), "{error}");
    let spec = ArraySpec { dtype: Some(DType::BF16), ..features(1) };
    let error = bench.refused(spec, &[1, 1], &[-257f32]).to_string();
    assert!(error.contains("row 0, column 0: -257.0 would change as bfloat16"), "{error}");
    // Fractions are rounded, and so are floats beyond 2^53, which are all integers.
    let source = bench.source(&[1, 3], &[0.1f64, -16_777_218.0, 1e23]);
    bench.import(single(), &source).unwrap();
    let expected = [0.1f32, -16_777_218.0, 1e23];
    assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(&expected));
}

#[test]
fn another_number_of_rows_names_both_counts() {
    let bench = Bench::new();
    for spec in [features(1000), labels(1000), ArraySpec::new(Target::Node("z".into()), 1000)] {
        let error = bench.refused(spec, &[1001], &[1i32; 1001]);
        assert!(error.to_string().contains("1,001 rows, but the graph has 1,000 nodes"), "{error}");
    }
    let error = bench.refused(split(1000), &[999], &[true; 999]);
    assert!(error.to_string().contains("999 rows, but the graph has 1,000 nodes"), "{error}");
}

#[test]
fn labels_become_int64_with_minus_one_for_none() {
    let bench = Bench::new();
    let stored = |source: &Path, expected: &[i64], classes, unlabelled| {
        let array = bench.import(labels(expected.len() as u64), source).unwrap();
        assert_eq!((array.entry.dtype, array.entry.shape.len()), (DType::I64, 1));
        assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(expected));
        let summary = array.summary;
        assert_eq!((summary.classes, summary.unlabelled), (Some(classes), unlabelled));
    };
    stored(&bench.source(&[4], &[3i8, -1, 0, 3]), &[3, -1, 0, 3], 4, 1);
    stored(&bench.source(&[2, 1], &[0u64, 1]), &[0, 1], 2, 0);
    stored(&bench.source(&[3, 1], &[2f32, f32::NAN, 0.0]), &[2, -1, 0], 3, 1);
    stored(&bench.source(&[2], &[true, false]), &[1, 0], 2, 0);
    stored(&bench.source(&[2], &[-1i64, -1]), &[-1, -1], 0, 2);
}

#[test]
fn labels_that_are_none_are_refused_by_row() {
    let bench = Bench::new();
    for (error, expected) in [
        (bench.refused(labels(3), &[3], &[0i64, -2, -3]), "row 1: label -2 is negative"),
        (
            bench.refused(
                ArraySpec { task: Some(Task::Classification), ..labels(2) },
                &[2],
                &[0f32, 0.5],
            ),
            "row 1: label 0.5 is not an integer",
        ),
        (
            bench.refused(labels(1), &[1], &[u64::MAX]),
            "label 18446744073709551615, expected at most",
        ),
        (bench.refused(labels(1), &[1], &[1e300]), "expected at most"),
    ] {
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().starts_with("labels from `"), "{error}");
    }
    let spec = ArraySpec { classes: Some(7), ..labels(2) };
    let error = bench.refused(spec.clone(), &[2], &[6i64, 7]);
    assert!(error.to_string().contains("row 1: label 7, expected at most 6"), "{error}");
    let array = bench.import(spec, &bench.source(&[2], &[0i64, 1])).unwrap();
    assert_eq!(array.summary.classes, Some(7), "the given number stands, though 2 are seen");
}

#[test]
fn labels_of_several_columns_are_multi_label_targets() {
    let bench = Bench::new();
    let source = bench.source(&[2, 3], &[1u8, 0, 1, 0, 0, 1]);
    let array = bench.import(labels(2), &source).unwrap();
    assert_eq!((array.entry.dtype, array.entry.shape), (DType::F32, vec![2, 3]));
    assert_eq!(array.summary.classes, Some(3));
    let expected = [1f32, 0.0, 1.0, 0.0, 0.0, 1.0];
    assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(&expected));
}

#[test]
fn no_label_of_several_is_stored_as_nan_and_counted() {
    let bench = Bench::new();
    let source = bench.source(&[3, 2], &[1f64, -1.0, f64::NAN, -1.0, 0.0, 1.0]);
    let array = bench.import(labels(3), &source).unwrap();
    assert_eq!((array.summary.classes, array.summary.unlabelled), (Some(2), 1));
    assert_eq!(array.summary.task, Some(Task::MultiLabel));
    let stored = bench.stored().unwrap();
    let stored: Vec<f32> = bytemuck::pod_collect_to_vec(&stored);
    assert_eq!(format!("{stored:?}"), "[1.0, NaN, NaN, NaN, 0.0, 1.0]");
}

#[test]
fn columns_of_other_numbers_are_no_labels_but_may_be_numbers() {
    let bench = Bench::new();
    let values = [1f32, 0.0, 0.0, 63.0, 12.5, 1.0];
    for task in [None, Some(Task::MultiLabel)] {
        let error = bench.refused(ArraySpec { task, ..labels(3) }, &[3, 2], &values);
        let expected = "row 1, column 1: 63, expected 0, 1, or none (NaN, -1)";
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("`task=regression`"), "{error}");
    }
    let spec = ArraySpec { task: Some(Task::Regression), ..labels(3) };
    let array = bench.import(spec, &bench.source(&[3, 2], &values)).unwrap();
    assert_eq!((array.entry.dtype, array.entry.shape), (DType::F64, vec![3, 2]));
    assert_eq!(array.summary.classes, None);
    let expected = values.map(f64::from);
    assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(&expected));
}

#[test]
fn one_column_of_floats_is_classes_if_all_are_whole_and_else_numbers() {
    let nan = f64::NAN;
    for (values, task) in [
        ([0.0, 2.0, -1.0, nan], Task::Classification),
        ([0.0, 2.5, -1.0, nan], Task::Regression),
        ([0.0, -2.0, 1.0, 1.0], Task::Regression),
        ([1e12, 0.0, 0.0, 0.25], Task::Regression),
        ([nan, nan, nan, nan], Task::Classification),
    ] {
        let bench = Bench::new();
        let source = bench.source(&[4], &values);
        let array = bench.import(labels(4), &source).unwrap();
        assert_eq!(array.summary.task, Some(task), "{values:?}");
        let file = bench.directory.path().join("set").join(&array.entry.file);
        let stored = fs::read(file).unwrap()[4096..].to_vec();
        if task == Task::Regression {
            assert_eq!(array.entry.dtype, DType::F64);
            assert_eq!(stored, bytemuck::cast_slice::<_, u8>(&values), "{values:?}");
        } else {
            assert_eq!(array.entry.dtype, DType::I64);
        }
        let left = fs::read_dir(bench.directory.path().join("set")).unwrap().count();
        assert_eq!(left, 1, "the other form is removed");
        // The same labels, pushed in batches.
        let root = bench.directory.path().join("pushed");
        let spec = labels(4);
        let mut builder =
            ArrayBuilder::create(&RealDisk, &root, "a.npy", spec, DType::F64, &[]).unwrap();
        builder.push_rows(bytemuck::cast_slice(&values[..1]), 1).unwrap();
        builder.push_rows(bytemuck::cast_slice(&values[1..]), 3).unwrap();
        let pushed = builder.finish(&RealDisk).unwrap();
        assert_eq!((pushed.summary, pushed.entry), (array.summary, array.entry.clone()));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
        // The same labels, registered in place without conversion.
        let registered = register_npy(labels(4), &source, &mut |_, _| Ok(()));
        assert_eq!(registered.is_ok(), task == Task::Regression, "{values:?}");
    }
    let bench = Bench::new();
    let error = bench.refused(labels(2), &[2], &[1e12, 0.0]);
    assert!(error.to_string().contains("label 1000000000000, expected at most"), "{error}");
    let left = fs::read_dir(bench.directory.path().join("set")).unwrap().count();
    assert_eq!(left, 0, "nothing is left");
}

#[test]
fn numbers_to_predict_keep_their_value_or_are_refused() {
    let spec = |nodes| ArraySpec { task: Some(Task::Regression), ..labels(nodes) };
    let bench = Bench::new();
    let array = bench.import(spec(3), &bench.source(&[3], &[-1i64, 0, 1 << 53])).unwrap();
    assert_eq!((array.summary.unlabelled, array.summary.classes), (0, None));
    let expected = [-1f64, 0.0, 9_007_199_254_740_992.0];
    assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(&expected));
    let bench = Bench::new();
    let error = bench.refused(spec(2), &[2], &[0i64, (1 << 53) + 1]);
    assert!(error.to_string().contains("row 1: 9007199254740993 has too many digits"), "{error}");
    let error = bench.refused(spec(2), &[2], &[f32::INFINITY, 0.0]);
    assert!(error.to_string().contains("row 0: inf, expected a finite number"), "{error}");
    let wrong = ArraySpec { task: Some(Task::MultiLabel), ..labels(2) };
    let error = bench.refused(wrong, &[2], &[0i64, 1]);
    assert!(error.to_string().contains("expected [nodes, labels] for multi-label"), "{error}");
    let wrong = ArraySpec { task: Some(Task::Classification), ..labels(2) };
    let error = bench.refused(wrong, &[2, 2], &[0i64, 1, 0, 1]);
    assert!(error.to_string().contains("expected [nodes] for classification"), "{error}");
}

#[test]
fn splits_keep_their_order_and_a_mask_becomes_ids() {
    let bench = Bench::new();
    bench.import(split(10), &bench.source(&[3], &[7u32, 0, 9])).unwrap();
    assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(&[7i64, 0, 9]));
    let mask = [false, true, true, false, true];
    let array = bench.import(split(5), &bench.source(&[5], &mask)).unwrap();
    assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(&[1i64, 2, 4]));
    assert_eq!((array.summary.rows, array.entry.shape), (3, vec![3]));
}

#[test]
fn bad_ids_of_a_split_are_refused_and_repeated_ones_counted() {
    let bench = Bench::new();
    let error = bench.refused(split(10), &[2], &[0i64, 10]);
    assert!(error.to_string().contains("row 1: node 10, the graph has nodes 0 to 9"), "{error}");
    assert!(error.to_string().starts_with("split `train` from `"), "{error}");
    let error = bench.refused(split(10), &[2], &[0i64, -1]);
    assert!(error.to_string().contains("row 1: node -1"), "{error}");
    let error = bench.refused(split(10), &[2], &[0f32, 1.0]);
    assert!(error.to_string().contains("type float32, expected integers"), "{error}");
    let ids = [5i32, 1, 5, 1, 5];
    let error = bench.refused(split(10), &[5], &ids);
    let expected = "3 ids come more than once, the first again in row 2: node 5";
    assert!(error.to_string().contains(expected), "{error}");
    let spec = ArraySpec { duplicates: Duplicates::Keep, ..split(10) };
    let array = bench.import(spec, &bench.source(&[5], &ids)).unwrap();
    assert_eq!((array.summary.duplicates, array.summary.rows), (3, 5));
}

#[test]
fn shapes_and_names_that_do_not_suit_are_refused() {
    let bench = Bench::new();
    for (spec, shape, expected) in [
        (features(2), &[2, 3, 4][..], "shape [rows, 3, 4], expected [nodes, features]"),
        (labels(2), &[2, 3, 4][..], "expected [nodes] or [nodes, labels]"),
        (split(2), &[2, 12][..], "expected [ids], or [nodes] booleans"),
        (ArraySpec::new(Target::Node("../x".into()), 2), &[2, 12][..], "no name inside a data set"),
        (ArraySpec { dtype: Some(DType::I32), ..features(2) }, &[2, 12][..], "cannot store int32"),
    ] {
        let error = bench.refused(spec, shape, &[1i16; 24]);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = bench.refused::<f32>(features(2), &[2, 0], &[]);
    assert!(error.to_string().contains("hold nothing"), "{error}");
}

#[test]
fn a_source_that_is_cut_short_or_no_array_is_refused_before_anything_is_written() {
    let bench = Bench::new();
    let source = bench.source(&[100, 4], &[1f32; 300]);
    let error = bench.import(features(100), &source).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let expected = "file has 5,296 bytes, expected 5,696 (100 rows x 4 x float32 + header)";
    assert!(error.to_string().contains(expected), "{error}");
    fs::write(&source, "id,label\n0,1\n").unwrap();
    assert_eq!(bench.import(labels(1), &source).unwrap_err().kind(), ErrorKind::Invalid);
    let missing = bench.directory.path().join("missing.npy");
    assert_eq!(bench.import(labels(1), &missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(bench.stored(), None);
}

#[test]
fn an_import_that_is_stopped_leaves_nothing() {
    let bench = Bench::new();
    let source = bench.source(&[1 << 20], &vec![1f32; 1 << 20]);
    let root = bench.directory.path().join("set");
    let mut calls = 0;
    let stop = &mut |done, total| {
        assert!(done <= total);
        calls += 1;
        if calls < 3 { Ok(()) } else { Err(Error::new(ErrorKind::Interrupted, "stopped")) }
    };
    let error =
        import_npy(&RealDisk, &root, "a.npy", features(1 << 20), &source, stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(bench.stored(), None);
}

#[test]
fn registering_keeps_the_file_and_refuses_what_would_need_a_copy() {
    let bench = Bench::new();
    let source = bench.source(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
    let register = |spec| register_npy(spec, &source, &mut |_, _| Ok(()));
    let array = register(features(2)).unwrap();
    assert!(array.entry.external);
    assert_eq!(Path::new(&array.entry.file), fs::canonicalize(&source).unwrap());
    assert_eq!(array.entry.checksum, Checksum::of(&fs::read(&source).unwrap()[4096..]));
    let spec = ArraySpec { dtype: Some(DType::F16), ..features(2) };
    let error = register(spec).unwrap_err();
    assert!(error.to_string().contains("cannot be registered in place"), "{error}");
    bench.source(&[2, 2], &[1f32, 2.0, f32::NAN, 4.0]);
    assert!(register(features(2)).unwrap_err().to_string().contains("1 NaN"));
    bench.source(&[2, 2], &[1f64, 2.0, 3.0, 4.0]);
    assert_eq!(register(features(2)).unwrap().entry.dtype, DType::F64);
    bench.source(&[2], &[true, false]);
    register(split(2)).unwrap_err();
}

#[test]
fn pushed_batches_are_checked_like_a_file() {
    let bench = Bench::new();
    let root = bench.directory.path().join("set");
    let create = |spec, dtype| ArrayBuilder::create(&RealDisk, &root, "a.npy", spec, dtype, &[2]);
    let mut builder = create(features(3), DType::F64).unwrap();
    builder.push_rows(bytemuck::cast_slice(&[1f64, 2.0]), 1).unwrap();
    let error = builder.push_rows(&[0; 16], 2).unwrap_err();
    assert!(error.to_string().contains("16 bytes for 2 rows, expected 16 bytes a row"), "{error}");
    builder.push_rows(bytemuck::cast_slice(&[3f64, 4.0, 5.0, 6.0]), 2).unwrap();
    builder.finish(&RealDisk).unwrap();
    let expected = [1f64, 2.0, 3.0, 4.0, 5.0, 6.0];
    assert_eq!(bench.stored().unwrap(), bytemuck::cast_slice::<_, u8>(&expected));

    let mut builder = create(features(3), DType::F32).unwrap();
    builder.push_rows(&[0; 16], 2).unwrap();
    let error = builder.finish(&RealDisk).unwrap_err();
    assert!(error.to_string().contains("features: 2 rows, but the graph has 3 nodes"), "{error}");
    assert_eq!(bench.stored(), None);

    let mut builder = create(features(3), DType::F32).unwrap();
    let error = builder.push_rows(&[0; 32], 4).unwrap_err();
    assert!(error.to_string().contains("4 rows, but the graph has 3 nodes"), "{error}");
    builder.abort(&RealDisk).unwrap();
    assert_eq!(bench.stored(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn batches_of_any_size_give_the_array_at_once(
        values in proptest::collection::vec(-1e3f32..1e3, 0..200), cuts in proptest::collection::vec(0usize..200, 0..8),
    ) {
        let bench = Bench::new();
        let root = bench.directory.path().join("set");
        let spec = ArraySpec { dtype: Some(DType::F16), ..features(values.len() as u64) };
        let mut builder = ArrayBuilder::create(&RealDisk, &root, "a.npy", spec, DType::F32, &[1]).unwrap();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(values.len())).collect();
        cuts.extend([0, values.len()]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            let rows = &values[pair[0]..pair[1]];
            builder.push_rows(bytemuck::cast_slice(rows), rows.len() as u64).unwrap();
        }
        let array = builder.finish(&RealDisk).unwrap();
        let expected: Vec<u8> =
            values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
        prop_assert_eq!(array.entry.checksum, Checksum::of(&expected));
        prop_assert_eq!(bench.stored().unwrap(), expected);
    }
}
