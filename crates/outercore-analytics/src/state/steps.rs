//! The order in which a group of target partitions takes its source partitions, if only a few of
//! them fit into memory. Pure: the plan uses it to count the loads of a run.
//!
//! A group of targets stays in memory while sources are loaded. A target may have to take its
//! sources in file order, which for target t of a directed grid is t, t + 1, ... The group is then
//! processed in a wave: a loaded source serves all targets that need it next, so each source is
//! loaded about once for the whole group. If the order is free, each source is loaded exactly once,
//! forwards for one group and backwards for the next, which finds the last sources still in memory.

use std::collections::BTreeSet;

use crate::task::Task;

/// The next load, and the tasks that follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// The source partition to drop first.
    pub evict: Option<usize>,
    /// The source partition to load.
    pub load: Option<usize>,
    /// Target partitions and their tasks, in file order.
    pub tasks: Vec<(usize, Vec<Task>)>,
}

/// Source partitions in memory.
#[derive(Clone, Debug, Default)]
pub struct Cached {
    here: Vec<bool>,
    /// In order of loading.
    order: Vec<usize>,
    slots: usize,
    /// Whether the next group is processed backwards, if the order is free.
    backwards: bool,
}

impl Cached {
    /// An empty cache of `partitions` partitions, with room for `slots` of them.
    pub fn new(partitions: usize, slots: usize) -> Self {
        Self { here: vec![false; partitions], order: Vec::new(), slots, backwards: false }
    }

    /// Makes room if there is none: drops the cached partition chosen by `worst`.
    fn bring(&mut self, source: usize, worst: impl FnOnce(&[usize]) -> usize) -> Option<usize> {
        let evicted = (self.order.len() >= self.slots).then(|| {
            let at = worst(&self.order);
            let evicted = self.order.remove(at);
            self.here[evicted] = false;
            evicted
        });
        self.order.push(source);
        self.here[source] = true;
        evicted
    }
}

/// The steps for the target partitions `group`. `lists` has their tasks by partition, each in file
/// order, and `source_of` gives the source partition of a task. With `any_order`, a target may take
/// its sources in any order.
///
/// **Cost**: each load examines every cached source and every target of the group.
pub fn plan_group(
    group: &[usize],
    lists: &[Vec<Task>],
    source_of: &dyn Fn(Task) -> usize,
    any_order: bool,
    cached: &mut Cached,
) -> Vec<StepPlan> {
    if any_order {
        freely(group, lists, source_of, cached)
    } else {
        Wave::new(group, lists, source_of, cached).steps()
    }
}

fn freely(
    group: &[usize],
    lists: &[Vec<Task>],
    source_of: &dyn Fn(Task) -> usize,
    cached: &mut Cached,
) -> Vec<StepPlan> {
    let mut by_source: Vec<Vec<(usize, Vec<Task>)>> = vec![Vec::new(); cached.here.len()];
    for &target in group {
        for &task in &lists[target] {
            let tasks = &mut by_source[source_of(task)];
            match tasks.last_mut() {
                Some((last, tasks)) if *last == target => tasks.push(task),
                _ => tasks.push((target, vec![task])),
            }
        }
    }
    let mut order: Vec<usize> =
        (0..by_source.len()).filter(|&s| !by_source[s].is_empty()).collect();
    if cached.backwards {
        order.reverse();
    }
    cached.backwards = !cached.backwards;
    let (here, away): (Vec<usize>, Vec<usize>) = order.iter().partition(|&&s| cached.here[s]);
    let mut steps = Vec::new();
    let mut first = StepPlan::default();
    for source in here {
        first.tasks.append(&mut by_source[source]);
    }
    if !first.tasks.is_empty() {
        steps.push(merged(first));
    }
    for source in away {
        // The source loaded last is the next group's first; the oldest is its last.
        let evict = cached.bring(source, |_| 0);
        let tasks = std::mem::take(&mut by_source[source]);
        steps.push(StepPlan { evict, load: Some(source), tasks });
    }
    steps
}

