//! A pass over tables. Target partitions are opened, receive values over their arcs, and are
//! closed: in memory all together, otherwise group by group.

use outercore_core::{Bytes, Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::steps::{Cached, StepPlan, plan_group};
use super::stored::Stored;
use super::table::{Away, Table};
use super::traffic::Traffic;
use crate::checkpoint::{Checkpoints, Saved, WriteTo};
use crate::partitions::each_partition;
use crate::program::{EdgeProgram, Passes, Selection};
use crate::task::Task;

/// Result of closing a partition.
#[derive(Clone, Copy, Debug)]
pub struct Closed<T> {
    /// Report to the algorithm.
    pub report: T,
    /// Whether the shown state has changed.
    pub shown: bool,
    /// Whether the own state has changed.
    pub own: bool,
}

/// The work of a pass on the state of a partition. State is stored in three tables: *shown* state,
/// which other partitions read; *fixed* state, which never changes; and *own* state, which only the
/// partition uses.
///
/// # Contract
/// The result of a sweep depends only on the values before it, not on its groups.
pub trait Step: Sync {
    /// The work per arc.
    type Program: EdgeProgram<Source = Self::Shown, Target = Self::Target>;
    /// State that other partitions read.
    type Shown: Stored + Clone + Default;
    /// State that never changes.
    type Fixed: Stored + Default;
    /// State that other partitions do not read.
    type Own: Stored + Default;
    /// State that arcs change.
    type Target: Send + Default;
    /// The algorithm's report about a closed partition.
    type Report: Send;
    /// Which state is read, and when.
    const TRAFFIC: Traffic;
    /// Whether a target may receive its sources in any order.
    const ANY_ORDER: bool;
    /// Whether a target without incoming values need not be closed.
    const QUIET: bool;
    /// Whether targets gather values; [`Step::room`] is then their memory.
    const GATHERS: bool = false;
    /// The program for the arcs.
    fn program(&self) -> &Self::Program;
    /// Bytes of a target's gathered values, in addition to the planned bytes per node.
    fn room(&self, _fixed: &Self::Fixed) -> u64 {
        0
    }
    /// Opens a target. Its own state can be moved into it.
    fn open(
        &self,
        partition: usize,
        shown: &Self::Shown,
        fixed: &Self::Fixed,
        own: &mut Self::Own,
    ) -> Self::Target;
    /// Closes a target: sets its own state, and its shown state for the next sweep.
    fn close(
        &self,
        partition: usize,
        target: Self::Target,
        shown: &mut Self::Shown,
        fixed: &Self::Fixed,
        own: &mut Self::Own,
    ) -> Closed<Self::Report>;
}

/// The state on which a step works.
pub struct Tables<S: Step> {
    /// State that other partitions read.
    pub shown: Table<S::Shown>,
    /// State that never changes.
    pub fixed: Table<S::Fixed>,
    /// State that other partitions do not read.
    pub own: Table<S::Own>,
    /// By partition: memory of gathered values; empty until needed.
    rooms: Vec<u64>,
}

impl<S: Step> Tables<S> {
    /// The initial state of an algorithm, or the state and the loop of the checkpoint to resume
    /// from. Fixed state is not part of a checkpoint.
    pub(crate) fn begin<R: Passes, L: DeserializeOwned>(
        run: &mut R,
        mut fixed: Table<S::Fixed>,
        mut shown: impl FnMut(&mut R, usize, &S::Fixed) -> Result<S::Shown>,
        mut own: impl FnMut(&mut R, usize) -> Result<S::Own>,
    ) -> Result<(Self, Option<L>)> {
        let resumed = run.checkpoints().and_then(Checkpoints::resume);
        let (mut from, at) = match resumed {
            Some((from, at)) => (Some(from), Some(parse(at)?)),
            None => (None, None),
        };
        let shown = Table::build(run, 2, |run, partition| {
            let made = match from.is_some() && partition > 0 {
                true => S::Shown::default(),
                false => fixed.with(partition, |fixed| shown(run, partition, fixed))?,
            };
            kept(&mut from, run, partition, made)
        })?;
        let own = match S::TRAFFIC.open_own {
            true => Table::build(run, 1, |run, partition| {
                let made = own(run, partition)?;
                kept(&mut from, run, partition, made)
            })?,
            false => {
                let like = own(run, 0)?;
                Table::blank(run, &like)?
            }
        };
        if let Some(from) = from {
            from.end()?;
        }
        if let Some(checkpoints) = run.checkpoints() {
            checkpoints.begin();
        }
        Ok((Self { shown, fixed, own, rooms: Vec::new() }, at))
    }

    /// Tables for a single sweep, without shown state, in which the own state is created.
    pub(crate) fn once<R: Passes>(run: &mut R, own: &S::Own) -> Result<Self> {
        Ok(Self {
            shown: Table::build(run, 1, |_, _| Ok(S::Shown::default()))?,
            fixed: Table::build(run, 1, |_, _| Ok(S::Fixed::default()))?,
            own: Table::blank(run, own)?,
            rooms: Vec::new(),
        })
    }

    /// Called between sweeps, with the loop in state `at`: writes a checkpoint if it is due.
    ///
    /// # Errors
    /// A failed write; a stop request, after the checkpoint.
    pub(crate) fn checkpoint<R: Passes, L: Serialize>(
        &mut self,
        run: &mut R,
        at: &L,
    ) -> Result<()> {
        let Some(checkpoints) = run.checkpoints().filter(|checkpoints| checkpoints.is_due()) else {
            return Ok(());
        };
        let at = serde_json::to_value(at)
            .map_err(|error| Error::internal(format!("loop of a checkpoint: {error}")))?;
        checkpoints.write(at, &mut |write| {
            self.shown.each(|_, value| write_columns(value, write))?;
            if S::TRAFFIC.open_own {
                self.own.each(|_, value| write_columns(value, write))?;
            }
            Ok(())
        })
    }

    /// Makes a pass: the selected targets receive the shown state of the selected sources. Returns
    /// reports by partition; `None` for partitions that were not selected. `again` means that a
    /// pass over the same selection will probably follow.
    ///
    /// # Cost
    /// In memory, one pass. From scratch files, one pass in groups: each group reads the state of
    /// its targets and, about once, the shown state of all sources, and writes the new state of its
    /// targets.
    ///
    /// # Errors
    /// A failed or corrupt read; a full scratch disk; a stop request.
    pub(crate) fn sweep<R: Passes>(
        &mut self,
        run: &mut R,
        step: &S,
        select: &Selection<'_>,
        again: bool,
    ) -> Result<Vec<Option<S::Report>>> {
        if S::GATHERS && self.rooms.is_empty() {
            let rooms = &mut self.rooms;
            self.fixed.each(|_, fixed| {
                rooms.push(step.room(fixed));
                Ok(false)
            })?;
        }
        let rooms = &self.rooms[..];
        match (&mut self.shown, &mut self.fixed, &mut self.own) {
            (Table::Here(shown), Table::Here(fixed), Table::Here(own)) => {
                let here = Here::<S> { shown, fixed, own, rooms };
                sweep_here(run, step, here, select, again)
            }
            (Table::Away(shown), Table::Away(fixed), Table::Away(own)) => {
                let sweep = Sweep::new(run, step, shown, fixed, own, rooms, select);
                let reports = sweep.all()?;
                shown.settle();
                own.settle();
                Ok(reports)
            }
            _ => unreachable!("the tables of a run are in the same place"),
        }
    }
}

fn parse<L: DeserializeOwned>(at: serde_json::Value) -> Result<L> {
    serde_json::from_value(at).map_err(|error| Error::corrupt(format!("checkpoint: {error}")))
}

/// The value of a partition in a checkpoint, with the same kind as `made`; `made` without a
/// checkpoint.
fn kept<R: Passes, T: Stored>(
    from: &mut Option<Saved>,
    run: &R,
    partition: usize,
    made: T,
) -> Result<T> {
    let Some(from) = from else { return Ok(made) };
    let mut value = made.like(run.shape().partition_len(partition));
    for column in value.columns_mut() {
        from.read(column)?;
    }
    value.restored(partition);
    Ok(value)
}

fn write_columns<T: Stored>(value: &T, write: WriteTo<'_>) -> Result<bool> {
    value.columns().into_iter().try_for_each(write)?;
    Ok(false)
}

/// Groups of at most `most` partitions whose targets fit into memory together; each group has at
/// least one.
fn grouped(
    wanted: impl Iterator<Item = usize>,
    rooms: &[u64],
    most: usize,
    room: Bytes,
) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut used = 0;
    for partition in wanted {
        let bytes = rooms.get(partition).copied().unwrap_or(0);
        match groups.last_mut() {
            Some(group) if group.len() < most && (bytes == 0 || used + bytes <= room.0) => {
                group.push(partition);
                used += bytes;
            }
            _ => {
                groups.push(vec![partition]);
                used = bytes;
            }
        }
    }
    groups
}

