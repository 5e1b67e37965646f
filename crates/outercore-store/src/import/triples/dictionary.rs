//! The names of a chunk of triples, and their sorted runs on disk.

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};

use outercore_core::Result;
use outercore_io::WriteFile;
use serde::{Deserialize, Serialize};

/// The order of names: shorter names first, then by bytes. Numbers without leading zeros are
/// ordered by value.
pub(crate) fn compare(left: &[u8], right: &[u8]) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

/// The distinct names of a chunk, numbered in order of appearance, in a fixed amount of memory.
pub(crate) struct Dictionary {
    bytes: Vec<u8>,
    /// The end of each name in `bytes`.
    ends: Vec<u32>,
    /// Hash table with open addressing: the upper half of a name's hash, and its number plus 1.
    slots: Vec<u64>,
    hasher: RandomState,
    byte_limit: usize,
    name_limit: usize,
}

/// A sorted run of names in the file of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// Offset of its first byte.
    pub offset: u64,
    pub bytes: u64,
    pub names: u64,
}

impl Dictionary {
    /// A dictionary of about `memory` bytes, half of them for the text of the names.
    pub fn new(memory: usize) -> Self {
        // Bytes per slot: 8 for the slot, and 4 for half of an end and half of a place in the
        // order, because at most every second slot is used.
        const SLOT: usize = 8 + 4;
        let slots = (memory / 2 / SLOT).max(8);
        let slots = (1usize << slots.ilog2()).min(1 << 31);
        let byte_limit = (memory / 2).min(u32::MAX as usize);
        let hasher = RandomState::new();
        let mut new = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            slots: Vec::new(),
            hasher,
            byte_limit,
            name_limit: slots / 2,
        };
        new.clear();
        new
    }

    /// Whether `count` more names of `bytes` in total fit. An empty dictionary accepts any.
    pub fn has_room(&self, count: usize, bytes: usize) -> bool {
        self.ends.is_empty()
            || self.ends.len() + count <= self.name_limit
                && self.bytes.len() + bytes <= self.byte_limit
    }

    /// The number of `name`; a new name gets a new number.
    pub fn number(&mut self, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(name);
        let tag = hash >> 32 << 32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                let number = self.ends.len() as u32;
                self.bytes.extend_from_slice(name);
                self.ends.push(self.bytes.len() as u32);
                self.slots[at] = tag | u64::from(number + 1);
                return number;
            }
            if slot >> 32 << 32 == tag {
                let number = slot as u32 - 1;
                if self.name(number) == name {
                    return number;
                }
            }
            at = (at + 1) & mask;
        }
    }

    fn name(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[number] as usize]
    }

    /// Appends the sorted names to `file` at `offset`: length, bytes and number of each.
    pub fn write(&self, file: &mut dyn WriteFile, offset: u64) -> Result<Run> {
        const BUFFER: usize = 256 << 10;
        let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
        order.sort_unstable_by(|&left, &right| compare(self.name(left), self.name(right)));
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut bytes = 0;
        for number in order {
            let name = self.name(number);
            if buffer.len() + name.len() + 8 > BUFFER {
                file.write_all(&buffer)?;
                buffer.clear();
            }
            buffer.extend_from_slice(&(name.len() as u32).to_le_bytes());
            buffer.extend_from_slice(name);
            buffer.extend_from_slice(&number.to_le_bytes());
            bytes += name.len() as u64 + 8;
        }
        if !buffer.is_empty() {
            file.write_all(&buffer)?;
        }
        Ok(Run { offset, bytes, names: self.ends.len() as u64 })
    }

    /// Removes all names.
    pub fn clear(&mut self) {
        self.bytes = Vec::with_capacity(self.byte_limit);
        self.ends = Vec::with_capacity(self.name_limit);
        // A new zeroed table costs nothing until it is used. Clearing the old table could take
        // longer than reading the input.
        self.slots = vec![0; 2 * self.name_limit];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use outercore_core::Stream;
    use outercore_io::{Disk, RealDisk};

    use super::*;

    #[test]
    fn numbers_are_ordered_by_value_and_names_by_length_first() {
        let mut names = ["10", "9", "b", "ab", "2", "100", "", "ä"];
        names.sort_by(|left, right| compare(left.as_bytes(), right.as_bytes()));
        assert_eq!(names, ["", "2", "9", "b", "10", "ab", "ä", "100"]);
    }

    #[test]
    fn a_dictionary_numbers_names_as_a_map_does_and_is_written_sorted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs");
        let mut draws = Stream::new(7, 0).uniform(0, 0, 0);
        let mut dictionary = Dictionary::new(64 << 10);
        for round in 0..3 {
            dictionary.clear();
            let mut expected: HashMap<String, u32> = HashMap::new();
            while dictionary.has_room(1, 8) && expected.len() < 800 {
                let name = format!("n{}", draws.below(900));
                let next = expected.len() as u32;
                let number = *expected.entry(name.clone()).or_insert(next);
                assert_eq!(dictionary.number(name.as_bytes()), number, "round {round}");
            }
            let mut file = RealDisk.create(&path).unwrap();
            let run = dictionary.write(&mut *file, 0).unwrap();
            let text = std::fs::read(&path).unwrap();
            assert_eq!((run.names, run.bytes), (expected.len() as u64, text.len() as u64));
            let mut sorted: Vec<_> = expected.into_iter().collect();
            sorted.sort_by(|a, b| compare(a.0.as_bytes(), b.0.as_bytes()));
            let written: Vec<u8> = sorted
                .iter()
                .flat_map(|(name, number)| {
                    let length = name.len() as u32;
                    [&length.to_le_bytes()[..], name.as_bytes(), &number.to_le_bytes()].concat()
                })
                .collect();
            assert!(text == written, "round {round}");
        }
    }

    #[test]
    fn the_least_dictionary_takes_one_triple() {
        let mut dictionary = Dictionary::new(0);
        assert!(dictionary.has_room(2, 1 << 20));
        assert_eq!((dictionary.number(b"a"), dictionary.number(b"b")), (0, 1));
        assert!(!dictionary.has_room(2, 2));
        dictionary.clear();
        assert_eq!(dictionary.number(b"b"), 0);
    }
}