/// Merges the tasks of a target from several sources into one list in file order.
fn merged(mut step: StepPlan) -> StepPlan {
    step.tasks.sort_by_key(|tasks| tasks.0);
    step.tasks.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1.append(&mut next.1);
        }
        same
    });
    step.tasks.iter_mut().for_each(|tasks| tasks.1.sort_unstable());
    step
}

/// Targets that take their sources in file order.
struct Wave<'a> {
    group: &'a [usize],
    lists: &'a [Vec<Task>],
    /// By target of the group: its sources in order, with the number of tasks for each.
    runs: Vec<Vec<(usize, usize)>>,
    /// By target of the group: number of finished runs, and of finished tasks.
    done: Vec<(usize, usize)>,
    /// By source: the targets of the group that need it next.
    waiting: Vec<Vec<usize>>,
    /// Number of waiting targets, and the source; among several, the lowest source is last.
    wanted: BTreeSet<(usize, std::cmp::Reverse<usize>)>,
    /// By source: its unfinished positions in the runs of targets.
    uses: Vec<Vec<(usize, usize)>>,
    cached: &'a mut Cached,
}

impl<'a> Wave<'a> {
    fn new(
        group: &'a [usize],
        lists: &'a [Vec<Task>],
        source_of: &dyn Fn(Task) -> usize,
        cached: &'a mut Cached,
    ) -> Self {
        let partitions = cached.here.len();
        let mut uses = vec![Vec::new(); partitions];
        let mut runs = Vec::with_capacity(group.len());
        for (at, &target) in group.iter().enumerate() {
            let mut of_target: Vec<(usize, usize)> = Vec::new();
            for &task in &lists[target] {
                let source = source_of(task);
                match of_target.last_mut() {
                    Some((last, tasks)) if *last == source => *tasks += 1,
                    _ => {
                        uses[source].push((at, of_target.len()));
                        of_target.push((source, 1));
                    }
                }
            }
            runs.push(of_target);
        }
        Self {
            group,
            lists,
            done: vec![(0, 0); runs.len()],
            runs,
            waiting: vec![Vec::new(); partitions],
            wanted: BTreeSet::new(),
            uses,
            cached,
        }
    }

    fn steps(mut self) -> Vec<StepPlan> {
        let mut steps = Vec::new();
        let all: Vec<usize> = (0..self.group.len()).collect();
        let tasks = self.advance(&all);
        if !tasks.is_empty() {
            steps.push(StepPlan { evict: None, load: None, tasks });
        }
        while let Some((_, std::cmp::Reverse(source))) = self.wanted.pop_last() {
            let evict = self.bring(source);
            let waiting = std::mem::take(&mut self.waiting[source]);
            let tasks = self.advance(&waiting);
            steps.push(StepPlan { evict, load: Some(source), tasks });
        }
        steps
    }

    /// Advances `targets` as far as the cached sources allow; returns their tasks.
    fn advance(&mut self, targets: &[usize]) -> Vec<(usize, Vec<Task>)> {
        let mut all = Vec::new();
        for &at in targets {
            let from = self.done[at].1;
            while let Some(&(source, tasks)) = self.runs[at].get(self.done[at].0) {
                if !self.cached.here[source] {
                    let waiting = &mut self.waiting[source];
                    self.wanted.remove(&(waiting.len(), std::cmp::Reverse(source)));
                    waiting.push(at);
                    self.wanted.insert((waiting.len(), std::cmp::Reverse(source)));
                    break;
                }
                self.done[at].0 += 1;
                self.done[at].1 += tasks;
            }
            let to = self.done[at].1;
            if to > from {
                let target = self.group[at];
                all.push((target, self.lists[target][from..to].to_vec()));
            }
        }
        all
    }

