//! Tests damage on disk, followed by a command that rewrites the damaged array or an array computed
//! from it. The damage must not get a valid checksum, and no damage may cause a panic or an
//! internal error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Error, ErrorKind, Result, Stream};
use outercore_format::{DType, keys};
use outercore_grid::Grid;
use outercore_io::{Engine, EngineConfig, FileLock, RealDisk};
use outercore_layout::{Method, Precision};
use outercore_live::Committer;
use outercore_store::addition::Addition;
use outercore_store::arrays::{ArraySpec, Target};
use outercore_store::check::{CheckOptions, Problem, check};
use outercore_store::convert::convert;
use outercore_store::dataset::DataSet;
use outercore_store::resident::ResidentTopology;
use outercore_testkit::{LiveModel, fuzz};

/// Seeds for an undirected graph, a directed graph, and many graphs.
const SEEDS: [u64; 3] = [0, 1, 3];

/// Number of bits of each array that are flipped before a fold: the first, the last, and others.
const BITS: u64 = 4;

/// Number of damaged files per graph.
const ROUNDS: u64 = 250;

/// A command that writes arrays, given the directory of a data set.
type Verb = (&'static str, fn(&Path) -> Result<()>);

const VERBS: [Verb; 9] = [
    ("convert", |root| {
        convert(&RealDisk, root, &[keys::FEATURES.into()], DType::F16, &mut |_, _, _, _| Ok(()))
            .map(drop)
    }),
    ("layout by degree", |root| layout(root, Method::Degree, Precision::Exact)),
    ("layout by glist", |root| layout(root, Method::Glist, Precision::Exact)),
    ("int8 layout", |root| layout(root, Method::None, Precision::Int8)),
    ("int8 layout by rcm", |root| layout(root, Method::Rcm, Precision::Int8)),
    ("grid", |root| grid(root, None)),
    ("grid with weights", |root| grid(root, Some("weight"))),
    ("add", |root| add(root, Target::Node("age".into()))),
    ("add labels", |root| add(root, Target::Labels)),
];

fn layout(root: &Path, method: Method, precision: Precision) -> Result<()> {
    let array = Some(keys::FEATURES.to_owned());
    let options =
        outercore_layout::BuildOptions { array, method, precision, memory: Bytes::mib(32) };
    let data_set = DataSet::open(root)?;
    outercore_layout::build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(())).map(drop)
}

fn grid(root: &Path, weights: Option<&str>) -> Result<()> {
    let options = outercore_grid::BuildOptions {
        weights: weights.map(str::to_owned),
        overwrite: true,
        threads: Some(1),
        ..outercore_grid::BuildOptions::default()
    };
    let data_set = DataSet::open(root)?;
    outercore_grid::build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(())).map(drop)
}

fn add(root: &Path, target: Target) -> Result<()> {
    add_rows(root, target, DType::I64, &[])
}

/// Adds an array of zeros, or replaces an existing array by it.
fn add_rows(root: &Path, target: Target, dtype: DType, row_shape: &[u64]) -> Result<()> {
    let mut addition = Addition::begin(&RealDisk, root, true, &mut || Ok(()))?;
    let rows = addition.rows(&target, None)?;
    let row_bytes = row_shape.iter().product::<u64>() * dtype.size() as u64;
    let mut builder = addition.builder(&ArraySpec::new(target, rows), dtype, row_shape)?;
    builder.push_rows(&vec![0; (row_bytes * rows) as usize], rows)?;
    addition.add(builder)?;
    addition.commit(&[])
}

fn fold(root: &Path) -> Result<()> {
    let lock = FileLock::try_directory(root)?.expect("nobody holds it");
    Committer::open(&RealDisk, root, &lock)?.fold(&lock, &|| Ok(()))
}

/// All problems that a check of the data set finds.
fn problems(root: &Path) -> Vec<Problem> {
    let mut found = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap().problems;
    let data_set = DataSet::open(root).unwrap();
    found.extend(outercore_layout::verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap());
    if Grid::is_built(&data_set) {
        found.extend(outercore_grid::verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap());
    }
    found
}

fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(std::fs::copy(&from, &to).unwrap()),
        }
    }
}

fn model(seed: u64) -> LiveModel {
    let undirected = seed.is_multiple_of(2);
    match seed % 4 {
        3 => LiveModel::random_graphs(5, undirected, seed),
        _ => LiveModel::random(14, 40, undirected, seed),
    }
}

/// A data set with two layouts and a grid.
fn with_copies(root: &Path, seed: u64) {
    model(seed).write(root);
    layout(root, Method::Degree, Precision::Exact).unwrap();
    layout(root, Method::None, Precision::Int8).unwrap();
    grid(root, Some("weight")).unwrap();
    assert_eq!(problems(root), [], "seed {seed}");
}

