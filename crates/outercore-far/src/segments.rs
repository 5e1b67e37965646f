//! Groups of a program's data, and which data moves to far memory first. Pure.

use outercore_core::{Bytes, Error, Result};
use serde::{Deserialize, Serialize};

/// The groups of data segments (Fargraph+ 5.1), ordered by the cost of having them in far memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum SegmentGroup {
    /// Group 1: often read and written, such as values of nodes and frontiers. Stays local.
    State = 1,
    /// Group 2: often written and rarely read, such as intermediate results of a pass. Stays local.
    Working = 2,
    /// Group 3: read many times and never written, such as blocks of edges.
    Edges = 3,
    /// Group 4: rarely used.
    Cold = 4,
}

impl TryFrom<u8> for SegmentGroup {
    type Error = Error;

    fn try_from(number: u8) -> Result<Self> {
        match number {
            1 => Ok(Self::State),
            2 => Ok(Self::Working),
            3 => Ok(Self::Edges),
            4 => Ok(Self::Cold),
            _ => Err(Error::invalid(format!("segment group {number}, expected 1 to 4"))
                .hint("1 state, 2 working memory, 3 edges, 4 what is hardly touched")),
        }
    }
}

impl From<SegmentGroup> for u8 {
    fn from(group: SegmentGroup) -> Self {
        group as Self
    }
}

/// A data segment of a program, and whether it belongs in far memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarSegment {
    /// Kind of data.
    pub group: SegmentGroup,
    /// Its length.
    pub bytes: Bytes,
    /// How often the whole segment was read, according to a profile.
    pub reads: u64,
    /// Whether it belongs in far memory.
    #[serde(default)]
    pub transferable: bool,
}

/// Decides for every segment whether it belongs in far memory. At least a share of `far_ratio` of
/// the bytes in groups 3 and 4 moves, with as few segments as possible. Groups 1 and 2 stay.
///
/// Group 4 moves before group 3. Within a group, rarely read segments move first, because a local
/// byte saves one transfer per read. Among equal segments, the moving ones are spread evenly over
/// the list, so that there is work to compute while they are fetched.
///
/// **Cost**: a sort by group and number of reads, otherwise linear.
///
/// # Errors
/// `Invalid`: `far_ratio` is not between 0 and 1.
///
/// **Source**: transferable data segments (Fargraph+ 5.2).
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_far::segments::{FarSegment, SegmentGroup, add_transferable_flag};
/// let segment = |group, reads| FarSegment { group, bytes: Bytes::kib(256), reads, transferable: false };
/// let mut segments = [
///     segment(SegmentGroup::State, 0),
///     segment(SegmentGroup::Edges, 9),
///     segment(SegmentGroup::Edges, 2),
///     segment(SegmentGroup::Cold, 0),
/// ];
/// add_transferable_flag(&mut segments, 0.5).unwrap();
/// assert_eq!(segments.map(|segment| segment.transferable), [false, false, true, true]);
/// ```
pub fn add_transferable_flag(segments: &mut [FarSegment], far_ratio: f64) -> Result<()> {
    check_ratio(far_ratio)?;
    let total = movable(segments);
    let far = (far_ratio * total as f64).ceil() as u64;
    keep_within(segments, Bytes(total.saturating_sub(far)));
    Ok(())
}

/// As [`add_transferable_flag`], given the local `room` for groups 3 and 4 instead of their share.
pub fn keep_within(segments: &mut [FarSegment], room: Bytes) {
    let rank = |segment: &FarSegment| (segment.group, std::cmp::Reverse(segment.reads));
    for segment in segments.iter_mut() {
        segment.transferable = segment.group >= SegmentGroup::Edges;
    }
    let mut order: Vec<&mut FarSegment> =
        segments.iter_mut().filter(|segment| segment.transferable).collect();
    // A stable sort: equal segments stay in the order of the list.
    order.sort_by_key(|segment| rank(segment));
    let mut left = room.0;
    for alike in order.chunk_by_mut(|a, b| rank(a) == rank(b)) {
        let sizes: Vec<u64> = alike.iter().map(|segment| segment.bytes.0).collect();
        let total: u64 = sizes.iter().sum();
        for (segment, kept) in alike.iter_mut().zip(keep_evenly(&sizes, left)) {
            segment.transferable = !kept;
        }
        if total > left {
            break;
        }
        left -= total;
    }
}