/// Tables in memory.
struct Here<'a, S: Step> {
    shown: &'a mut [S::Shown],
    fixed: &'a [S::Fixed],
    own: &'a mut [S::Own],
    rooms: &'a [u64],
}

fn sweep_here<R: Passes, S: Step>(
    run: &mut R,
    step: &S,
    Here { shown, fixed, own, rooms }: Here<'_, S>,
    select: &Selection<'_>,
    again: bool,
) -> Result<Vec<Option<S::Report>>> {
    let partitions = shown.len();
    let wanted = (0..partitions).filter(|&partition| select.targets[partition]);
    let groups = grouped(wanted, rooms, usize::MAX, run.working());
    // With several groups, the shown state is still read until the last group is finished.
    let alone = groups.len() <= 1;
    if alone && again {
        run.expect(select);
    }
    let mut reports: Vec<Option<S::Report>> = (0..partitions).map(|_| None).collect();
    let mut aside: Vec<(usize, S::Shown)> = Vec::new();
    let mut targets: Vec<S::Target> = (0..partitions).map(|_| S::Target::default()).collect();
    for group in groups {
        let mut mask = vec![false; partitions];
        group.iter().for_each(|&partition| mask[partition] = true);
        let mut both: Vec<_> = targets.iter_mut().zip(own.iter_mut()).collect();
        each_partition(run, &mut both, |partition, (target, own)| {
            if mask[partition] {
                **target = step.open(partition, &shown[partition], &fixed[partition], own);
            }
        });
        let select = Selection { targets: &mask, ..*select };
        run.pass(step.program(), shown, &mut targets, &select)?;
        let close =
            |partition: usize, target: &mut S::Target, shown: &mut S::Shown, own: &mut _| {
                let target = std::mem::take(target);
                step.close(partition, target, shown, &fixed[partition], own)
            };
        let mut both: Vec<_> = targets.iter_mut().zip(own.iter_mut()).collect();
        let closed = if alone {
            let mut all: Vec<_> = both.into_iter().zip(shown.iter_mut()).collect();
            each_partition(run, &mut all, |partition, ((target, own), shown)| {
                mask[partition].then(|| (None, close(partition, target, shown, own)))
            })
        } else {
            each_partition(run, &mut both, |partition, (target, own)| {
                mask[partition].then(|| {
                    let mut shown = shown[partition].clone();
                    let closed = close(partition, target, &mut shown, own);
                    (closed.shown.then_some(shown), closed)
                })
            })
        };
        for (partition, closed) in closed.into_iter().enumerate() {
            let Some((shown, closed)) = closed else { continue };
            reports[partition] = Some(closed.report);
            aside.extend(shown.map(|shown| (partition, shown)));
        }
    }
    for (partition, new) in aside {
        shown[partition] = new;
    }
    Ok(reports)
}

