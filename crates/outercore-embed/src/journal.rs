//! The journal of a table: a commit atomically records the current copies, the resident state and
//! the position.

use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::Checksum;
use outercore_io::Disk;
use serde::{Deserialize, Serialize};

use crate::layout::TableLayout;
use crate::order::{Order, check};
use crate::partition::{CopyIndex, Sums};
use crate::walk::WalkConfig;

pub(crate) const VERSION: u32 = 4;
const JOURNAL: &str = "journal.json";
const ORDER: &str = "order.json";
const DAMAGED: &str = "go on from a copy of the directory, or train again";

/// Position of the training: the states before `state` of `epoch` are trained. States are numbered
/// through all walks of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Next buffer state of the epoch, from 0.
    pub state: usize,
}

/// `journal.json`: replaced atomically by every commit. It alone defines the state of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    pub version: u32,
    /// Number of this commit.
    pub generation: u64,
    pub layout: TableLayout,
    /// Checksum of `order.json`.
    pub order: String,
    /// Configuration of the walks through the order.
    pub walks: WalkConfig,
    pub position: Position,
    /// The partition in each slot, so that a later run puts it there again.
    pub slots: Vec<Option<usize>>,
    pub partitions: Vec<PartitionRecord>,
    pub resident: ResidentRecord,
}

/// The current copy of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionRecord {
    pub copy: CopyIndex,
    /// The commit for which it was written.
    pub generation: u64,
    pub sums: Sums,
}

/// The file with the caller's resident state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResidentRecord {
    pub bytes: u64,
    pub checksum: String,
}

impl ResidentRecord {
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, checksum: Checksum::of(bytes) }
    }

    /// The resident state of the commit `generation`, to which this record belongs.
    ///
    /// # Errors
    /// `Corrupt`: it differs from the committed state.
    pub fn load(&self, directory: &Path, generation: u64) -> Result<Vec<u8>> {
        let path = resident_path(directory, generation);
        let describe = || format!("resident state `{}`", path.display());
        let altered = |found: String| {
            let text = format!("{}: found {found}, expected {self:?}", describe());
            Error::corrupt(text).hint(DAMAGED)
        };
        let len = std::fs::metadata(&path).with_context(describe)?.len();
        if len != self.bytes {
            return Err(altered(format!("{len} bytes")));
        }
        let bytes = std::fs::read(&path).with_context(describe)?;
        let found = Self::of(&bytes);
        if found == *self { Ok(bytes) } else { Err(altered(format!("{found:?}"))) }
    }
}

impl Journal {
    /// The journal of a table before its first step.
    pub fn first(
        layout: TableLayout,
        order: String,
        walks: WalkConfig,
        slots: usize,
        sums: Vec<Sums>,
        resident: &[u8],
    ) -> Self {
        let record = |sums| PartitionRecord { copy: 0, generation: 0, sums };
        Self {
            version: VERSION,
            generation: 0,
            layout,
            order,
            walks,
            position: Position::default(),
            slots: vec![None; slots],
            partitions: sums.into_iter().map(record).collect(),
            resident: ResidentRecord::of(resident),
        }
    }

    /// Whether `directory` holds a table. An interrupted creation does not count.
    pub fn exists(directory: &Path) -> bool {
        directory.join(JOURNAL).exists()
    }

    /// Reads the journal in `directory`.
    ///
    /// # Errors
    /// `NotFound`; `Version`; `Corrupt`: it cannot be read or contradicts itself.
    pub fn load(directory: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let path = directory.join(JOURNAL);
        let describe = || format!("journal of partitions `{}`", path.display());
        let text = std::fs::read(&path).with_context(describe)?;
        let corrupt = |error| Error::corrupt(format!("{}: {error}", describe())).hint(DAMAGED);
        let found: Versioned = serde_json::from_slice(&text).map_err(corrupt)?;
        if found.version != VERSION {
            let text = format!("{}: version {}, expected {VERSION}", describe(), found.version);
            return Err(Error::new(ErrorKind::Version, text)
                .hint("go on with the release that wrote it, or train again"));
        }
        let journal: Self = serde_json::from_slice(&text).map_err(corrupt)?;
        let partitions = journal.layout.partitioning().partitions();
        // Limit the rows of a slot, so that no product of sizes overflows.
        let rows = journal.layout.partitioning().most_rows();
        let sound = rows <= u64::from(u32::MAX)
            && journal.partitions.len() == partitions
            && journal.walks.validate().is_ok()
            && journal.partitions.iter().all(|record| record.copy < 2)
            && journal.slots.iter().flatten().all(|&partition| partition < partitions);
        if !sound {
            let text = format!("{}: contradicts its own {partitions} partitions", describe());
            return Err(Error::corrupt(text).hint(DAMAGED));
        }
        Ok(journal)
    }

    /// Writes the resident state, then the journal that names it. Until the journal is replaced,
    /// the previous commit is valid; after that, this one is.
    pub fn commit(&self, disk: &dyn Disk, directory: &Path, resident: &[u8]) -> Result<()> {
        let mut file = disk.create(&resident_path(directory, self.generation))?;
        file.write_all(resident)?;
        file.sync()?;
        drop(file);
        disk.sync_dir(directory)?;
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("journal of partitions: {error}")))?;
        disk.replace(&directory.join(JOURNAL), &text)
    }
}

/// Commits alternate between two files, so that the file of the last commit stays.
fn resident_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("resident-{}.bin", generation % 2))
}

/// Writes the order of the table; returns its checksum.
///
/// It is stored because a later release may find a better order, and then a resumed run would not
/// continue exactly.
pub(crate) fn save_order(disk: &dyn Disk, directory: &Path, order: &Order) -> Result<String> {
    let text = serde_json::to_vec(order)
        .map_err(|error| Error::internal(format!("order of partitions: {error}")))?;
    disk.replace(&directory.join(ORDER), &text)?;
    Ok(Checksum::of(&text))
}

/// Reads the order from [`save_order`].
pub(crate) fn load_order(directory: &Path, journal: &Journal) -> Result<Order> {
    let path = directory.join(ORDER);
    let describe = || format!("order of partitions `{}`", path.display());
    let text = std::fs::read(&path).with_context(describe)?;
    let found = Checksum::of(&text);
    if found != journal.order {
        let text = format!("{}: found {found}, expected {}", describe(), journal.order);
        return Err(Error::corrupt(text).hint(DAMAGED));
    }
    let order: Order = serde_json::from_slice(&text)
        .map_err(|error| Error::corrupt(format!("{}: {error}", describe())).hint(DAMAGED))?;
    check(&order).with_context(describe)?;
    Ok(order)
}
