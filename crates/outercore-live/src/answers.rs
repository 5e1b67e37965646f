//! Remembers the answers to requests with a key, so that a client may repeat a request.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, Result};
use outercore_format::Checksum;
use outercore_format::log::Key;
use outercore_io::Disk;
use outercore_store::delta::Applied;

use crate::log;

/// Most answers that are remembered; the oldest are forgotten first.
pub const MOST_ANSWERS: usize = 4096;

/// Most results of updates in all remembered answers together.
const MOST_RESULTS: usize = 1 << 16;

/// Name of the file in the directory of the log.
const FILE: &str = "answers";

const MAGIC: [u8; 8] = *b"OCANS\0\0\x01";

const EDGE: u8 = 1;
const NODE: u8 = 2;
const REMOVED: u8 = 3;
const ROWS: u8 = 4;
const GRAPH: u8 = 5;

/// Acknowledgement of a durable record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Log sequence number of the record: a read that requires at least this number sees the
    /// record.
    pub lsn: u64,
    /// The result of each of its updates.
    pub applied: Vec<Applied>,
}

/// The answers to the most recent requests with a key.
///
/// Answers of records in the log are restored from the log. Before records leave the log, their
/// answers are written to a file next to it.
#[derive(Default)]
pub struct Answers {
    by_key: HashMap<Key, Ack>,
    /// Oldest first.
    order: VecDeque<Key>,
    /// Number of update results in all answers.
    results: usize,
    /// Whether the file lacks some of the answers.
    is_unsaved: bool,
}

impl Answers {
    /// Reads the answers from the file of the data set in `root`, whose log has this id; empty
    /// without a file.
    ///
    /// # Errors
    /// `Corrupt`: a damaged file. Failed reads.
    pub fn read(root: &Path, id: [u8; 16]) -> Result<Self> {
        let path = path(root);
        let context = || format!("answers to requests with a key `{}`", path.display());
        match std::fs::read(&path) {
            Ok(bytes) => Self::decode(&bytes, id).with_context(context),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(context),
        }
    }

    /// The first answer to a request with this key.
    pub fn of(&self, key: &Key) -> Option<&Ack> {
        self.by_key.get(key)
    }

    /// Adds an answer.
    pub fn insert(&mut self, key: Key, ack: Ack) {
        self.results += ack.applied.len();
        self.is_unsaved = true;
        if let Some(before) = self.by_key.insert(key.clone(), ack) {
            // The answer was read from the file, and its record is also in the log.
            self.results -= before.applied.len();
            return;
        }
        self.order.push_back(key);
        // The newest answer stays, whatever its size.
        while self.order.len() > MOST_ANSWERS
            || (self.results > MOST_RESULTS && self.order.len() > 1)
        {
            let Some(oldest) = self.order.pop_front() else { return };
            self.results -= self.by_key.remove(&oldest).map_or(0, |ack| ack.applied.len());
        }
    }

    /// Forgets answers whose records are not in the log, because an operator has accepted the loss
    /// of its end. Returns whether there were any. In this case, the file must be written before
    /// another record gets one of these numbers.
    pub fn forget_after(&mut self, lsn: u64) -> bool {
        let before = self.order.len();
        let Self { by_key, order, results, is_unsaved } = self;
        order.retain(|key| {
            let is_there = by_key[key].lsn <= lsn;
            if !is_there {
                *results -= by_key.remove(key).map_or(0, |ack| ack.applied.len());
                *is_unsaved = true;
            }
            is_there
        });
        self.order.len() < before
    }

    /// Writes the answers to the file, unless it already has them.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn save(&mut self, disk: &dyn Disk, root: &Path, id: [u8; 16]) -> Result<()> {
        if self.is_unsaved {
            disk.replace(&path(root), &self.encode(id))?;
            self.is_unsaved = false;
        }
        Ok(())
    }

    fn encode(&self, id: [u8; 16]) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &id].concat();
        bytes.extend((self.order.len() as u32).to_le_bytes());
        for key in &self.order {
            let ack = &self.by_key[key];
            key.encode(&mut bytes);
            bytes.extend(ack.lsn.to_le_bytes());
            bytes.extend((ack.applied.len() as u32).to_le_bytes());
            ack.applied.iter().for_each(|applied| encode(*applied, &mut bytes));
        }
        let checksum = Checksum::of(&bytes);
        bytes.extend(checksum.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8], id: [u8; 16]) -> Result<Self> {
        let hint = format!(
            "restore it from a copy; or remove it: a request that is sent again may then change the \
             graph a second time (`{}/{FILE}`)",
            outercore_format::LIVE_DIRECTORY
        );
        let damaged = || Error::corrupt("damaged").hint(hint.clone());
        let (mut bytes, checksum) = bytes
            .split_at_checked(bytes.len().saturating_sub(Checksum::of(&[]).len()))
            .ok_or_else(damaged)?;
        if Checksum::of(bytes).as_bytes() != checksum || take(&mut bytes)? != MAGIC {
            return Err(damaged());
        }
        let mut answers = Self::default();
        if take(&mut bytes)? != id {
            // The file belongs to a data set that was previously in this place.
            return Ok(answers);
        }
        for _ in 0..u32::from_le_bytes(take(&mut bytes)?) {
            let key = Key::decode(&mut bytes)?;
            let lsn = number(&mut bytes)?;
            let results = u32::from_le_bytes(take(&mut bytes)?);
            let applied = (0..results).map(|_| decode(&mut bytes)).collect::<Result<_>>()?;
            answers.insert(key, Ack { lsn, applied });
        }
        answers.is_unsaved = false;
        Ok(answers)
    }
}

fn path(root: &Path) -> PathBuf {
    log::directory(root).join(FILE)
}

fn encode(applied: Applied, bytes: &mut Vec<u8>) {
    let (kind, numbers) = match applied {
        Applied::Edge(edge) => (EDGE, vec![edge]),
        Applied::Node(node) => (NODE, vec![node]),
        Applied::Removed(edges) => (REMOVED, vec![edges]),
        Applied::Rows => (ROWS, vec![]),
        Applied::Graph { graph, first_node } => (GRAPH, vec![graph, first_node]),
    };
    bytes.push(kind);
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
}

fn decode(bytes: &mut &[u8]) -> Result<Applied> {
    let [kind] = take(bytes)?;
    Ok(match kind {
        EDGE => Applied::Edge(number(bytes)?),
        NODE => Applied::Node(number(bytes)?),
        REMOVED => Applied::Removed(number(bytes)?),
        ROWS => Applied::Rows,
        GRAPH => Applied::Graph { graph: number(bytes)?, first_node: number(bytes)? },
        other => return Err(Error::corrupt(format!("result of kind {other}, expected 1 to 5"))),
    })
}

fn number(bytes: &mut &[u8]) -> Result<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
    let taken = bytes.split_off(..N).ok_or_else(|| Error::corrupt("answers that end too early"))?;
    Ok(taken.try_into().expect("N bytes"))
}
