//! Moves from state to state: loads partitions, returns steps, and starts swaps.

use std::collections::VecDeque;

use outercore_core::{Error, Result};

use super::{Executor, Held};
use crate::journal::Position;
use crate::order::SwapMode;
use crate::step::{Part, Resident, Step, parts};
use crate::walk::Visits;

impl Executor {
    /// The next step of this state or a later one; `None` once at the end of every epoch.
    pub(super) fn next_step(&mut self) -> Result<Option<Step>> {
        loop {
            if std::mem::take(&mut self.epoch_ended) {
                return Ok(None);
            }
            if !self.entered {
                self.enter()?;
            }
            if let Some(part) = self.parts.pop_front() {
                return self.hand_out(part).map(Some);
            }
            self.leave()?;
        }
    }

    /// Loads the partitions of the current state that are missing, and lists its steps.
    fn enter(&mut self) -> Result<()> {
        if let Some(partitions) = self.brings_back.take() {
            self.load_again(&partitions)?;
        }
        let resident = self.state().resident.clone();
        for &partition in &resident {
            if self.slot_of(partition).is_none() {
                let free = |held: &Option<Held>| {
                    held.is_none_or(|held| !resident.contains(&held.partition))
                };
                let empty = self.held.iter().position(Option::is_none);
                let slot = empty
                    .or_else(|| self.held.iter().position(free))
                    .ok_or_else(|| Error::internal(format!("no slot for partition {partition}")))?;
                self.exchange(&[(slot, Some(partition))])?;
            }
        }
        let state = self.position.state;
        self.parts = match self.parts_ahead.pop_front() {
            Some((of, parts)) if of == state => parts,
            _ => self.parts_of(state),
        };
        self.counters.states += 1;
        self.swap_begun = false;
        self.entered = true;
        Ok(())
    }

    /// Lists the steps of later states in this epoch, up to the first state that has one.
    pub(super) fn look_ahead(&mut self) {
        let next = self.position.state + usize::from(self.entered);
        let mut state = self.parts_ahead.back().map_or(next, |(state, _)| state + 1);
        let mut found = self.parts_ahead.iter().any(|(_, parts)| !parts.is_empty());
        while !found && state < self.walks.states() {
            let parts = self.parts_of(state);
            found = !parts.is_empty();
            self.parts_ahead.push_back((state, parts));
            state += 1;
        }
    }

    /// The steps of a state in the current epoch; states must be requested in order.
    fn parts_of(&mut self, state: usize) -> VecDeque<Part> {
        let epoch = self.position.epoch;
        let visits = self.visits_of(epoch, state);
        let (number, _) = self.walks.place_of(epoch, state);
        parts(visits, state, self.walks.walk(number).mode)
    }

    /// The visits of a state in an epoch; states must be requested in order.
    fn visits_of(&mut self, epoch: u64, state: usize) -> Visits {
        let mut visits = match self.visits.take() {
            Some(visits) if visits.epoch() == epoch && visits.next() <= state => visits,
            _ => self.walks.epoch(epoch),
        };
        // A run that was opened within an epoch skips the states that are already trained.
        while visits.next() < state {
            let (number, index) = self.walks.place_of(epoch, visits.next());
            visits.state(self.walks.walk(number), index);
        }
        let (number, index) = self.walks.place_of(epoch, state);
        let found = visits.state(self.walks.walk(number), index);
        self.visits = Some(visits);
        found
    }

    /// Builds the step, with the partitions that the caller may use.
    fn hand_out(&mut self, part: Part) -> Result<Step> {
        if part.during_swap {
            self.begin_swap()?;
        }
        self.current.clear();
        for partition in self.state().resident.clone() {
            let Some(slot) = self.slot_of(partition).filter(|&slot| self.slots[slot].is_some())
            else {
                continue;
            };
            let rows = self.layout.partitioning().rows(partition);
            self.current.push(Resident { partition, slot, rows });
            self.held[slot] = Some(Held { partition, changed: true });
        }
        let Position { epoch, state } = self.position;
        let Part { number, visits, ends_state, .. } = part;
        let (buckets, shares) = visits.into_iter().unzip();
        let resident = self.current.clone();
        let leaving = self.leaving();
        Ok(Step { epoch, state, number, buckets, shares, resident, leaving, ends_state })
    }

    /// The partitions of the current step that the next step may not have.
    fn leaving(&self) -> Vec<usize> {
        let index = self.index();
        let mut leaving: Vec<usize> = self.current.iter().map(|there| there.partition).collect();
        if self.parts.is_empty() {
            let stays = self.walk.staying(index, &self.walks.config());
            leaving.retain(|partition| !stays.contains(partition));
        } else {
            // The rest of the state is trained during these swaps.
            let swaps = self.walk.swaps_after(index);
            leaving.retain(|&partition| swaps.iter().any(|swap| swap.evicted == partition));
        }
        leaving
    }

    /// Completes the swap to the next state and moves there.
    pub(super) fn leave(&mut self) -> Result<()> {
        self.current.clear();
        self.begin_swap()?;
        self.finish()?;
        self.entered = false;
        self.position.state += 1;
        if self.position.state == self.walks.states() {
            self.position = Position { epoch: self.position.epoch + 1, state: 0 };
            self.epoch_ended = true;
        }
        let Position { epoch, state } = self.position;
        let (number, index) = self.walks.place_of(epoch, state);
        if index == 0 {
            self.walk = self.walks.walk(number).clone();
        }
        Ok(())
    }

    /// Starts the swaps to the next state, unless they have begun or there are none.
    fn begin_swap(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.swap_begun, true) {
            return Ok(());
        }
        let swaps = self.walk.swaps_after(self.index());
        let mut spare = self.spare_slots().into_iter();
        let mut exchanges = Vec::with_capacity(swaps.len());
        for swap in swaps {
            // With a spare slot the partition may still be in memory: a walk first loads the
            // partition that left last.
            if self.slot_of(swap.loaded).is_some() {
                continue;
            }
            let slot = match self.walk.mode {
                SwapMode::InPlace => self.slot_of(swap.evicted),
                SwapMode::SpareSlot => spare.next(),
            };
            let slot = slot.ok_or_else(|| Error::internal(format!("no slot for {swap:?}")))?;
            exchanges.push((slot, Some(swap.loaded)));
        }
        self.begin(&exchanges)
    }

    /// The slots without a partition of the current state.
    fn spare_slots(&self) -> Vec<usize> {
        let resident = &self.state().resident;
        let stays = |held: Held| resident.contains(&held.partition);
        (0..self.slots.len()).filter(|&slot| !self.held[slot].is_some_and(stays)).collect()
    }
}
