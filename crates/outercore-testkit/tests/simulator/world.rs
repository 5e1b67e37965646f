//! State that outlives a machine: the data set on its disk, and its expected content.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use outercore_core::{ErrorKind, Stream, Uniform};
use outercore_format::MANIFEST_FILE;
use outercore_io::{FileLock, RealDisk};
use outercore_live::Committer;
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_store::editor::ManifestEditor;
use outercore_testkit::LiveModel;

/// A data set and its possible graphs.
pub struct World {
    pub root: PathBuf,
    _directory: tempfile::TempDir,
    pub draws: Uniform,
    pub truth: Mutex<Truth>,
    pub events: Vec<String>,
    pub failures: Vec<String>,
}

/// Knowledge about the data set.
pub struct Truth {
    /// The graph after each record; records after `acknowledged` may or may not be on disk.
    pub graphs: Vec<LiveModel>,
    /// The last record that must not be lost.
    pub acknowledged: u64,
    /// The array with a flipped bit.
    pub damaged: Option<String>,
    /// Whether the flipped bit has made the server reject a write: `graphs` then no longer match.
    pub is_blurred: bool,
}

impl Truth {
    /// Records that a reader has found all records up to `lsn` in the arrays.
    pub fn found(&mut self, lsn: u64) -> &LiveModel {
        assert!(lsn >= self.acknowledged, "{} acknowledged, {lsn} found", self.acknowledged);
        assert!((lsn as usize) < self.graphs.len(), "{lsn} found, never written");
        self.acknowledged = lsn;
        &self.graphs[lsn as usize]
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let root = directory.path().join("data");
        std::fs::create_dir(&root).unwrap();
        let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
        let graph = match draws.below(3) {
            0 => LiveModel::random_graphs(4, seed.is_multiple_of(2), seed),
            _ => LiveModel::random(12, 30, seed.is_multiple_of(2), seed),
        };
        graph.write(&root);
        let truth =
            Truth { graphs: vec![graph], acknowledged: 0, damaged: None, is_blurred: false };
        let (events, failures) = (Vec::new(), Vec::new());
        Self { root, _directory: directory, draws, truth: Mutex::new(truth), events, failures }
    }

    /// Number of starts of the machine.
    pub fn lives(&mut self) -> u64 {
        1 + self.draws.below(3)
    }

    pub fn truth(&self) -> std::sync::MutexGuard<'_, Truth> {
        self.truth.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Checks the data set after all processes have ended.
    pub fn close(&mut self) {
        let looked = catch_unwind(AssertUnwindSafe(|| self.assert_closed()));
        if let Err(panic) = looked {
            let text = panic.downcast_ref::<String>().cloned();
            self.failures.push(format!("in the end: {}", text.unwrap_or("panicked".into())));
        }
    }

    fn assert_closed(&self) {
        let is_damaged = self.truth().damaged.clone();
        let data_set = match outercore_live::open(&self.root, &|| Ok(())) {
            Ok(data_set) => data_set,
            Err(error) if is_damaged.is_some() && error.kind() == ErrorKind::Corrupt => return,
            Err(error) => panic!("does not open: {error}"),
        };
        let report = check(&self.root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
        if self.truth().is_blurred || (is_damaged.is_some() && !report.is_sound()) {
            return;
        }
        assert!(report.is_sound(), "{:#?}", report.problems);
        // This also holds for a data set with a flipped bit: content that passes the check must be
        // right.
        let mut truth = self.truth();
        truth.found(data_set.manifest().lsn()).assert_arrays(&data_set);
        drop(truth);
        // An open data set would keep files that the next writer removes.
        drop(data_set);
        if is_damaged.is_none() {
            self.assert_no_leftovers();
        }
    }

    /// Checks that every file in the directory is named by the manifest or belongs to the log.
    fn assert_no_leftovers(&self) {
        // The next writer removes files that the last one could not remove.
        drop(ManifestEditor::open(&RealDisk, &self.root));
        let lock = FileLock::try_directory(&self.root).unwrap().unwrap();
        drop(Committer::open(&RealDisk, &self.root, &lock).unwrap());
        let manifest = DataSet::read_manifest(&self.root).unwrap();
        let mut named: BTreeSet<PathBuf> =
            manifest.arrays.values().map(|entry| self.root.join(&entry.file)).collect();
        named.insert(self.root.join(MANIFEST_FILE));
        let mut left = BTreeSet::new();
        files(&self.root, &mut left);
        let is_log = |path: &PathBuf| {
            path.extension().is_some_and(|suffix| suffix == "log") || path.ends_with("live/end")
        };
        let other: Vec<&PathBuf> =
            left.iter().filter(|path| !named.contains(*path) && !is_log(path)).collect();
        assert!(other.is_empty(), "left behind: {other:?}");
    }
}

fn files(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => drop(found.insert(path)),
        }
    }
}
