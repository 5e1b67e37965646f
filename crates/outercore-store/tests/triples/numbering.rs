//! Names that are numbered without triples.

use std::collections::BTreeSet;
use std::sync::Arc;

use outercore_core::{Bytes, Result, Stream};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_store::import::{DictionaryImport, NameColumn};

fn push(import: &mut DictionaryImport, names: &[String]) -> Result<()> {
    let mut offsets = vec![0];
    for name in names {
        offsets.push(offsets.last().unwrap() + name.len() as i64);
    }
    import.push(NameColumn { offsets: &offsets, bytes: names.concat().as_bytes() })
}

fn numbers(root: &std::path::Path) -> Vec<i64> {
    let data_set = DataSet::open(root).unwrap();
    let entry = &data_set.manifest().arrays[DictionaryImport::NUMBERS];
    let bytes = std::fs::read(root.join(&entry.file)).unwrap();
    let words = bytes[entry.data_offset as usize..].chunks_exact(8);
    words.map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn names_of_several_chunks_are_numbered_by_length_and_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("names");
    let mut draws = Stream::new(3, 0).uniform(0, 0, 0);
    let names: Vec<String> = (0..400_000).map(|_| format!("{:x}", draws.below(1 << 24))).collect();
    let mut import = DictionaryImport::begin(Arc::new(RealDisk), &root, Bytes::mib(16)).unwrap();
    for batch in names.chunks(70_000) {
        push(&mut import, batch).unwrap();
    }
    import.finish(vec!["names".to_owned()], &mut |_| Ok(())).unwrap();

    let sorted: BTreeSet<(usize, &str)> = names.iter().map(|name| (name.len(), &**name)).collect();
    let place: std::collections::HashMap<&str, i64> =
        sorted.iter().enumerate().map(|(place, (_, name))| (*name, place as i64)).collect();
    let expected: Vec<i64> = names.iter().map(|name| place[&**name]).collect();
    assert!(numbers(&root) == expected);
    assert_eq!(DataSet::open(&root).unwrap().num_nodes(), sorted.len() as u64);
}

#[test]
fn a_dictionary_may_be_empty_and_replaces_another() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("names");
    for names in [vec!["b".to_owned(), "a".to_owned()], vec![]] {
        let mut import =
            DictionaryImport::begin(Arc::new(RealDisk), &root, Bytes::mib(16)).unwrap();
        push(&mut import, &names).unwrap();
        import.finish(vec![], &mut |_| Ok(())).unwrap();
        assert_eq!(numbers(&root), [1, 0][..names.len()]);
    }
}

#[test]
fn a_stopped_dictionary_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("names");
    let mut import = DictionaryImport::begin(Arc::new(RealDisk), &root, Bytes::mib(16)).unwrap();
    let error = push(&mut import, &["a".to_owned(), String::new()]).unwrap_err().to_string();
    assert!(error.contains("the name is empty"), "{error}");
    drop(import);
    assert!(!root.exists());
}
