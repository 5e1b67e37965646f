//! The file of a table: two contiguous copies of every partition.
//!
//! One copy of a partition belongs to the last commit; the other receives later writes. Only the
//! journal says which is which, so a crash during any write keeps all copies that the journal
//! names.

use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Context, Error, ErrorKind, ReadCounters, Result};
use outercore_format::Checksum;
use outercore_io::{Arena, Disk, Engine, FileId, Lease, WriteFile};
use serde::{Deserialize, Serialize};

use crate::layout::{PAGE, TableLayout};

/// Name of the file within its directory.
pub(crate) const FILE: &str = "partitions.bin";
/// First bytes of the file.
const MAGIC: &[u8] = b"outercore partitions\n";
const VERSION: u32 = 1;

/// Which of the two copies of a partition.
pub(crate) type CopyIndex = u8;

/// Checksums of a copy of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sums {
    pub embeddings: String,
    pub state: String,
}

impl Sums {
    fn of(slot: &Slot) -> Self {
        Self {
            embeddings: Checksum::of(slot.embedding_bytes()),
            state: Checksum::of(slot.state_bytes()),
        }
    }
}

/// Memory of one partition, owned by its holder.
#[derive(Debug)]
pub(crate) struct Slot {
    embeddings: Lease,
    /// `None` if the optimiser has no state.
    state: Option<Lease>,
}

impl Slot {
    fn embedding_bytes(&self) -> &[u8] {
        &self.embeddings
    }

    fn state_bytes(&self) -> &[u8] {
        self.state.as_deref().unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        (&mut self.embeddings, self.state.as_deref_mut().unwrap_or_default())
    }

    /// Embeddings of all rows, padding included.
    pub fn embeddings(&self) -> &[f32] {
        bytemuck::cast_slice(self.embedding_bytes())
    }

    /// Embeddings and state of all rows, padding included.
    pub fn numbers_mut(&mut self) -> (&mut [f32], &mut [f32]) {
        let state = self.state.as_deref_mut().map(bytemuck::cast_slice_mut);
        (bytemuck::cast_slice_mut(&mut self.embeddings), state.unwrap_or_default())
    }
}

/// Memory of several partitions: all embeddings contiguous, and all states contiguous.
#[derive(Clone, Debug)]
pub(crate) struct SlotMemory {
    pub embeddings: Arena,
    pub state: Option<Arena>,
}

impl SlotMemory {
    /// Addresses of the embeddings and of the state; the latter is empty if there is no state.
    pub fn address_ranges(&self) -> [std::ops::Range<*const u8>; 2] {
        let nothing = std::ptr::null();
        let state = self.state.as_ref();
        [self.embeddings.address_range(), state.map_or(nothing..nothing, Arena::address_range)]
    }

    /// Allocates the memory; returns it and its slots, in the order of their addresses.
    pub fn new(layout: &TableLayout, slots: usize) -> Result<(Self, Vec<Slot>)> {
        let (embeddings, state) = (layout.embedding_bytes(), layout.state_bytes());
        let arena =
            |each: Bytes| Arena::new(Bytes(each.0 * slots as u64)).context("memory for partitions");
        let memory = Self {
            embeddings: arena(embeddings)?,
            state: if state.0 > 0 { Some(arena(state)?) } else { None },
        };
        let full = || Error::internal("memory for partitions: a slot does not fit");
        let slots = (0..slots).map(|_| {
            let of_state = memory.state.as_ref().map(|arena| arena.lease(state.as_usize()));
            Ok(Slot {
                embeddings: memory.embeddings.lease(embeddings.as_usize()).ok_or_else(full)?,
                state: of_state.map(|lease| lease.ok_or_else(full)).transpose()?,
            })
        });
        let slots = slots.collect::<Result<Vec<_>>>()?;
        Ok((memory, slots))
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u32,
    layout: TableLayout,
}

impl Header {
    fn encode(layout: &TableLayout) -> Result<Vec<u8>> {
        let header = Self { version: VERSION, layout: *layout };
        let text = serde_json::to_vec(&header)
            .map_err(|error| Error::internal(format!("header of partitions: {error}")))?;
        let mut page = [MAGIC, &text].concat();
        page.resize(PAGE, b' ');
        page[PAGE - 1] = b'\n';
        Ok(page)
    }

