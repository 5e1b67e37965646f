//! Maps ranges of a file to regions. Pure.

use std::ops::Range;

use outercore_core::Bytes;

use crate::region::{Region, RegionKey};

/// Placed ranges begin at multiples of this, and end at one or at the end of the file. So every
/// read that direct I/O would make can be served from far memory.
pub const PAGE: u64 = 4096;

/// Longest region to request. A server must provide its memory within the time-out, and a nearly
/// full server may take only a part.
pub const LONGEST_REGION: Bytes = Bytes(1 << 30);

/// Neighbouring regions of one range overlap by this many bytes, so that each read up to this
/// length is inside one region.
pub const OVERLAP: Bytes = Bytes(1 << 20);

/// A range of a file that is in a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The range in the file.
    pub range: Range<u64>,
    /// The region.
    pub region: Region,
    /// Offset of the range in the region.
    pub offset: u64,
}

/// The placed ranges of one file.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_far::placement::{Extent, Placement};
/// use outercore_far::{Region, RegionKey};
/// let region = Region { key: RegionKey(7), len: Bytes(8192) };
/// let mut placement = Placement::default();
/// placement.insert(Extent { range: 4096..12288, region, offset: 0 });
/// assert_eq!(placement.find(&(5000..6000)), Some((region, 904)));
/// assert_eq!(placement.find(&(0..4097)), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Sorted by start and also by end, because no extent contains another.
    extents: Vec<Extent>,
}

impl Placement {
    /// Adds an extent, unless another one contains it.
    pub fn insert(&mut self, extent: Extent) {
        let place = self.extents.partition_point(|other| other.range.start < extent.range.start);
        let inside = |other: &Extent| {
            other.range.start <= extent.range.start && extent.range.end <= other.range.end
        };
        if place > 0 && inside(&self.extents[place - 1])
            || self.extents.get(place).is_some_and(inside)
        {
            return;
        }
        let covered = self.extents[place..]
            .iter()
            .take_while(|other| other.range.end <= extent.range.end)
            .count();
        self.extents.splice(place..place + covered, [extent]);
    }

    /// The region that holds all of `range`, and the offset in it.
    pub fn find(&self, range: &Range<u64>) -> Option<(Region, u64)> {
        let after = self.extents.partition_point(|extent| extent.range.start <= range.start);
        // Of the extents that begin early enough, the last one ends last.
        let extent = self.extents[..after].last()?;
        (range.end <= extent.range.end)
            .then(|| (extent.region, extent.offset + (range.start - extent.range.start)))
    }

