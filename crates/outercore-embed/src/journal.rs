//! What a commit makes true at once: which copies count, what is resident, and how far training
//! has come.

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
/// Versions that can be read. The first one knows of no walks: its epochs have one. The second one
/// knows of no turns, the third one of no groups.
const READABLE: [u32; 4] = [1, 2, 3, VERSION];
const JOURNAL: &str = "journal.json";
const ORDER: &str = "order.json";
const DAMAGED: &str = "go on from a copy of the directory, or train again";

/// How far training has come: the states before `state` of `epoch` are trained. The states of all
/// walks of an epoch are counted through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Buffer state of the epoch that comes next, from 0.
    pub state: usize,
}

/// `journal.json`: replaced atomically by every commit, and the only truth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Journal {
    pub version: u32,
    /// Number of this commit.
    pub generation: u64,
    pub layout: TableLayout,
    /// Checksum of `order.json`.
    pub order: String,
    /// How epochs walk through it.
    #[serde(default)]
    pub walks: WalkConfig,
    pub position: Position,
    /// Which partition lies in which slot, so that it lies there again.
    pub slots: Vec<Option<usize>>,
    pub partitions: Vec<PartitionRecord>,
    pub resident: ResidentRecord,
}

/// The copy of a partition that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionRecord {
    pub copy: CopyIndex,
    /// The commit that it was written for.
    pub generation: u64,
    pub sums: Sums,
}

/// The file with what is in memory all the time.
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

    /// What was resident at the commit `generation`, which this is of.
    ///
    /// # Errors
    /// `Corrupt`: it is not what was committed.
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

    /// Whether `directory` holds a table. One whose creation was stopped is none.
    pub fn exists(directory: &Path) -> bool {
        directory.join(JOURNAL).exists()
    }

    /// The journal in `directory`.
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
        if !READABLE.contains(&found.version) {
            let text = format!("{}: version {}, expected {VERSION}", describe(), found.version);
            return Err(Error::new(ErrorKind::Version, text)
                .hint("go on with the release that wrote it, or train again"));
        }
        let journal: Self = serde_json::from_slice(&text).map_err(corrupt)?;
        let partitions = journal.layout.partitioning().partitions();
        // As many rows as a slot can have, so that no product of sizes is too large.
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

    /// Writes what is resident, then the journal that names it: before the journal is replaced
    /// the last commit counts, afterwards this one.
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

/// Commits alternate between two files, so that the last one's stays.
fn resident_path(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("resident-{}.bin", generation % 2))
}

/// Writes the order that the table is trained in; returns its checksum.
///
/// It is kept because a later release may find a better one, and then would not go on exactly.
pub(crate) fn save_order(disk: &dyn Disk, directory: &Path, order: &Order) -> Result<String> {
    let text = serde_json::to_vec(order)
        .map_err(|error| Error::internal(format!("order of partitions: {error}")))?;
    disk.replace(&directory.join(ORDER), &text)?;
    Ok(Checksum::of(&text))
}

/// The order that [`save_order`] wrote.
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
