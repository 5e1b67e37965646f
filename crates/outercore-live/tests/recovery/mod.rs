//! The body of the fuzz target `recovery`. It uses only public items, so `fuzz/` includes it as a
//! file.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use outercore_core::{Error, ErrorKind, Stream};
use outercore_format::log::{Record, SEGMENT_HEADER, Segment};
use outercore_format::{LIVE_DIRECTORY, Update, keys};
use outercore_io::{FileLock, RealDisk};
use outercore_live::Committer;
use outercore_store::check::{CheckOptions, Problem, check};
use outercore_store::dataset::DataSet;
use outercore_testkit::LiveModel;

/// A data set with a log of one segment, which each input replaces.
struct Place {
    parent: tempfile::TempDir,
    root: PathBuf,
    segment: Segment,
    /// The original segment, without records.
    header: Vec<u8>,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

impl Place {
    fn new() -> Self {
        let parent = match Path::new("/dev/shm").is_dir() {
            true => tempfile::tempdir_in("/dev/shm").unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let root = parent.path().join("graph");
        std::fs::create_dir(&root).unwrap();
        LiveModel::random(12, 30, false, 1).write(&root);
        let lock = FileLock::try_directory(&root).unwrap().unwrap();
        drop(Committer::open(&RealDisk, &root, &lock).unwrap());
        let header = std::fs::read(log(&root)).unwrap();
        let segment = Segment::decode(header.first_chunk::<SEGMENT_HEADER>().unwrap()).unwrap();
        Self { parent, root, segment, header }
    }
}

fn log(root: &Path) -> PathBuf {
    root.join(LIVE_DIRECTORY).join(format!("{:020}.log", 1))
}

/// An input is a list of parts. Each part has a byte for its kind, a length in two bytes, and
/// content. The content is either updates, which become a record with the right checksum and
/// number, or raw bytes.
///
/// The log opens or is rejected. A log that opens must accept another update, fold into arrays that
/// a check finds sound, and open again at the same number.
pub fn recovery(bytes: &[u8]) {
    PLACE.with_borrow_mut(|place| {
        let place = place.get_or_insert_with(Place::new);
        let template = place.root.clone();
        let root = place.parent.path().join("used");
        copy(&template, &root);
        std::fs::write(log(&root), place.log_of(bytes)).unwrap();
        used(&root);
        std::fs::remove_dir_all(&root).unwrap();
    });
}

impl Place {
    fn log_of(&self, mut bytes: &[u8]) -> Vec<u8> {
        let mut log = self.header.clone();
        let mut lsn = 1;
        while let Some((&[kind, low, high], rest)) = bytes.split_first_chunk::<3>() {
            let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
            let (part, after) = rest.split_at(len);
            bytes = after;
            let mut updates = Vec::new();
            let mut left = part;
            while !left.is_empty() {
                match Update::decode(&mut left) {
                    Ok(update) => updates.push(update),
                    Err(_) => break,
                }
            }
            if kind & 1 == 1 {
                log.extend(part);
            } else if !updates.is_empty() {
                let record = Record { lsn, durable: lsn - 1, key: None, updates };
                record.encode(&self.segment, &mut log).unwrap();
                lsn += 1;
            }
        }
        log
    }
}

fn used(root: &Path) {
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let mut committer = match Committer::open(&RealDisk, root, &lock) {
        Ok(committer) => committer,
        Err(error) => return told(&error),
    };
    let lsn = committer.snapshot().delta.lsn();
    let edge = Update::AddEdge { source: 0, target: 1, rows: Default::default() };
    let acknowledged = committer.commit(vec![vec![edge]]).into_iter().all(|done| match done {
        Ok(ack) => ack.lsn == lsn + 1,
        Err(error) => {
            told(&error);
            false
        }
    });
    let lsn = lsn + u64::from(acknowledged);
    committer.fold(&lock, &|| Ok(())).expect("what opened can be folded");
    drop((committer, lock));
    let data_set = DataSet::open(root).expect("what was folded");
    assert_eq!(data_set.manifest().lsn(), lsn);
    let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    // Labels are checked before a record is written, not when it is read.
    let is_label = |problem: &&Problem| problem.array.as_deref() == Some(keys::LABELS);
    let problems: Vec<_> = report.problems.iter().filter(|one| !is_label(one)).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let again = Committer::open(&RealDisk, root, &lock).expect("what was folded");
    assert_eq!(again.snapshot().delta.lsn(), lsn);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        match from.is_dir() {
            true => copy(&from, &to),
            // `fs::copy` ends early if a signal interrupts it, such as the timer of a fuzzer.
            false => std::fs::write(&to, std::fs::read(&from).unwrap()).unwrap(),
        }
    }
}

/// Bytes from outside never cause an internal error, and the error always has a message.
fn told(error: &Error) {
    assert!(error.kind() != ErrorKind::Internal, "internal error: {error}");
    assert!(!error.message().trim().is_empty(), "an error without a message");
}

/// Random updates in records, with and without other bytes after them.
#[allow(dead_code, reason = "the fuzzer has inputs")]
pub fn first_inputs() -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    for seed in 1..4u8 {
        let mut graph = LiveModel::random(12, 30, false, 1);
        let mut draws = Stream::new(seed.into(), 0).uniform(0, 0, 0);
        let mut input = Vec::new();
        for _ in 0..4 {
            let mut part = Vec::new();
            for _ in 0..2 {
                let update = graph.draw(&mut draws);
                if graph.apply(&update) {
                    update.encode(&mut part).unwrap();
                }
            }
            input.push(0);
            input.extend((part.len() as u16).to_le_bytes());
            input.extend(part);
        }
        inputs.push((format!("updates-{seed}"), input.clone()));
        input.extend([1, 5, 0, b'O', b'C', b'R', 1, 0]);
        inputs.push((format!("torn-{seed}"), input));
    }
    inputs
}
