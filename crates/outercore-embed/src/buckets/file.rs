//! The file of buckets: its header and its table.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::Checksum;
use outercore_io::WriteFile;
use serde::{Deserialize, Serialize};

use crate::layout::{PAGE, Partitioning};

const MAGIC: &[u8] = b"outercore buckets\n";

const VERSION: u32 = 1;

/// Source of a file of buckets. Other triples or another partitioning give other buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The partitioning of the nodes.
    pub partitioning: Partitioning,
    /// Number of relations; at most 2^32.
    pub relations: u64,
    /// Identifies the triples, for example by the checksum of their array.
    pub identity: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub version: u32,
    pub source: Source,
    pub triples: u64,
    pub weighted: bool,
    /// Checksum of the table of buckets.
    pub table: String,
}

/// One bucket in the table: 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Index of its first triple in the file.
    pub start: u64,
    pub count: u64,
    /// Checksum of its triples, by [`mix`].
    pub sum: u64,
}

/// Offsets of the parts of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub triples: u64,
    pub weights: u64,
    pub end: u64,
    pub weighted: bool,
}

impl Header {
    pub(super) fn new(source: &Source, triples: u64, weighted: bool) -> Self {
        Self { version: VERSION, source: source.clone(), triples, weighted, table: String::new() }
    }

    pub(super) fn same_source(&self, other: &Self) -> bool {
        Self { table: String::new(), ..self.clone() }
            == Self { table: String::new(), ..other.clone() }
    }

    pub(super) fn buckets(&self) -> usize {
        self.source.partitioning.partitions().pow(2)
    }

    pub(super) fn places(&self) -> Places {
        let page = PAGE as u64;
        let triples = page + (24 * self.buckets() as u64).next_multiple_of(page);
        let after = triples + 12 * self.triples;
        let weights = after.next_multiple_of(page);
        let end = if self.weighted { weights + 4 * self.triples } else { after };
        Places { triples, weights, end, weighted: self.weighted }
    }

    pub(super) fn write(&mut self, file: &mut dyn WriteFile, entries: &[Entry]) -> Result<()> {
        let words: Vec<u64> = entries.iter().flat_map(|e| [e.start, e.count, e.sum]).collect();
        let table: &[u8] = bytemuck::cast_slice(&words);
        self.table = Checksum::of(table);
        file.write_at(PAGE as u64, table)?;
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("header of buckets: {error}")))?;
        let mut page = [MAGIC, &text].concat();
        if page.len() > PAGE {
            return Err(Error::invalid(format!(
                "the name of the triples has {} bytes: expected fewer than 3,000",
                self.source.identity.len()
            )));
        }
        page.resize(PAGE, b' ');
        file.write_at(0, &page)
    }

    /// Reads the header and the table of the file at `path`.
    pub(super) fn load(path: &Path) -> Result<(Self, Vec<Entry>)> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let mut file = File::open(path)?;
        let mut page = vec![0; PAGE];
        file.read_exact(&mut page)?;
        let text = page
            .strip_prefix(MAGIC)
            .ok_or_else(|| Error::corrupt("not a file of buckets, by its first bytes"))?;
        let unreadable = |error| Error::corrupt(format!("header: {error}"));
        let found: Versioned = serde_json::from_slice(text).map_err(unreadable)?;
        if found.version != VERSION {
            let text = format!("version {}, expected {VERSION}", found.version);
            return Err(Error::new(ErrorKind::Version, text));
        }
        let header: Self = serde_json::from_slice(text).map_err(unreadable)?;
        let bytes = file.metadata()?.len();
        if header.triples > bytes / 12 {
            let text = format!("{} triples in a file of {bytes} bytes", header.triples);
            return Err(Error::corrupt(text));
        }
        let mut words = vec![0u64; 3 * header.buckets()];
        file.read_exact(bytemuck::cast_slice_mut(&mut words))?;
        let sum = Checksum::of(bytemuck::cast_slice(&words));
        if sum != header.table {
            let text = format!("table of buckets: found {sum}, expected {}", header.table);
            return Err(Error::corrupt(text));
        }
        let expected = header.places().end;
        if bytes != expected {
            return Err(Error::corrupt(format!("file has {bytes} bytes, expected {expected}")));
        }
        let rows = words.as_chunks::<3>().0.iter();
        let entries = rows.map(|&[start, count, sum]| Entry { start, count, sum }).collect();
        Ok((header, entries))
    }
}

/// Adds a triple to a running checksum. Each step is a bijection of the sum and of every word, so a
/// single changed triple always changes the result.
pub(super) fn mix(sum: u64, [head, relation, tail]: [u32; 3], weight: Option<f32>) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let words = [
        u64::from(head) | u64::from(relation) << 32,
        u64::from(tail) | u64::from(weight.unwrap_or(0.0).to_bits()) << 32,
    ];
    words.iter().fold(sum, |sum, word| (sum ^ word).wrapping_mul(ODD).rotate_left(29))
}
