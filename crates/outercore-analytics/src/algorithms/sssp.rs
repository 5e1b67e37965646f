//! Shortest paths from one node.

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, GridShape, Side};

use super::bfs::Bits;
use super::{all, each_partition, expect_same};
use crate::output::{Isolated, Need, Raw};
use crate::program::{EdgeProgram, Flow, Passes, Selection};

/// What shortest paths take.
pub fn need(shape: &GridShape) -> Need {
    Need { state_per_node: 17, output: Bytes(8 * shape.nodes), ..Need::default() }
}

/// Distances and which of them are new.
struct Reach {
    distance: Vec<f64>,
    changed: Bits,
}

struct Relax;

impl EdgeProgram for Relax {
    type Source = Reach;
    type Target = Reach;

    fn apply(&self, arcs: &Arcs<'_>, source: &Reach, target: &mut Reach) {
        let step = |weights: &[f32], at: usize| weights.get(at).map_or(1.0, |&w| f64::from(w));
        for (row, columns, weights) in arcs.rows() {
            match arcs.side {
                Side::ToRows => {
                    let before = target.distance[row];
                    let mut least = before;
                    for (at, &column) in columns.iter().enumerate() {
                        let column = usize::from(column);
                        if source.changed.has(column) {
                            least = least.min(source.distance[column] + step(weights, at));
                        }
                    }
                    if least < before {
                        target.distance[row] = least;
                        target.changed.insert(row);
                    }
                }
                Side::ToColumns if source.changed.has(row) => {
                    let distance = source.distance[row];
                    for (at, &column) in columns.iter().enumerate() {
                        let column = usize::from(column);
                        let through = distance + step(weights, at);
                        if through < target.distance[column] {
                            target.distance[column] = through;
                            target.changed.insert(column);
                        }
                    }
                }
                Side::ToColumns => {}
            }
        }
    }
}

/// The least sum of weights (without them: of arcs) on a way from `source` to every node; infinite
/// where there is no way. Weights must not be negative.
///
/// A pass follows the arcs of all nodes whose distance the pass before has shortened, until none
/// is. A source without arcs reaches itself, which is the caller's to enter.
///
/// Facts: `reached` (nodes, the source included), `iterations`, `farthest` (largest distance).
///
/// # Errors
/// Those of the passes.
///
/// **Source**: Bellman, "On a routing problem" (1958), on changed nodes alone. Additions round
/// monotonically, so there is one fixed point and it does not depend on the order of work.
pub fn sssp<R: Passes>(run: &mut R, source: u64, weighted: bool, flow: Flow) -> Result<Raw<f64>> {
    let parts = run.shape().partitions();
    let lens: Vec<usize> = (0..parts).map(|part| run.shape().partition_len(part)).collect();
    let new = |&len: &usize| Reach { distance: vec![f64::INFINITY; len], changed: Bits::new(len) };
    let mut sources: Vec<Reach> = lens.iter().map(new).collect();
    let mut targets: Vec<Reach> = lens.iter().map(new).collect();
    let mut active = vec![false; parts];
    let everywhere = all(parts);
    if let Some((part, local)) = run.place(&[source])?[0] {
        sources[part].distance[local] = 0.0;
        sources[part].changed.insert(local);
        targets[part].distance[local] = 0.0;
        active[part] = true;
    }
    let mut iterations = 0u64;
    while active.contains(&true) {
        run.progress("iteration", iterations, 0)?;
        let select = Selection { sources: &active, targets: &everywhere, flow, weights: weighted };
        expect_same(run, &select);
        run.pass(&Relax, &sources, &mut targets, &select)?;
        let mut both: Vec<(&mut Reach, &mut Reach)> =
            sources.iter_mut().zip(&mut targets).collect();
        active = each_partition(run, &mut both, |_, (source, target)| {
            std::mem::swap(&mut source.changed, &mut target.changed);
            target.changed.clear();
            for local in source.changed.iter() {
                source.distance[local] = target.distance[local];
            }
            source.changed.count() > 0
        });
        iterations += 1;
    }
    let finite = targets.iter().flat_map(|target| &target.distance).filter(|d| d.is_finite());
    let (reached, farthest) = finite.fold((0u64, 0f64), |(n, most), &d| (n + 1, most.max(d)));
    let mut facts = serde_json::Map::new();
    facts.insert("reached".into(), reached.max(1).into());
    facts.insert("iterations".into(), iterations.into());
    facts.insert("farthest".into(), farthest.into());
    let by_partition = targets.into_iter().map(|target| target.distance).collect();
    Ok(Raw { by_partition, isolated: Isolated::Same(f64::INFINITY), facts })
}