/// A sweep over tables in scratch files.
struct Sweep<'a, R, S: Step> {
    run: &'a mut R,
    step: &'a S,
    shown: &'a mut Away<S::Shown>,
    fixed: &'a Away<S::Fixed>,
    own: &'a mut Away<S::Own>,
    weights: bool,
    lists: Vec<Vec<Task>>,
    groups: Vec<Vec<usize>>,
    cached: Cached,
    /// The loaded sources; all others are empty.
    sources: Vec<S::Shown>,
    targets: Vec<S::Target>,
    reports: Vec<Option<S::Report>>,
}

impl<'a, R: Passes, S: Step> Sweep<'a, R, S> {
    fn new(
        run: &'a mut R,
        step: &'a S,
        shown: &'a mut Away<S::Shown>,
        fixed: &'a Away<S::Fixed>,
        own: &'a mut Away<S::Own>,
        rooms: &[u64],
        select: &Selection<'_>,
    ) -> Self {
        let partitions = select.targets.len();
        let lists = run.tasks(select);
        let slots = run.spill().map(|spill| spill.slots()).unwrap_or_else(|| unreachable!());
        let wanted = (0..partitions)
            .filter(|&part| select.targets[part] && !(S::QUIET && lists[part].is_empty()));
        let groups = grouped(wanted, rooms, slots.group, run.working());
        Self {
            run,
            step,
            shown,
            fixed,
            own,
            weights: select.weights,
            lists,
            groups,
            cached: Cached::new(partitions, slots.sources),
            sources: (0..partitions).map(|_| S::Shown::default()).collect(),
            targets: (0..partitions).map(|_| S::Target::default()).collect(),
            reports: (0..partitions).map(|_| None).collect(),
        }
    }

