//! Degrees, from the arrays of the grid.

use outercore_core::{Bytes, Result};
use outercore_grid::GridShape;
use serde::{Deserialize, Serialize};

use crate::algorithm::{GraphAlgorithm, Scale};
use crate::output::{Isolated, Need, Raw, ResultTable, SpillNeed};
use crate::partitions::{add_degrees, degrees_table};
use crate::program::{Degree, Flow, Passes};
use crate::result::AnyRaw;
use crate::state::{PerNode, Table, Traffic};
use crate::teleport::Teleport;

/// Which arcs to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DegreeName {
    /// Arcs into a node.
    #[default]
    In,
    /// Arcs out of a node.
    Out,
    /// Both; in an undirected graph every arc once.
    Total,
}

/// Options of [`degrees`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Degrees {
    /// The arcs to count.
    pub which: DegreeName,
}

impl GraphAlgorithm for Degrees {
    fn need(&self, scale: &Scale<'_>) -> Need {
        Need {
            state_per_node: 8,
            // Counts by value for finding the median, at most one megabyte.
            fixed: Bytes::mib(1),
            output: Bytes(8 * scale.shape.nodes),
            passes: Some(0),
            spill: Some(SpillNeed {
                shown: PerNode::NONE,
                fixed: PerNode::NONE,
                own: PerNode::new(8, 0),
                target: PerNode::new(8, 0),
                traffic: Traffic::default(),
                writes_own: false,
                any_order: true,
                flow: Flow::Once,
                result: ResultTable::Own,
            }),
            ..Need::default()
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        degrees(run, self.which).map(AnyRaw::from)
    }
}

/// The number of arcs at every node, including loops and parallel arcs. In an undirected graph
/// every edge is two arcs, so each of its nodes counts it once as in-degree, once as out-degree,
/// and once in total.
///
/// Facts, over all nodes: `min`, `mean`, `median` (the lower one), `max`, `isolated`, `histogram`
/// (nodes by degree 0, 1, 2-3, 4-7, ...).
///
/// **Cost**: reads the degree arrays; makes no pass.
///
/// # Errors
/// A failed read.
pub fn degrees<R: Passes>(run: &mut R, which: DegreeName) -> Result<Raw<i64>> {
    let shape = *run.shape();
    let first = if which == DegreeName::In { Degree::In } else { Degree::Out };
    let mut counts = degrees_table(run, first)?;
    if which == DegreeName::Total && !shape.symmetric {
        let add = |count: &mut i64, more| *count += i64::from(more);
        add_degrees(run, Degree::In, &mut counts, add)?;
    }
    let facts = facts(&shape, &mut counts)?;
    let by_partition = counts.into_parts(|counts| counts);
    Ok(Raw { by_partition, isolated: Isolated::Same(0), facts })
}

fn facts(
    shape: &GridShape,
    counts: &mut Table<Vec<i64>>,
) -> Result<serde_json::Map<String, serde_json::Value>> {
    let isolated = shape.nodes - shape.connected;
    let zero = if isolated > 0 { Some(0) } else { None };
    let (mut min, mut max, mut total) = (zero, 0, 0);
    let mut histogram = vec![isolated];
    counts.each(|_, counts| {
        for &count in counts.iter() {
            min = Some(min.map_or(count, |min| count.min(min)));
            max = count.max(max);
            total += count;
            let class = (64 - (count as u64).leading_zeros()) as usize;
            if histogram.len() <= class {
                histogram.resize(class + 1, 0);
            }
            histogram[class] += 1;
        }
        Ok(false)
    })?;
    let mut facts = serde_json::Map::new();
    facts.insert("min".into(), min.unwrap_or(0).into());
    facts.insert("mean".into(), (total as f64 / shape.nodes.max(1) as f64).into());
    facts.insert("median".into(), median(shape, &histogram, counts)?.into());
    facts.insert("max".into(), max.into());
    facts.insert("isolated".into(), isolated.into());
    facts.insert("histogram".into(), histogram.into());
    Ok(facts)
}

/// The lower median: its class from the histogram, then its value by bisecting the class.
fn median(shape: &GridShape, histogram: &[u64], counts: &mut Table<Vec<i64>>) -> Result<i64> {
    let place = shape.nodes.saturating_sub(1) / 2;
    let mut before = 0;
    let class = histogram.iter().position(|&nodes| {
        before += nodes;
        before > place
    });
    let Some(class @ 1..) = class else { return Ok(0) };
    // Nodes without arcs are not in `counts`.
    let isolated = shape.nodes - shape.connected;
    let (mut low, mut high) = (1i64 << (class - 1), (1i64 << class) - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let mut connected = 0;
        counts.each(|_, counts| {
            connected += counts.iter().filter(|&&count| count <= middle).count() as u64;
            Ok(false)
        })?;
        if connected + isolated > place { high = middle } else { low = middle + 1 }
    }
    Ok(low)
}