/// Selects which of several equal segments stay within `room` bytes, spread evenly over the list.
///
/// **Cost**: linear in the segments.
pub fn keep_evenly(segments: &[u64], room: u64) -> Vec<bool> {
    let total: u64 = segments.iter().sum();
    if total <= room {
        return vec![true; segments.len()];
    }
    let share = room as f64 / total as f64;
    let (mut owed, mut left) = (0.0, room);
    segments
        .iter()
        .map(|&bytes| {
            // Error diffusion along the list: a segment is taken when enough share has accumulated.
            owed += share * bytes as f64;
            let taken = owed >= bytes as f64 / 2.0 && bytes <= left;
            if taken {
                owed -= bytes as f64;
                left -= bytes;
            }
            taken
        })
        .collect()
}

/// Checks that a ratio is between 0 and 1.
///
/// # Errors
/// `Invalid`, with the value and the accepted range.
pub fn check_ratio(far_ratio: f64) -> Result<()> {
    if (0.0..=1.0).contains(&far_ratio) {
        return Ok(());
    }
    Err(Error::invalid(format!("far ratio {far_ratio}, expected 0 to 1"))
        .hint("0 keeps everything, 1 nothing"))
}

/// Bytes of groups 3 and 4.
fn movable(segments: &[FarSegment]) -> u64 {
    let movable = segments.iter().filter(|segment| segment.group >= SegmentGroup::Edges);
    movable.map(|segment| segment.bytes.0).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_segment() -> impl Strategy<Value = FarSegment> {
        (1u8..=4, 1u64..10_000, 0u64..5).prop_map(|(group, bytes, reads)| FarSegment {
            group: group.try_into().unwrap(),
            bytes: Bytes(bytes),
            reads,
            transferable: false,
        })
    }

    proptest! {
        #[test]
        fn the_ratio_is_met_by_the_least_read_and_nothing_more(
            mut segments in prop::collection::vec(any_segment(), 0..200),
            far_ratio in 0.0f64..=1.0,
        ) {
            add_transferable_flag(&mut segments, far_ratio).unwrap();
            let total = movable(&segments);
            let far = segments.iter().filter(|s| s.transferable).map(|s| s.bytes.0).sum::<u64>();
            let longest = segments.iter().map(|segment| segment.bytes.0).max().unwrap_or(0);
            prop_assert!(far as f64 >= far_ratio * total as f64 - 1e-6, "{far} of {total}");
            prop_assert!(far as f64 <= far_ratio * total as f64 + 1.0 + 2.0 * longest as f64);
            let rank = |s: &FarSegment| (s.group, std::cmp::Reverse(s.reads));
            for segment in &segments {
                prop_assert!(segment.group >= SegmentGroup::Edges || !segment.transferable);
                if segment.transferable {
                    let better = segments.iter().filter(|s| s.group >= SegmentGroup::Edges);
                    for other in better.filter(|other| rank(other) > rank(segment)) {
                        prop_assert!(other.transferable, "{other:?} stays, {segment:?} goes");
                    }
                }
            }
            for (ratio, flag) in [(0.0, false), (1.0, true)] {
                add_transferable_flag(&mut segments, ratio).unwrap();
                for segment in &segments {
                    let moves = flag && segment.group >= SegmentGroup::Edges;
                    prop_assert_eq!(segment.transferable, moves);
                }
            }
        }
    }

    #[test]
    fn segments_alike_go_evenly() {
        let segment = FarSegment {
            group: SegmentGroup::Edges,
            bytes: Bytes::kib(256),
            reads: 20,
            transferable: false,
        };
        let mut segments = [segment; 400];
        add_transferable_flag(&mut segments, 0.75).unwrap();
        for window in segments.chunks(8) {
            assert_eq!(window.iter().filter(|segment| !segment.transferable).count(), 2);
        }
    }

    #[test]
    fn ratios_and_groups_out_of_range_are_named() {
        for ratio in [-0.1, 1.1, f64::NAN] {
            let error = add_transferable_flag(&mut [], ratio).unwrap_err().to_string();
            assert!(error.contains("expected 0 to 1"), "{error}");
        }
        let text = r#"{"group":3,"bytes":4096,"reads":2}"#;
        let segment: FarSegment = serde_json::from_str(text).unwrap();
        assert_eq!((segment.group, segment.transferable), (SegmentGroup::Edges, false));
        let error = serde_json::from_str::<FarSegment>(&text.replace('3', "5")).unwrap_err();
        assert!(error.to_string().contains("segment group 5"), "{error}");
    }
}