/// The same data set, with updates in its log that are not in the arrays.
fn with_updates(root: &Path, seed: u64) {
    with_copies(root, seed);
    let mut graph = model(seed);
    let mut draws = Stream::new(seed, 5).uniform(0, 0, 0);
    let mut updates = Vec::new();
    while updates.len() < 60 {
        let update = graph.draw(&mut draws);
        if graph.apply(&update) {
            updates.push(update);
        }
    }
    let lock = FileLock::try_directory(root).unwrap().expect("nobody holds it");
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    for done in committer.commit(updates.into_iter().map(|update| vec![update]).collect()) {
        done.unwrap();
    }
}

/// Flips bits of each array, one at a time, and calls `each(key, description of the damage,
/// directory)`.
fn for_each_damage(
    template: &Path,
    seed: u64,
    count: u64,
    each: &mut dyn FnMut(&str, &str, &Path),
) {
    let manifest = DataSet::open(template).unwrap().manifest().clone();
    let mut draws = Stream::new(seed, 6).uniform(0, 0, 0);
    for (key, entry) in manifest.arrays.iter().filter(|(_, entry)| entry.data_len() > 0) {
        let bits = 8 * entry.data_len();
        for number in 0..count {
            let bit = match number {
                0 => 0,
                1 => bits - 1,
                _ => draws.below(bits),
            };
            let parent = directory();
            let root: PathBuf = parent.path().join("graph");
            copy(template, &root);
            let path = root.join(&entry.file);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[(entry.data_offset + bit / 8) as usize] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            each(key, &format!("seed {seed}, bit {bit} of `{key}`"), &root);
        }
    }
}

/// Checks that arrays that are sound after a command were computed from the originally written
/// bytes.
fn assert_not_hidden(key: &str, when: &str, root: &Path, sound: &Path, done: Result<()>) {
    let before = std::fs::read(sound.join("graph.json")).unwrap();
    if let Err(error) = &done {
        let text = error.to_string();
        assert!(error.kind() != ErrorKind::Internal, "{when}: {text}");
        if error.kind() == ErrorKind::Corrupt {
            // A damaged list may already prevent an update of the log.
            let is_told = text.contains('`') && text.contains("hint:");
            assert!(is_told || text.contains("of the log cannot be applied"), "{when}: {text}");
        }
        let after = std::fs::read(root.join("graph.json")).unwrap();
        assert_eq!(after, before, "{when}: {text}, but the manifest was changed");
    }
    let found = problems(root);
    // A derived array may be rebuilt, or removed together with its source.
    if done.is_ok() && keys::is_derived(key) && found.is_empty() {
        return;
    }
    assert!(!found.is_empty(), "{when}: {done:?}, and a check finds nothing");
}

#[test]
fn no_verb_hides_a_bit_that_had_flipped() {
    for seed in SEEDS {
        let template = directory();
        with_copies(template.path(), seed);
        for (verb, run) in VERBS {
            for_each_damage(template.path(), seed, 2, &mut |key, when, root| {
                let done = run(root);
                let when = format!("{verb}, {when}");
                // Labels are replaced completely by other values.
                if !(verb == "add labels" && key == keys::LABELS) {
                    assert_not_hidden(key, &when, root, template.path(), done);
                }
            });
        }
    }
}

/// The arrays that a fold of sound arrays rewrites.
fn rewritten_by_a_fold(template: &Path) -> BTreeSet<String> {
    let parent = directory();
    let root = parent.path().join("graph");
    copy(template, &root);
    fold(&root).unwrap();
    assert_eq!(problems(&root), []);
    let checksums = |root: &Path| DataSet::open(root).unwrap().manifest().arrays.clone();
    let after = checksums(&root);
    let is_other = |key: &String, checksum: &String| {
        after.get(key).is_none_or(|entry| entry.checksum != *checksum)
    };
    let before = checksums(template).into_iter();
    before.filter(|(key, entry)| is_other(key, &entry.checksum)).map(|(key, _)| key).collect()
}

#[test]
fn no_fold_hides_a_bit_that_had_flipped() {
    for seed in SEEDS {
        let template = directory();
        with_updates(template.path(), seed);
        let rewritten = rewritten_by_a_fold(template.path());
        let most = [keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS, keys::FEATURES, keys::LABELS];
        let most = most.into_iter().chain([keys::EDGE_WEIGHTS, "splits/train"]);
        for key in most {
            assert!(rewritten.contains(key), "seed {seed}: no update changed `{key}`");
        }
        for_each_damage(template.path(), seed, BITS, &mut |key, when, root| {
            let done = fold(root);
            let when = format!("fold, {when}");
            if rewritten.contains(key) && !keys::is_derived(key) {
                let error = done.as_ref().expect_err(&when);
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{when}: {error}");
            }
            assert_not_hidden(key, &when, root, template.path(), done);
        });
    }
}

