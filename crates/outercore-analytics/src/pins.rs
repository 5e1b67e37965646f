//! Chooses the segments that stay in memory. Pure.

use outercore_core::Bytes;
use outercore_far::segments::{FarSegment, SegmentGroup, keep_evenly, keep_within};

/// The segments to keep within `room` bytes.
///
/// Without a profile, all segments are equal and are spread evenly over the file, so that the
/// device is busy while segments in memory are computed. `reads` is the number of passes of an
/// earlier run that needed each segment. With it, the most needed segments stay (Fargraph+ 5.2);
/// segments missing in it count as not needed.
///
/// **Cost**: linear in the number of segments; with a profile, one sort.
pub fn choose(segments: &[u64], room: u64, reads: Option<&[u32]>) -> Vec<bool> {
    let Some(reads) = reads else { return keep_evenly(segments, room) };
    let mut ranked: Vec<FarSegment> = (0..)
        .zip(segments)
        .map(|(at, &bytes)| {
            let reads = u64::from(reads.get(at).copied().unwrap_or(0));
            let group = if reads > 0 { SegmentGroup::Edges } else { SegmentGroup::Cold };
            FarSegment { group, bytes: Bytes(bytes), reads, transferable: true }
        })
        .collect();
    keep_within(&mut ranked, Bytes(room));
    ranked.iter().map(|segment| !segment.transferable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_stay_within_the_room_and_use_nearly_all_of_it() {
        for room in [0u64, 100, 5_000, 50_000, 99_999, 100_000] {
            let sizes: Vec<u64> = (0..100).map(|at| 500 + at * 10).collect();
            let pinned = choose(&sizes, room, None);
            let used: u64 =
                sizes.iter().zip(&pinned).filter(|pair| *pair.1).map(|pair| pair.0).sum();
            assert!(used <= room, "{used} of {room}");
            assert!(
                used + 2 * 1_490 > room || used == sizes.iter().sum::<u64>(),
                "{used} of {room}"
            );
        }
    }

    #[test]
    fn pins_are_spread_over_the_file() {
        let pinned = choose(&[1000; 400], 100_000, None);
        for window in pinned.chunks(8) {
            assert_eq!(window.iter().filter(|pinned| **pinned).count(), 2, "{window:?}");
        }
    }

    #[test]
    fn what_passes_want_most_stays() {
        let reads = [1, 5, 0, 5, 2];
        assert_eq!(choose(&[100; 6], 250, Some(&reads)), [false, true, false, true, false, false]);
        assert_eq!(choose(&[100; 6], 300, Some(&reads)), [false, true, false, true, true, false]);
        assert_eq!(choose(&[100; 6], 600, Some(&reads)), [true; 6]);
    }
}
