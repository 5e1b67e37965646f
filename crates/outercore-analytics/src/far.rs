//! Copies the blocks of a grid that do not stay in memory to far memory.

use std::ops::Range;

use outercore_core::Result;
use outercore_far::FarTier;
use outercore_grid::Grid;
use outercore_io::Engine;
use outercore_store::dataset::ArrayRef;

use crate::pins::choose;
use crate::plan::RunPlan;
use crate::segments::segments;
use crate::stream_run::OnProgress;

/// Looks up whole files of the grid on the server, and copies the parts of other files that `plan`
/// does not keep. `reads_by_segment` must equal that of the run. Parts for which the server has no
/// room stay on disk. `engine` reads without the tier.
///
/// **Cost** one control message for each file on the server; missing data is read and sent once.
///
/// # Errors
/// A failed read; `Io`: the server was lost and there is no fallback; an error of `on_progress`.
pub fn bring(
    tier: &FarTier,
    grid: &Grid,
    plan: &RunPlan,
    reads_by_segment: Option<&[u32]>,
    engine: &mut Engine,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    for array in [grid.order(), Some(grid.out_degrees()), Some(grid.in_degrees())] {
        array.map_or(Ok(false), |array| found(tier, array))?;
    }
    let segments = segments(grid.pieces(), grid.weight_bytes());
    let sizes: Vec<u64> = segments.iter().map(|segment| segment.bytes(plan.weighted)).collect();
    let pins = choose(&sizes, plan.pinned.0, reads_by_segment);
    let away = || segments.iter().zip(&pins).filter(|pair| !pair.1).map(|pair| pair.0);
    let weights = grid.weights().filter(|_| plan.weighted);
    let blocks: Vec<_> = away().map(|segment| segment.blocks.clone()).collect();
    let mut wanted = vec![(grid.blocks(), blocks)];
    wanted.extend(weights.map(|array| (array, away().map(|s| s.weights.clone()).collect())));
    let total: u64 = wanted.iter().map(|(_, ranges)| bytes(ranges)).sum();
    let mut before = 0;
    for (array, ranges) in wanted {
        let len = bytes(&ranges);
        if !found(tier, array)? {
            let at = array.data_offset;
            let ranges: Vec<_> = ranges.into_iter().map(|r| at + r.start..at + r.end).collect();
            tier.place(&array.path, &ranges, engine, &mut |done, _| {
                on_progress("far", (before + done).min(total), total, "bytes")
            })?;
        }
        before += len;
    }
    Ok(())
}

fn found(tier: &FarTier, array: &ArrayRef) -> Result<bool> {
    tier.find(&array.path, &array.content_name())
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}