    fn check(page: &[u8], layout: &TableLayout) -> Result<()> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let text = page
            .strip_prefix(MAGIC)
            .ok_or_else(|| Error::corrupt("not a file of partitions, by its first bytes"))?;
        let unreadable = |error| Error::corrupt(format!("header: {error}"));
        let found: Versioned = serde_json::from_slice(text).map_err(unreadable)?;
        if found.version != VERSION {
            let text = format!("version {}, expected {VERSION}", found.version);
            return Err(Error::new(ErrorKind::Version, text)
                .hint("read it with the release that wrote it, or train again"));
        }
        let found: Self = serde_json::from_slice(text).map_err(unreadable)?;
        if found.layout != *layout {
            return Err(Error::corrupt(format!(
                "header says {:?}, but the journal beside it {layout:?}",
                found.layout
            )));
        }
        Ok(())
    }
}

/// Reads and writes the copies of partitions.
pub(crate) struct PartitionFile {
    path: PathBuf,
    layout: TableLayout,
    file: Box<dyn WriteFile>,
    engine: Engine,
    id: FileId,
    /// Sequential reads of [`PartitionFile::load_rows`] in progress.
    pass: Option<Pass>,
}

/// A sequential read of a copy's embeddings, from its first row.
struct Pass {
    partition: usize,
    copy: CopyIndex,
    /// The next row in sequence.
    next: u64,
    checksum: Checksum,
    expected: String,
}

impl PartitionFile {
    /// Creates the file. `fill` sets the values of every partition, in its first copy.
    ///
    /// `slot` is working memory. `fill` receives the embeddings and the state of a partition, all
    /// zeros, without padding rows.
    pub fn create(
        disk: &dyn Disk,
        directory: &Path,
        layout: &TableLayout,
        slot: &mut Slot,
        fill: Fill<'_>,
    ) -> Result<Vec<Sums>> {
        let path = directory.join(FILE);
        let mut file = disk.create(&path)?;
        file.set_len(place(layout, layout.partitioning().partitions(), 0))?;
        file.write_at(0, &Header::encode(layout)?)?;
        let mut sums = Vec::new();
        for partition in 0..layout.partitioning().partitions() {
            let rows = layout.partitioning().rows(partition) as usize;
            let (embeddings, state) = slot.numbers_mut();
            embeddings.fill(0.0);
            state.fill(0.0);
            let embeddings = &mut embeddings[..rows * layout.dim()];
            fill(partition, embeddings, &mut state[..rows * layout.state_width()])
                .with_context(|| format!("partition {partition}"))?;
            sums.push(write(&mut *file, layout, partition, 0, slot)?);
        }
        file.sync()?;
        Ok(sums)
    }

    /// Opens a file from [`PartitionFile::create`].
    pub fn open(
        disk: &dyn Disk,
        directory: &Path,
        layout: &TableLayout,
        mut engine: Engine,
    ) -> Result<Self> {
        let path = directory.join(FILE);
        let describe = || format!("partitions `{}`", path.display());
        let id = engine.register(&path)?;
        let expected = place(layout, layout.partitioning().partitions(), 0);
        let found = engine.file_len(id);
        if found != expected {
            let text = format!("{}: file has {found} bytes, expected {expected}", describe());
            return Err(Error::corrupt(text).hint("the copy was cut short; copy it again"));
        }
        let mut page = vec![0; PAGE];
        engine.read_into(id, 0, &mut page)?;
        Header::check(&page, layout).with_context(describe)?;
        let file = disk.open(&path)?;
        Ok(Self { path, layout: *layout, file, engine, id, pass: None })
    }

    /// Writes a partition. Call [`PartitionFile::sync`] soon: data in the page cache takes memory
    /// outside the budget.
    pub fn store(&mut self, partition: usize, copy: CopyIndex, slot: &Slot) -> Result<Sums> {
        write(&mut *self.file, &self.layout, partition, copy, slot)
            .with_context(|| format!("write back partition {partition}"))
    }

