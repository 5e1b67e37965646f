//! Decides the next task of each thread in a pass: a state machine without threads or bytes.
//!
//! A task is a piece with a direction. The tasks of a target partition are executed one after the
//! other in file order, in whatever order their bytes arrive. Tasks of different partitions run in
//! parallel.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use outercore_grid::{Piece, Side};

use crate::program::{Flow, Selection};
use crate::task::Task;

/// The directions in which a piece is visited, in order.
pub fn sides(symmetric: bool, is_loop: bool, flow: Flow) -> &'static [Side] {
    const BOTH: &[Side] = &[Side::ToRows, Side::ToColumns];
    match flow {
        Flow::Once => &BOTH[..1],
        _ if symmetric && is_loop => &BOTH[..1],
        _ if symmetric => BOTH,
        Flow::Along => &BOTH[..1],
        Flow::Against => &BOTH[1..],
        Flow::Both => BOTH,
    }
}

/// Source and target partition of a piece for a direction.
pub fn ends(piece: &Piece, side: Side) -> (usize, usize) {
    let (row, column) = (piece.row_part as usize, piece.col_part as usize);
    side.ends(row, column)
}

/// The tasks of a pass, by target partition, each list in file order.
pub fn tasks(pieces: &[Piece], symmetric: bool, select: &Selection<'_>) -> Vec<Vec<Task>> {
    let mut tasks = vec![Vec::new(); select.targets.len()];
    for (number, piece) in pieces.iter().enumerate() {
        for &side in sides(symmetric, piece.is_loop, select.flow) {
            let (source, target) = ends(piece, side);
            if select.sources[source] && select.targets[target] {
                tasks[target].push(Task::new(number, side));
            }
        }
    }
    tasks
}

/// The state of all tasks: finished, executable, or waiting for bytes.
#[derive(Debug, Default)]
pub struct Schedule {
    tasks: Vec<Vec<Task>>,
    /// By list: number of finished tasks.
    done: Vec<usize>,
    segment_of: Arc<[u32]>,
    /// By segment: number of unfinished tasks.
    left: Vec<u32>,
    ready: Vec<bool>,
    /// By segment: the lists that wait for it.
    waiting: Vec<Vec<u32>>,
    /// Lists whose next task is executable, ordered by file position.
    claimable: BinaryHeap<Reverse<(Task, u32)>>,
    total: usize,
}

impl Schedule {
    /// Starts with the segments marked in `ready` in memory; `segment_of` is by piece.
    pub fn new(tasks: Vec<Vec<Task>>, segment_of: Arc<[u32]>, ready: Vec<bool>) -> Self {
        let mut left = vec![0; ready.len()];
        for task in tasks.iter().flatten() {
            left[segment_of[task.piece()] as usize] += 1;
        }
        let mut schedule = Self {
            done: vec![0; tasks.len()],
            total: tasks.iter().map(Vec::len).sum(),
            waiting: vec![Vec::new(); ready.len()],
            tasks,
            segment_of,
            left,
            ready,
            claimable: BinaryHeap::new(),
        };
        for list in 0..schedule.tasks.len() {
            schedule.offer(list as u32);
        }
        schedule
    }

    /// Number of unfinished tasks.
    pub fn tasks_left(&self) -> usize {
        self.total
    }

    /// Claims a task, and its list until [`Schedule::finish`]. This is the executable task that
    /// comes first in the file, so segments are processed in the order in which they are read.
    pub fn claim(&mut self) -> Option<(usize, Task)> {
        self.claimable.pop().map(|Reverse((task, list))| (list as usize, task))
    }

    /// Whether a task can be claimed.
    pub fn has_work(&self) -> bool {
        !self.claimable.is_empty()
    }

    /// Marks a claimed task as finished. Returns its segment if this was the segment's last task.
    pub fn finish(&mut self, list: usize, task: Task) -> Option<usize> {
        self.done[list] += 1;
        self.total -= 1;
        self.offer(list as u32);
        let segment = self.segment_of[task.piece()] as usize;
        self.left[segment] -= 1;
        (self.left[segment] == 0).then_some(segment)
    }

    /// Marks a segment as in memory. Returns the number of tasks that became claimable.
    pub fn arrived(&mut self, segment: usize) -> usize {
        self.ready[segment] = true;
        let lists = std::mem::take(&mut self.waiting[segment]);
        for &list in &lists {
            self.offer(list);
        }
        lists.len()
    }

    fn offer(&mut self, list: u32) {
        let Some(&task) = self.tasks[list as usize].get(self.done[list as usize]) else { return };
        let segment = self.segment_of[task.piece()] as usize;
        if self.ready[segment] {
            self.claimable.push(Reverse((task, list)));
        } else {
            self.waiting[segment].push(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_list_is_done_in_order_whatever_the_order_of_arrival(
            lists in prop::collection::vec(prop::collection::btree_set(0usize..40, 0..20), 1..6),
            arrival in Just((0usize..10).collect::<Vec<_>>()).prop_shuffle(),
            workers in 1usize..4,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let segment_of = (0..40).map(|piece| piece / 4).collect();
            let lists: Vec<Vec<Task>> = lists
                .into_iter()
                .map(|list| list.into_iter().map(|piece| Task::new(piece, Side::ToRows)).collect())
                .collect();
            let mut schedule = Schedule::new(lists.clone(), segment_of, vec![false; 10]);
            let mut arrival = arrival.into_iter();
            let mut claimed = Vec::new();
            let mut seen = vec![Vec::new(); lists.len()];
            let mut ended = [false; 10];
            let mut picks = picks.into_iter().cycle();
            while schedule.tasks_left() > 0 {
                while claimed.len() < workers && let Some(claim) = schedule.claim() {
                    claimed.push(claim);
                }
                if claimed.is_empty() {
                    let next = arrival.next();
                    prop_assert!(next.is_some(), "all has arrived and nothing can be done");
                    schedule.arrived(next.unwrap());
                    continue;
                }
                let at = picks.next().unwrap().index(claimed.len());
                let (list, task) = claimed.swap_remove(at);
                prop_assert!(claimed.iter().all(|other| other.0 != list), "a list is held once");
                seen[list].push(task);
                if let Some(segment) = schedule.finish(list, task) {
                    prop_assert!(!ended[segment]);
                    ended[segment] = true;
                }
            }
            prop_assert_eq!(seen, lists);
        }
    }
}
