//! The memory of a run, in the four groups of data segments, and how often passes needed each
//! segment. Pure.

use outercore_core::Bytes;
use outercore_far::SegmentGroup;
use serde::{Deserialize, Serialize};

use crate::plan::RunPlan;

/// A profile of a run (Fargraph+ 5.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The data of the run, group by group.
    pub classes: Vec<SegmentClass>,
    /// By segment of the grid: the number of passes that needed it. A later run can use it as
    /// [`RunConfig::reads_by_segment`](crate::RunConfig::reads_by_segment) to choose the segments
    /// that stay.
    pub reads_by_segment: Vec<u32>,
}

/// Data of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentClass {
    /// Its group.
    pub group: SegmentGroup,
    /// Name of the data.
    pub what: String,
    /// Its largest length.
    pub bytes: Bytes,
    /// Bytes of it that stayed in memory.
    pub local: Bytes,
    /// Number of segments in which it was counted; 1 if it was not counted by segment.
    pub segments: u64,
    /// How often passes needed its segments; `None` if not counted.
    pub reads: Option<u64>,
}

impl Profile {
    /// Summarises a run that followed `plan`: the bytes of each segment, whether it stayed, and how
    /// many passes needed it.
    pub fn new(plan: &RunPlan, sizes: &[u64], pins: &[bool], reads: Vec<u32>) -> Self {
        let held = |group, what: &str, bytes: Bytes| SegmentClass {
            group,
            what: what.to_owned(),
            bytes,
            local: bytes,
            segments: 1,
            reads: None,
        };
        let mut classes = vec![
            held(SegmentGroup::State, "values of the nodes", plan.state),
            held(SegmentGroup::State, "records of the pieces", plan.index),
            held(SegmentGroup::Working, "decoded pieces", plan.scratch),
            held(SegmentGroup::Working, "values by arc", plan.working),
            held(SegmentGroup::Working, "reads in flight", plan.staging),
            held(SegmentGroup::Working, "segments read ahead", plan.window),
            held(SegmentGroup::Working, "the result", plan.output),
        ];
        classes.retain(|class| class.bytes.0 > 0);
        for (group, what, wanted) in [
            (SegmentGroup::Edges, "edges", true),
            (SegmentGroup::Cold, "edges that no pass wanted", false),
        ] {
            let mut class = held(group, what, Bytes(0));
            class.segments = 0;
            let mut total = 0;
            for ((&bytes, &pinned), &reads) in sizes.iter().zip(pins).zip(&reads) {
                if (reads > 0) == wanted {
                    class.bytes.0 += bytes;
                    class.local.0 += if pinned { bytes } else { 0 };
                    class.segments += 1;
                    total += u64::from(reads);
                }
            }
            class.reads = Some(total);
            classes.push(class);
        }
        Self { classes, reads_by_segment: reads }
    }
}