    /// Makes stored partitions durable.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync().with_context(|| "write back partitions".to_owned())
    }

    /// Reads a partition and compares it with its checksums.
    pub fn load(
        &mut self,
        partition: usize,
        copy: CopyIndex,
        sums: &Sums,
        slot: &mut Slot,
    ) -> Result<ReadCounters> {
        let start = place(&self.layout, partition, copy);
        let (embeddings, state) = slot.bytes_mut();
        let between = start + embeddings.len() as u64;
        let mut read = self.engine.read_into(self.id, start, embeddings)?;
        if !state.is_empty() {
            read += self.engine.read_into(self.id, between, state)?;
        }
        let found = Sums::of(slot);
        for (what, found, expected, offset) in [
            ("embeddings", &found.embeddings, &sums.embeddings, start),
            ("optimiser state", &found.state, &sums.state, between),
        ] {
            if found != expected {
                return Err(self.corrupt(partition, what, offset, found, expected));
            }
        }
        Ok(read)
    }

    /// Reads embeddings only, starting at `first_row`. If all rows of a partition are read in
    /// order, up to the row of its last node, they are compared with its checksum. Other reads
    /// cannot be checked.
    pub fn load_rows(
        &mut self,
        partition: usize,
        copy: CopyIndex,
        sums: &Sums,
        first_row: u64,
        rows: &mut [f32],
    ) -> Result<ReadCounters> {
        let skip = first_row * self.layout.dim() as u64 * 4;
        let start = place(&self.layout, partition, copy);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(rows);
        let mut read = self.engine.read_into(self.id, start + skip, bytes)?;
        let begun = self.pass.take().filter(|pass| {
            (pass.partition, pass.copy, pass.next) == (partition, copy, first_row)
                && pass.expected == sums.embeddings
        });
        let first = || Pass {
            partition,
            copy,
            next: 0,
            checksum: Checksum::new(),
            expected: sums.embeddings.clone(),
        };
        let Some(mut pass) = (if first_row == 0 { Some(first()) } else { begun }) else {
            return Ok(read);
        };
        pass.checksum.update(bytes);
        pass.next += (bytes.len() / (4 * self.layout.dim())) as u64;
        if pass.next < self.layout.partitioning().rows(partition) {
            self.pass = Some(pass);
            return Ok(read);
        }
        // The checksum also covers the padding rows.
        let missing = self.layout.slot_rows().saturating_sub(pass.next);
        let mut rest = vec![0; missing as usize * 4 * self.layout.dim()];
        let end = start + self.layout.embedding_bytes().0;
        read += self.engine.read_into(self.id, end - rest.len() as u64, &mut rest)?;
        pass.checksum.update(&rest);
        let found = pass.checksum.finish();
        if found != pass.expected {
            return Err(self.corrupt(partition, "embeddings", start, &found, &pass.expected));
        }
        Ok(read)
    }

    fn corrupt(
        &self,
        partition: usize,
        what: &str,
        offset: u64,
        found: &str,
        expected: &str,
    ) -> Error {
        Error::corrupt(format!(
            "partitions `{}`: {what} of partition {partition} at byte {offset}: found {found}, \
             expected {expected}",
            self.path.display()
        ))
        .hint("the file was changed or the device lost bytes; go on from a copy, or train again")
    }
}

/// Sets the initial values of a partition: number, embeddings, state.
pub type Fill<'a> = &'a mut dyn FnMut(usize, &mut [f32], &mut [f32]) -> Result<()>;

/// Start of a copy. For the partition after the last: end of the file.
fn place(layout: &TableLayout, partition: usize, copy: CopyIndex) -> u64 {
    PAGE as u64 + (2 * partition as u64 + u64::from(copy)) * layout.partition_bytes().0
}

fn write(
    file: &mut dyn WriteFile,
    layout: &TableLayout,
    partition: usize,
    copy: CopyIndex,
    slot: &Slot,
) -> Result<Sums> {
    let start = place(layout, partition, copy);
    let (embeddings, state) = (slot.embedding_bytes(), slot.state_bytes());
    file.write_at(start, embeddings)?;
    if !state.is_empty() {
        file.write_at(start + embeddings.len() as u64, state)?;
    }
    Ok(Sums::of(slot))
}

#[cfg(test)]
mod tests {
    use outercore_io::{EngineConfig, RealDisk};

    use super::*;
    use crate::layout::Partitioning;

    fn layout(state_width: usize) -> TableLayout {
        TableLayout::new(Partitioning::new(103, 4, 1).unwrap(), 5, state_width).unwrap()
    }

    fn engine() -> Engine {
        let staging = Bytes::kib(256);
        Engine::open(EngineConfig { staging, depth: 4, ..EngineConfig::default() }).unwrap()
    }

    /// Creates a file in which every value is the number of its partition; returns its checksums.
    fn filled(directory: &Path, layout: &TableLayout) -> (Vec<Slot>, Vec<Sums>) {
        let (_, mut slots) = SlotMemory::new(layout, 2).unwrap();
        let mut fill = |partition: usize, embeddings: &mut [f32], state: &mut [f32]| {
            assert_eq!(embeddings.len() as u64, layout.partitioning().rows(partition) * 5);
            embeddings.fill(partition as f32);
            state.fill(-(partition as f32));
            Ok(())
        };
        let sums = PartitionFile::create(&RealDisk, directory, layout, &mut slots[0], &mut fill);
        (slots, sums.unwrap())
    }

