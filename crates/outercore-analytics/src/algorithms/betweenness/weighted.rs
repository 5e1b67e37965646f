//! Weighted shortest paths: first the distances, then the arcs on shortest paths.

use outercore_core::{Error, ErrorKind, Result};
use outercore_grid::Arcs;

use super::counts::Count;
use super::{Handed, Search, State};
use crate::algorithms::sssp::{Reach, Relax};
use crate::partitions::{all, each_partition};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::state::Bits;

/// Distances from the current source.
#[derive(Default)]
pub(super) struct Distances {
    /// Results of the previous pass.
    shown: Vec<Reach>,
    /// Results of the current pass.
    next: Vec<Reach>,
}

impl Distances {
    pub(super) fn new(lens: &[usize]) -> Self {
        let reaches = || {
            let reach = |&len: &usize| Reach {
                distance: vec![f64::INFINITY; len],
                changed: Bits::new(len),
            };
            lens.iter().map(reach).collect()
        };
        Self { shown: reaches(), next: reaches() }
    }

    /// Bellman-Ford over changed nodes.
    fn find<R: Passes>(
        &mut self,
        run: &mut R,
        source: (usize, usize),
        (done, total): (u64, u64),
    ) -> Result<()> {
        for reach in self.shown.iter_mut().chain(&mut self.next) {
            reach.distance.fill(f64::INFINITY);
            reach.changed.clear();
        }
        self.shown[source.0].distance[source.1] = 0.0;
        self.shown[source.0].changed.insert(source.1);
        self.next[source.0].distance[source.1] = 0.0;
        let everywhere = all(self.shown.len());
        let mut active: Vec<bool> = (0..self.shown.len()).map(|part| part == source.0).collect();
        while active.contains(&true) {
            run.progress("sources", done, total)?;
            let select = Selection {
                sources: &active,
                targets: &everywhere,
                flow: Flow::Along,
                weights: true,
            };
            run.pass(&Relax::default(), &self.shown, &mut self.next, &select)?;
            let mut both: Vec<_> = self.shown.iter_mut().zip(&mut self.next).collect();
            active = each_partition(run, &mut both, |_, (shown, next)| {
                std::mem::swap(&mut shown.changed, &mut next.changed);
                next.changed.clear();
                for local in shown.changed.iter() {
                    shown.distance[local] = next.distance[local];
                }
                shown.changed.count() > 0
            });
        }
        Ok(())
    }

    /// Whether an arc with this weight is on a shortest path.
    fn is_tight(&self, from: (usize, usize), weight: f64, to: (usize, usize)) -> bool {
        let distance = |(part, local): (usize, usize)| self.shown[part].distance[local];
        distance(from).is_finite() && distance(from) + weight == distance(to)
    }
}

impl Search {
    /// Counts weighted shortest paths from `source`. Nodes are processed in waves: a node follows
    /// after all its predecessors on shortest paths. Returns the number of waves after the source.
    pub(super) fn forward_weighted<R: Passes>(
        &mut self,
        run: &mut R,
        source: (usize, usize),
    ) -> Result<u32> {
        let mut distances = std::mem::take(&mut self.distances);
        let found = distances
            .find(run, source, self.done)
            .and_then(|()| self.waves(run, source, &distances));
        self.distances = distances;
        found
    }

    fn waves<R: Passes>(
        &mut self,
        run: &mut R,
        source: (usize, usize),
        distances: &Distances,
    ) -> Result<u32> {
        self.begin(source);
        self.targets.iter_mut().for_each(|state| state.waiting.fill(0));
        let everywhere = all(self.targets.len());
        let select = Selection {
            sources: &everywhere,
            targets: &everywhere,
            flow: Flow::Along,
            weights: true,
        };
        run.progress("sources", self.done.0, self.done.1)?;
        run.pass(&Await { distances }, &self.sources, &mut self.targets, &select)?;
        loop {
            let sources = self.levels.last().expect("the source's wave");
            let select = Selection { sources, ..select };
            run.progress("sources", self.done.0, self.done.1)?;
            run.pass(&Forward { distances }, &self.sources, &mut self.targets, &select)?;
            let mut both: Vec<_> = self.sources.iter_mut().zip(&mut self.targets).collect();
            let reached = each_partition(run, &mut both, |_, (ahead, state)| {
                let mut any = false;
                for local in 0..state.level.len() {
                    ahead.counts.reset(local);
                    if state.level[local] == -1
                        && state.waiting[local] == 0
                        && state.paths.has(local)
                    {
                        state.level[local] = state.at;
                        ahead.counts.set(local, state.paths.get(local));
                        any = true;
                    }
                }
                state.at += 1;
                any
            });
            if !reached.contains(&true) {
                break;
            }
            self.levels.push(reached);
        }
        let stuck = |state: &State| state.waiting.iter().any(|&waiting| waiting > 0);
        if self.targets.iter().any(stuck) {
            let text = "betweenness: weights so small beside the distances that adding them changes \
                        nothing, so that shortest paths go in circles";
            return Err(Error::new(ErrorKind::Unsupported, text)
                .hint("scale the weights, so that the least is above 1e-15 of the distances"));
        }
        Ok(self.levels.len() as u32 - 1)
    }

    /// Passes values back over the arcs of shortest paths, from the nodes of `level`.
    pub(super) fn back_weighted<R: Passes>(&mut self, run: &mut R, level: usize) -> Result<()> {
        let everywhere = all(self.targets.len());
        let select = Selection {
            sources: &self.levels[level],
            targets: &everywhere,
            flow: Flow::Against,
            weights: true,
        };
        let program = Backward { distances: &self.distances };
        run.pass(&program, &self.sources, &mut self.targets, &select)
    }
}

/// Counts the arcs through which shortest paths reach each node.
struct Await<'a> {
    distances: &'a Distances,
}

impl EdgeProgram for Await<'_> {
    type Source = Handed;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, source: &Handed, state: &mut State) {
        let partition = state.partition;
        arcs.for_each(|from, to, weight| {
            if self.distances.is_tight((source.partition, from), weight, (partition, to)) {
                state.waiting[to] += 1;
            }
        });
    }
}

/// Sums numbers of paths over the arcs of shortest paths.
struct Forward<'a> {
    distances: &'a Distances,
}

impl EdgeProgram for Forward<'_> {
    type Source = Handed;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, ahead: &Handed, state: &mut State) {
        let partition = state.partition;
        arcs.for_each(|from, to, weight| {
            if ahead.counts.has(from)
                && self.distances.is_tight((ahead.partition, from), weight, (partition, to))
            {
                state.paths.add(to, ahead.counts.get(from));
                state.waiting[to] -= 1;
            }
        });
    }
}

/// Sums the values that later nodes pass back.
struct Backward<'a> {
    distances: &'a Distances,
}

impl EdgeProgram for Backward<'_> {
    type Source = Handed;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, back: &Handed, state: &mut State) {
        let partition = state.partition;
        arcs.for_each(|from, to, weight| {
            if back.counts.has(from)
                && self.distances.is_tight((partition, to), weight, (back.partition, from))
            {
                let share: Count = back.counts.get(from);
                state.passed_on[to] += state.paths.get(to).times(share);
            }
        });
    }
}