    /// The parts of `range` that are in no region.
    pub fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        let first = self.extents.partition_point(|extent| extent.range.end <= at);
        for extent in &self.extents[first..] {
            if at >= range.end || extent.range.start >= range.end {
                break;
            }
            if at < extent.range.start {
                missing.push(at..extent.range.start);
            }
            at = at.max(extent.range.end);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Removes the extents in a region.
    pub fn withdraw(&mut self, key: RegionKey) {
        self.extents.retain(|extent| extent.region.key != key);
    }

    /// Whether nothing is placed.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }
}

/// Widens `ranges` to whole pages (cut at the end of the file), sorts them and joins neighbours.
pub fn whole_pages(ranges: &[Range<u64>], file_len: u64) -> Vec<Range<u64>> {
    let mut pages: Vec<Range<u64>> = ranges
        .iter()
        .filter(|range| range.start < range.end.min(file_len))
        .map(|range| {
            let end = range.end.min(file_len).next_multiple_of(PAGE).min(file_len);
            range.start / PAGE * PAGE..end
        })
        .collect();
    pages.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(pages.len());
    for range in pages {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Splits a range into pieces of at most `longest` bytes. Each piece begins with the last `overlap`
/// bytes of the previous one.
///
/// `longest` and `overlap` are whole pages; `longest` is more than twice `overlap`.
pub fn cut(range: &Range<u64>, longest: u64, overlap: u64) -> Vec<Range<u64>> {
    debug_assert!(longest > 2 * overlap);
    let mut pieces = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start.saturating_add(longest));
        pieces.push(start..end);
        if end == range.end {
            break;
        }
        start = end - overlap;
    }
    pieces
}

/// Assigns ranges to regions of at most `longest` bytes each, in order. Only a longer range is
/// split, with an overlap.
pub fn lay_out(ranges: &[Range<u64>], longest: u64, overlap: u64) -> Vec<Vec<Range<u64>>> {
    let mut regions: Vec<Vec<Range<u64>>> = Vec::new();
    let mut room = 0;
    for piece in ranges.iter().flat_map(|range| cut(range, longest, overlap)) {
        let len = piece.end - piece.start;
        match regions.last_mut() {
            Some(region) if len <= room => region.push(piece),
            _ => {
                regions.push(vec![piece]);
                room = longest;
            }
        }
        room -= len;
    }
    regions
}

/// The first `len` bytes of `ranges`.
pub fn first_bytes(ranges: &[Range<u64>], len: u64) -> Vec<Range<u64>> {
    let mut left = len;
    let mut first = Vec::new();
    for range in ranges {
        let taken = left.min(range.end - range.start);
        if taken == 0 {
            break;
        }
        first.push(range.start..range.start + taken);
        left -= taken;
    }
    first
}

/// Total bytes of `ranges`.
pub fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// The names under which a file of `file_len` bytes is kept, and the range of the file in each
/// region.
pub fn parts(content_name: &str, file_len: u64) -> Vec<(String, Range<u64>)> {
    let pieces = cut(&(0..file_len), LONGEST_REGION.0, OVERLAP.0);
    if let [whole] = &pieces[..] {
        return vec![(content_name.to_owned(), whole.clone())];
    }
    let count = pieces.len();
    let name = |index: usize| format!("{content_name}/part {} of {count}", index + 1);
    pieces.into_iter().enumerate().map(|(index, range)| (name(index), range)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(number: u64, range: Range<u64>) -> Extent {
        let region = Region { key: RegionKey(number), len: Bytes(range.end + 100) };
        Extent { range, region, offset: 100 }
    }

    #[test]
    fn ranges_become_whole_pages_and_end_with_the_file() {
        let pages = whole_pages(&[9000..9001, 4000..4200, 3..3, 20_000..90_000], 20_500);
        assert_eq!(pages, [0..12288, 16384..20_500]);
        assert!(whole_pages(&[8000..9000, 9000..9001], 8000).is_empty());
    }

    #[test]
    fn a_file_of_one_region_has_its_plain_name() {
        let name = "xxh3:1/float32/2x3/4096";
        assert_eq!(parts(name, 5), [(name.to_owned(), 0..5)]);
        let gib = LONGEST_REGION.0;
        let names: Vec<_> = parts(name, 2 * gib).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[0], format!("{name}/part 1 of 3"));
        assert!(parts(name, 0).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_found_was_placed_there_and_what_is_missing_was_not(
            ranges in prop::collection::vec((0u64..200, 1u64..60), 0..20),
            asked in prop::collection::vec((0u64..200, 1u64..60), 20),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let mut placement = Placement::default();
            for (number, range) in (0..).zip(&ranges) {
                placement.insert(extent(number, range.clone()));
            }
            for asked in asked.into_iter().map(|(start, len)| start..start + len) {
                let holder = |range: &Range<u64>| range.start <= asked.start && asked.end <= range.end;
                match placement.find(&asked) {
                    None => prop_assert!(!ranges.iter().any(holder)),
                    Some((region, offset)) => {
                        let range = &ranges[region.key.0 as usize];
                        prop_assert!(holder(range));
                        prop_assert_eq!(offset, 100 + asked.start - range.start);
                    }
                }
                let missing = placement.missing(&asked);
                for byte in asked {
                    let placed = ranges.iter().any(|range| range.contains(&byte));
                    let is_missing = missing.iter().filter(|range| range.contains(&byte)).count();
                    prop_assert_eq!(is_missing, usize::from(!placed));
                }
            }
        }

        #[test]
        fn a_withdrawn_region_is_found_no_more(
            ranges in prop::collection::vec((0u64..200, 1u64..60), 1..20),
        ) {
            let mut placement = Placement::default();
            for (number, (start, len)) in (0..).zip(ranges) {
                placement.insert(extent(number % 3, start..start + len));
            }
            placement.withdraw(RegionKey(1));
            for byte in 0..260 {
                if let Some((region, _)) = placement.find(&(byte..byte + 1)) {
                    prop_assert_ne!(region.key, RegionKey(1));
                }
            }
        }

        #[test]
        fn a_layout_holds_every_range_and_short_reads_never_cross(
            lens in prop::collection::vec((1u64..40, 1u64..9), 1..20),
        ) {
            let (longest, overlap) = (16, 4);
            let mut at = 0;
            let ranges: Vec<_> = lens.into_iter().map(|(len, gap)| {
                let start = at + gap;
                at = start + len;
                start..at
            }).collect();
            let mut placement = Placement::default();
            for (number, region) in (0..).zip(lay_out(&ranges, longest, overlap)) {
                prop_assert!(total(&region) <= longest);
                for range in region {
                    placement.insert(extent(number, range));
                }
            }
            for range in &ranges {
                for start in range.clone() {
                    let read = start..range.end.min(start + overlap);
                    prop_assert!(placement.find(&read).is_some(), "{:?}", read);
                }
            }
        }

        #[test]
        fn the_first_bytes_are_the_first(
            lens in prop::collection::vec(1u64..9, 0..9),
            len in 0u64..90,
        ) {
            let ranges: Vec<_> = lens.iter().zip(0..).map(|(len, at)| at * 10..at * 10 + len).collect();
            let all: Vec<u64> = ranges.iter().cloned().flatten().take(len as usize).collect();
            let first: Vec<u64> = first_bytes(&ranges, len).into_iter().flatten().collect();
            prop_assert_eq!(first, all);
        }
    }
}