#[test]
fn what_replaces_an_array_takes_its_layouts_and_a_grid_of_it_along() {
    for seed in SEEDS {
        let template = directory();
        with_copies(template.path(), seed);
        for verb in ["convert", "add labels", "add features", "add weights"] {
            let parent = directory();
            let root = parent.path().join("graph");
            copy(template.path(), &root);
            let done = match verb {
                "convert" => VERBS[0].1(&root),
                "add labels" => add(&root, Target::Labels),
                "add features" => add_rows(&root, Target::Features, DType::F32, &[4]),
                _ => add_rows(&root, Target::Edge("weight".into()), DType::F32, &[]),
            };
            done.unwrap_or_else(|error| panic!("seed {seed}, {verb}: {error}"));
            assert_eq!(problems(&root), [], "seed {seed}, {verb}");
            let data_set = DataSet::open(&root).unwrap();
            let has_layout = data_set.has_array("layout/nodes/node/x/int8/header");
            assert_eq!(has_layout, verb == "add labels" || verb == "add weights", "{verb}");
            assert_eq!(Grid::is_built(&data_set), verb != "add weights", "{verb}");
            let files = walk(&root).len();
            let named = data_set.manifest().arrays.len();
            assert_eq!(files, named, "seed {seed}, {verb}: a file that nothing names");
        }
    }
}

#[test]
fn a_conversion_that_is_repeated_changes_nothing() {
    let parent = directory();
    let root = parent.path();
    with_copies(root, 0);
    let convert = || {
        let keys = [keys::FEATURES.to_owned()];
        convert(&RealDisk, root, &keys, DType::BF16, &mut |_, _, _, _| Ok(())).unwrap()
    };
    let first = convert();
    assert!(first[0].layout_removed && first[0].from == DType::F32);
    let manifest = std::fs::read(root.join("graph.json")).unwrap();
    let second = convert();
    assert_eq!((second[0].from, second[0].to), (DType::BF16, DType::BF16));
    assert_eq!(second[0].after, first[0].after);
    assert_eq!(std::fs::read(root.join("graph.json")).unwrap(), manifest);
    assert_eq!(problems(root), []);
}

#[test]
fn no_damage_of_any_file_ends_in_a_panic_or_an_internal_error() {
    for seed in SEEDS {
        let templates = [directory(), directory()];
        with_copies(templates[0].path(), seed);
        with_updates(templates[1].path(), seed);
        for round in 0..ROUNDS {
            let mut draws = Stream::new(seed, 7).uniform(0, 0, round);
            let template = templates[draws.below(2) as usize].path();
            let parent = directory();
            let root = parent.path().join("graph");
            copy(template, &root);
            let mut files = walk(&root);
            // The manifest is one file of many, but the most important one, so it is included more
            // often.
            files.extend([root.join("graph.json"), root.join("graph.json")]);
            files.sort();
            let path = &files[draws.below(files.len() as u64) as usize];
            let mut content = std::fs::read(path).unwrap();
            if path.ends_with("graph.json") {
                // The checksum is removed, because it would detect nearly every change.
                let manifest = DataSet::read_manifest(&root).unwrap();
                content = manifest.to_json().into_bytes();
            }
            let damaged = fuzz::mutated(&[content], seed << 32 | round);
            std::fs::write(path, damaged).unwrap();
            let name = path.strip_prefix(&root).unwrap().display();
            let when = format!("seed {seed}, round {round}, `{name}`");
            let verb = draws.below(10);
            let used = std::panic::catch_unwind(|| use_everything(&root, verb));
            match used {
                Ok(internal) => assert!(internal.is_empty(), "{when}: {internal:?}"),
                Err(_) => panic!("{when}: a panic"),
            }
        }
    }
}

/// Reads and rewrites a data set in every way; returns the internal errors.
fn use_everything(root: &Path, verb: u64) -> Vec<String> {
    let mut errors = Vec::new();
    let mut see = |result: Result<()>| errors.extend(result.err());
    see(check(root, &CheckOptions::default(), &mut |_, _| Ok(())).map(drop));
    see(read_everything(root));
    see(match VERBS.get(verb as usize) {
        Some((_, run)) => run(root),
        None => Ok(()),
    });
    see(fold(root));
    see(outercore_live::open(root, &|| Ok(())).and_then(|data_set| {
        outercore_live::verify(&data_set)?;
        read_everything(root)
    }));
    let is_internal = |error: &Error| error.kind() == ErrorKind::Internal;
    errors.iter().filter(|error| is_internal(error)).map(Error::to_string).collect()
}

fn read_everything(root: &Path) -> Result<()> {
    let data_set = DataSet::open(root)?;
    outercore_layout::verify(&data_set, &mut |_, _, _, _| Ok(()))?;
    if Grid::is_built(&data_set) {
        outercore_grid::verify(&data_set, &mut |_, _, _, _| Ok(()))?;
    }
    let mut errors = Vec::new();
    for key in data_set.manifest().arrays.keys() {
        errors.extend(data_set.read_array(key).err());
        errors.extend(data_set.read_rows(key, &[0]).err());
    }
    let mut engine = Engine::open(EngineConfig::default())?;
    errors.extend(ResidentTopology::load(&data_set, &mut engine, true).err());
    // The caller looks for internal errors, so return one of those first.
    match errors.into_iter().max_by_key(|error| error.kind() == ErrorKind::Internal) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// All `.npy` files below a directory, and the files of a log.
fn walk(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => walk(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|one| one == "npy" || one == "log"))
        .collect()
}
