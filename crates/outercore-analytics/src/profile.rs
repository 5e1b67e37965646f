//! What a run held, in the four groups of data segments, and how often each was wanted. Pure.

use outercore_core::Bytes;
use outercore_far::SegmentGroup;
use serde::{Deserialize, Serialize};

use crate::plan::RunPlan;

/// A profile of a run (Fargraph+ 5.1).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What was held, group by group.
    pub classes: Vec<SegmentClass>,
    /// By segment of the grid: how many passes wanted it. Given to a later run as
    /// [`RunConfig::reads_by_segment`](crate::RunConfig::reads_by_segment), it says what stays.
    pub reads_by_segment: Vec<u32>,
}

/// Data of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentClass {
    /// Its group.
    pub group: SegmentGroup,
    /// What it is.
    pub what: String,
    /// Its length, at its largest.
    pub bytes: Bytes,
    /// Of that, what stayed in memory.
    pub local: Bytes,
    /// How many segments it was counted in; 1 where it was not counted in any.
    pub segments: u64,
    /// How often a segment of it was wanted by a pass; for what is not counted, nothing.
    pub reads: Option<u64>,
}

impl Profile {
    /// Sums up a run that followed `plan`: by segment its bytes, whether it stayed, and how many
    /// passes wanted it.
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