    /// Loads a source; if there is no room, it replaces the source that is needed last.
    fn bring(&mut self, source: usize) -> Option<usize> {
        let Self { cached, uses, done, .. } = self;
        cached.bring(source, |order| {
            let mut worst = (0, 0);
            for (at, &cached) in order.iter().enumerate() {
                let uses = &mut uses[cached];
                uses.retain(|&(target, run)| run >= done[target].0);
                let soonest = uses.iter().map(|&(target, run)| run - done[target].0).min();
                let distance = soonest.unwrap_or(usize::MAX);
                if distance > worst.0 {
                    worst = (distance, at);
                }
            }
            worst.1
        })
    }
}

#[cfg(test)]
mod tests {
    use outercore_grid::Side;
    use proptest::prelude::*;

    use super::*;

    /// Lists in file order for a grid with all blocks: by diagonal, then by row.
    fn grid(parts: usize, symmetric: bool, both: bool) -> (Vec<Vec<Task>>, Vec<(usize, usize)>) {
        let mut blocks = Vec::new();
        for diagonal in 0..parts {
            for row in 0..parts {
                let column = (row + diagonal) % parts;
                if !symmetric || row <= column {
                    blocks.push((row, column));
                }
            }
        }
        let mut lists = vec![Vec::new(); parts];
        for (piece, &(row, column)) in blocks.iter().enumerate() {
            lists[row].push(Task::new(piece, Side::ToRows));
            if symmetric || both {
                lists[column].push(Task::new(piece, Side::ToColumns));
            }
        }
        (lists, blocks)
    }

    fn source_of(blocks: &[(usize, usize)], task: Task) -> usize {
        let (row, column) = blocks[task.piece()];
        task.side().ends(row, column).0
    }

    /// Follows the steps; returns the number of loads.
    fn follow(
        parts: usize,
        (symmetric, both): (bool, bool),
        group: usize,
        slots: usize,
        any_order: bool,
    ) -> usize {
        let (lists, blocks) = grid(parts, symmetric, both);
        let of = |task| source_of(&blocks, task);
        let mut cached = Cached::new(parts, slots);
        let mut here = BTreeSet::new();
        let mut loads = 0;
        for group in (0..parts).collect::<Vec<_>>().chunks(group) {
            let mut seen = vec![Vec::new(); parts];
            for step in plan_group(group, &lists, &of, any_order, &mut cached) {
                step.evict.into_iter().for_each(|evict| assert!(here.remove(&evict)));
                step.load.into_iter().for_each(|load| assert!(here.insert(load)));
                loads += usize::from(step.load.is_some());
                assert!(here.len() <= slots);
                for (target, tasks) in step.tasks {
                    assert!(tasks.is_sorted());
                    assert!(tasks.iter().all(|&task| here.contains(&of(task))));
                    seen[target].extend(tasks);
                }
            }
            for &target in group {
                if any_order {
                    seen[target].sort_unstable();
                }
                assert_eq!(seen[target], lists[target]);
            }
        }
        loads
    }

    proptest! {
        #[test]
        fn every_target_does_its_tasks_in_order_with_what_is_loaded(
            parts in 1usize..14, symmetric: bool, both: bool, any_order: bool,
            group in 1usize..14, slots in 1usize..14,
        ) {
            follow(parts, (symmetric, both), group, slots, any_order);
        }
    }

    #[test]
    fn sources_come_by_once_for_a_group() {
        // Free order: all sources, except for those left in memory by the previous group.
        assert_eq!(follow(40, (true, false), 10, 1, true), 40 + 3 * 39);
        assert_eq!(follow(40, (true, false), 10, 5, true), 40 + 3 * 35);
        // In a wave, the first sources are loaded again at its end.
        assert!(follow(40, (false, false), 10, 1, false) <= 4 * 50);
        // With room for both windows of a symmetric grid, each source is loaded less than once,
        // because a group leaves sources for the next.
        assert!(follow(40, (true, false), 10, 20, false) <= 4 * 40);
        assert!(follow(40, (true, false), 20, 20, false) <= 2 * 40);
        // With half of that, sources are loaded again, but not for every target.
        assert!(follow(40, (true, false), 10, 10, false) <= 4 * 60);
    }
}