    fn all(mut self) -> Result<Vec<Option<S::Report>>> {
        let groups = std::mem::take(&mut self.groups);
        self.run.begin_portions();
        for group in &groups {
            self.group(group)?;
        }
        self.run.end_portions();
        Ok(self.reports)
    }

    fn group(&mut self, group: &[usize]) -> Result<()> {
        let traffic = S::TRAFFIC;
        let mut owns: Vec<S::Own> = Vec::with_capacity(group.len());
        for &partition in group {
            let shown = load_if(traffic.open_shown, self.shown, partition)?;
            let fixed = load_if(traffic.open_fixed, self.fixed, partition)?;
            let mut own = match traffic.open_own {
                true => self.own.load(partition)?,
                false => self.own.blank(partition),
            };
            self.targets[partition] = self.step.open(partition, &shown, &fixed, &mut own);
            owns.push(own);
        }
        let run = &*self.run;
        let source_of = |task| run.source_of(task);
        let steps = plan_group(group, &self.lists, &source_of, S::ANY_ORDER, &mut self.cached);
        self.steps(steps)?;
        for (&partition, mut own) in group.iter().zip(owns) {
            let mut shown = load_if(traffic.close_shown, self.shown, partition)?;
            let fixed = load_if(traffic.close_fixed, self.fixed, partition)?;
            let target = std::mem::take(&mut self.targets[partition]);
            let closed = self.step.close(partition, target, &mut shown, &fixed, &mut own);
            if closed.shown {
                self.shown.store(partition, &shown)?;
            }
            if closed.own {
                self.own.store(partition, &own)?;
            }
            self.reports[partition] = Some(closed.report);
        }
        Ok(())
    }

    /// Executes the steps of a group; the state for the next step is loaded while one step is
    /// computed.
    fn steps(&mut self, steps: Vec<StepPlan>) -> Result<()> {
        let partitions = self.targets.len();
        let lists = |step: &StepPlan| {
            let mut lists = vec![Vec::new(); partitions];
            for (target, tasks) in &step.tasks {
                lists[*target].clone_from(tasks);
            }
            lists
        };
        let mut loaded = match steps.first().and_then(|step| step.load) {
            Some(source) => Some((source, self.shown.load(source)?)),
            None => None,
        };
        for (at, step) in steps.iter().enumerate() {
            if let Some(evicted) = step.evict {
                self.sources[evicted] = S::Shown::default();
            }
            if let Some((source, shown)) = loaded.take() {
                self.sources[source] = shown;
            }
            let next = steps.get(at + 1);
            let next_tasks = next.map(lists);
            let (shown, sources, targets) = (&*self.shown, &self.sources, &mut self.targets);
            let (run, step_of) = (&mut *self.run, self.step);
            let weights = self.weights;
            let load = next.and_then(|next| next.load);
            let compute = |run: &mut R| {
                let program = step_of.program();
                run.portion(program, sources, targets, weights, lists(step), next_tasks)
            };
            let (computed, brought) = std::thread::scope(|scope| {
                let brought = load.map(|source| {
                    scope.spawn(move || shown.load(source).map(|value| (source, value)))
                });
                let computed = compute(run);
                let panicked = || Error::internal("a load of state panicked");
                let brought = brought
                    .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
                    .transpose();
                (computed, brought)
            });
            computed?;
            loaded = brought?;
        }
        Ok(())
    }
}

fn load_if<T: Stored + Default>(wanted: bool, table: &Away<T>, partition: usize) -> Result<T> {
    if wanted { table.load(partition) } else { Ok(T::default()) }
}