    #[test]
    fn slots_lie_side_by_side() {
        let layout = layout(2);
        let (memory, slots) = SlotMemory::new(&layout, 3).unwrap();
        for (index, slot) in slots.iter().enumerate() {
            assert_eq!(slot.embeddings.offset() as u64, index as u64 * layout.embedding_bytes().0);
            let state = slot.state.as_ref().unwrap();
            assert_eq!(state.offset() as u64, index as u64 * layout.state_bytes().0);
        }
        assert_eq!(memory.embeddings.free_bytes(), Bytes(0));
    }

    #[test]
    fn a_copy_that_is_written_leaves_the_other_as_it_was() {
        for state_width in [0, 3] {
            let directory = tempfile::tempdir().unwrap();
            let layout = layout(state_width);
            let (mut slots, sums) = filled(directory.path(), &layout);
            let mut file =
                PartitionFile::open(&RealDisk, directory.path(), &layout, engine()).unwrap();
            file.load(2, 0, &sums[2], &mut slots[0]).unwrap();
            assert_eq!(slots[0].embeddings()[0], 2.0);
            slots[0].numbers_mut().0[7] = 70.0;
            let newer = file.store(2, 1, &slots[0]).unwrap();
            let read = file.load(2, 1, &newer, &mut slots[1]).unwrap();
            assert_eq!(slots[1].embeddings()[7], 70.0);
            assert_eq!(read.useful_bytes, layout.partition_bytes().0);
            file.load(2, 0, &sums[2], &mut slots[1]).unwrap();
            assert_eq!(slots[1].embeddings()[7], 2.0);
            let mut rows = [0.0; 10];
            file.load_rows(2, 1, &newer, 1, &mut rows).unwrap();
            assert_eq!((rows[1], rows[2], rows[3]), (2.0, 70.0, 2.0));
        }
    }

    #[test]
    fn a_changed_byte_and_a_file_cut_short_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let layout = layout(1);
        let (mut slots, sums) = filled(directory.path(), &layout);
        let path = directory.path().join(FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[place(&layout, 3, 0) as usize + 9] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let open = || PartitionFile::open(&RealDisk, directory.path(), &layout, engine());
        let mut file = open().unwrap();
        file.load(2, 0, &sums[2], &mut slots[0]).unwrap();
        let error = file.load(3, 0, &sums[3], &mut slots[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("embeddings of partition 3 at byte"), "{error}");
        // Reads in pieces detect the damage, too, for any size of the first piece. Reads out of
        // order cannot detect it.
        let rows = layout.partitioning().rows(3);
        let all = layout.slot_rows();
        let piece = |file: &mut PartitionFile, first: u64, stop: u64| {
            let mut rows = vec![0.0; (stop - first) as usize * 5];
            file.load_rows(3, 0, &sums[3], first, &mut rows)
        };
        for end in [rows, all] {
            for cut in 1..rows {
                piece(&mut file, 0, cut).unwrap();
                let error = piece(&mut file, cut, end).unwrap_err();
                assert!(error.to_string().contains("partition 3 at byte"), "{error}");
                piece(&mut file, cut, end).unwrap();
            }
            piece(&mut file, 0, end).unwrap_err();
        }
        bytes[place(&layout, 3, 0) as usize + 9] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        piece(&mut file, 0, 4).unwrap();
        piece(&mut file, 4, rows).unwrap();
        bytes.pop();
        std::fs::write(&path, &bytes).unwrap();
        assert!(open().err().unwrap().to_string().contains("cut short"));
    }

    #[test]
    fn a_file_of_another_shape_version_or_kind_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let layout = layout(1);
        filled(directory.path(), &layout);
        let path = directory.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        let kind_after = |old: &str, new: &str| {
            let text = String::from_utf8(whole[..PAGE].to_vec()).unwrap().replace(old, new);
            std::fs::write(&path, [text.as_bytes(), &whole[PAGE..]].concat()).unwrap();
            let opened = PartitionFile::open(&RealDisk, directory.path(), &layout, engine());
            opened.err().map(|error| error.kind())
        };
        assert_eq!(kind_after("no such text", ""), None);
        assert_eq!(kind_after("\"version\":1", "\"version\":2"), Some(ErrorKind::Version));
        assert_eq!(kind_after("\"dim\":5", "\"dim\":6"), Some(ErrorKind::Corrupt));
        assert_eq!(kind_after("outercore", "otherwise"), Some(ErrorKind::Corrupt));
    }
}
