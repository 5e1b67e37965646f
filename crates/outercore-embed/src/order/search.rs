use outercore_core::Uniform;

use super::{Pairs, Swap};

/// Most candidates for one step. If no step had more, a search that ends without being stopped
/// proves that there is no such order.
const KEPT: usize = 16;

/// Ranking of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taste {
    /// Whether the waste of a swap ranks before the choice of the evicted partition.
    pub waste_first: bool,
    /// Which partition to load, among equal candidates.
    pub load: LoadFirst,
}

/// Which partition to load, among equal candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFirst {
    /// Any partition.
    Any,
    /// The partition with the fewest unmet partitions.
    NearlyDone,
    /// The partition that leaves the fewest continuations, as in Warnsdorff's rule.
    FewestWaysOn,
}

/// Conditions on the swaps.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Number of partitions.
    pub partitions: usize,
    /// Partitions in memory.
    pub resident: usize,
    /// Whether a swap costs more if it leaves no new pair to train meanwhile (Legend's properties 1
    /// and 2).
    pub prefetch: bool,
}

impl Rules {
    /// Cost of `swaps` swaps, `unhidden` of which leave nothing to train meanwhile. A swap costs
    /// one for each pair that it could cover. An unhidden swap costs slightly more than another
    /// swap in addition.
    pub fn cost(self, swaps: usize, unhidden: usize) -> usize {
        swaps * (self.resident - 1) + if self.prefetch { unhidden * self.resident } else { 0 }
    }
}

/// Result of a search.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Swaps that satisfy the rules.
    Swaps(Vec<Swap>),
    /// An exhaustive search found none.
    Nothing,
    /// The work was used up.
    Stopped,
}

/// A depth-first search for swaps that bring every two partitions together.
///
/// A swap can cover `resident - 1` new pairs. The pairs that it misses are its *waste*, and so is
/// the extra cost of an unhidden swap. An order of a given cost has a limited total waste, which
/// prunes the search early: a partition outside memory with fewer than `resident - 1` unmet
/// partitions will waste the difference when it is loaded.
pub struct Search {
    rules: Rules,
    taste: Taste,
    pairs: Pairs,
    buffer: Vec<usize>,
    in_memory: Vec<bool>,
    /// For each partition, the number of partitions in memory that it has not yet met.
    would_meet: Vec<usize>,
    /// The steps so far.
    steps: Vec<Step>,
    waste: usize,
    /// Future waste of partitions outside memory.
    coming_waste: usize,
    /// Number of examined swaps.
    work: u64,
}

struct Step {
    swap: Swap,
    slot: usize,
    /// The partitions that the loaded partition met for the first time.
    met: Vec<usize>,
    waste: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Rank; smaller is better.
    rank: u64,
    slot: usize,
    loaded: usize,
    waste: usize,
}

impl Search {
    /// A search that starts from the state `0..resident`.
    pub fn new(rules: Rules, taste: Taste) -> Self {
        let Rules { partitions, resident, .. } = rules;
        let buffer: Vec<usize> = (0..resident).collect();
        let mut pairs = Pairs::new(partitions);
        pairs.cover_all(&buffer);
        let in_memory = (0..partitions).map(|partition| partition < resident).collect();
        let would_meet = (0..partitions)
            .map(|partition| if partition < resident { 0 } else { resident })
            .collect();
        let mut search = Self {
            rules,
            taste,
            pairs,
            buffer,
            in_memory,
            would_meet,
            steps: Vec::new(),
            waste: 0,
            coming_waste: 0,
            work: 0,
        };
        search.coming_waste = (resident..partitions).map(|away| search.waste_of(away)).sum();
        search
    }

    /// Searches for swaps that waste at most `allowed`, and stops after `work` examined swaps.
    ///
    /// Also returns the number of examined swaps.
    pub fn run(mut self, allowed: usize, work: u64, draws: &mut Uniform) -> (Found, u64) {
        let mut complete = true;
        let mut open: Vec<Vec<Candidate>> = vec![self.candidates(allowed, draws, &mut complete)];
        while self.pairs.left() > 0 {
            if self.work > work {
                return (Found::Stopped, self.work);
            }
            let Some(level) = open.last_mut() else {
                return (if complete { Found::Nothing } else { Found::Stopped }, self.work);
            };
            match level.pop() {
                Some(next) => {
                    self.step(next);
                    open.push(self.candidates(allowed, draws, &mut complete));
                }
                None => {
                    open.pop();
                    if !open.is_empty() {
                        self.step_back();
                    }
                }
            }
        }
        let swaps = self.steps.iter().map(|step| step.swap).collect();
        (Found::Swaps(swaps), self.work)
    }

    /// The swaps to try from here, the best one last.
    fn candidates(
        &mut self,
        allowed: usize,
        draws: &mut Uniform,
        complete: &mut bool,
    ) -> Vec<Candidate> {
        let most_new = self.rules.resident - 1;
        let noise = draws.next_u64();
        let mut found = Vec::new();
        for slot in 0..self.buffer.len() {
            let evicted = self.buffer[slot];
            let unhidden = self.unhidden(evicted);
            let left_behind = self.waste_of(evicted);
            for loaded in 0..self.rules.partitions {
                if self.in_memory[loaded] || self.pairs.missing_of(loaded) == 0 {
                    continue;
                }
                self.work += 1;
                let new =
                    self.would_meet[loaded] - usize::from(self.pairs.missing(loaded, evicted));
                let waste = most_new - new + unhidden;
                let in_all =
                    self.waste + waste + self.coming_waste + left_behind - self.waste_of(loaded);
                if in_all > allowed {
                    continue;
                }
                let rank = self.rank(slot, loaded, unhidden, most_new - new + left_behind);
                let draw = (noise ^ (slot * self.rules.partitions + loaded) as u64)
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                    >> 54;
                found.push(Candidate { rank: rank << 10 | draw, slot, loaded, waste });
            }
        }
        if found.len() > KEPT {
            *complete = false;
            found.select_nth_unstable(KEPT);
            found.truncate(KEPT);
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    /// The extra cost if no new pair remains to train while `evicted` is swapped; otherwise 0.
    fn unhidden(&self, evicted: usize) -> usize {
        let Some(last) = self.steps.last().filter(|_| self.rules.prefetch) else { return 0 };
        let stays_new = last.met.iter().any(|&other| other != evicted);
        if last.swap.loaded != evicted && stays_new { 0 } else { self.rules.resident }
    }

    /// The least waste of the next load of a partition outside memory.
    fn waste_of(&self, partition: usize) -> usize {
        match self.pairs.missing_of(partition) {
            0 => 0,
            missing => (self.rules.resident - 1).saturating_sub(missing),
        }
    }

    fn rank(&self, slot: usize, loaded: usize, unhidden: usize, wasted: usize) -> u64 {
        // Evict finished partitions first, then the partition with the most unmet ones. So the
        // partition with the fewest unmet ones stays and is completed.
        let evict = match self.pairs.missing_of(self.buffer[slot]) {
            0 => 0,
            missing => 1 + self.rules.partitions - missing,
        };
        let load = match self.taste.load {
            LoadFirst::Any => 0,
            LoadFirst::NearlyDone => self.pairs.missing_of(loaded),
            LoadFirst::FewestWaysOn => self.ways_on(slot, loaded),
        };
        let by_weight = match self.taste.waste_first {
            true => [unhidden, wasted, evict, load],
            false => [unhidden, evict, wasted, load],
        };
        by_weight.into_iter().fold(0, |rank, part| rank << 12 | part as u64)
    }

    /// Number of possible next loads: partitions that have met neither `loaded` nor the remaining
    /// partition with the fewest unmet ones.
    fn ways_on(&self, slot: usize, loaded: usize) -> usize {
        let staying = (0..self.buffer.len()).filter(|&other| other != slot);
        let nearest = staying
            .map(|other| self.buffer[other])
            .map(|other| (self.pairs.missing_of(other), other))
            .map(|(missing, other)| {
                (missing - usize::from(self.pairs.missing(other, loaded)), other)
            })
            .filter(|&(missing, _)| missing > 0)
            .min();
        let Some((_, nearest)) = nearest else { return 0 };
        (0..self.rules.partitions)
            .filter(|&next| !self.in_memory[next])
            .filter(|&next| self.pairs.missing(loaded, next) && self.pairs.missing(nearest, next))
            .count()
    }

    fn step(&mut self, Candidate { slot, loaded, waste, .. }: Candidate) {
        let evicted = self.buffer[slot];
        self.coming_waste -= self.waste_of(loaded);
        self.coming_waste += self.waste_of(evicted);
        self.exchange(slot, loaded);
        let met: Vec<usize> = self
            .buffer
            .iter()
            .copied()
            .filter(|&other| self.pairs.missing(loaded, other))
            .collect();
        for &other in &met {
            self.pairs.cover(loaded, other);
            self.would_meet[loaded] -= 1;
            self.would_meet[other] -= 1;
        }
        self.waste += waste;
        self.steps.push(Step { swap: Swap { evicted, loaded }, slot, met, waste });
    }

    fn step_back(&mut self) {
        let Step { swap: Swap { evicted, loaded }, slot, met, waste } =
            self.steps.pop().expect("a step was made");
        self.waste -= waste;
        for &other in &met {
            self.pairs.uncover(loaded, other);
            self.would_meet[loaded] += 1;
            self.would_meet[other] += 1;
        }
        self.exchange(slot, evicted);
        self.coming_waste -= self.waste_of(evicted);
        self.coming_waste += self.waste_of(loaded);
    }

    /// Replaces the partition in a slot by `loaded`.
    fn exchange(&mut self, slot: usize, loaded: usize) {
        let evicted = std::mem::replace(&mut self.buffer[slot], loaded);
        self.in_memory[evicted] = false;
        self.in_memory[loaded] = true;
        for partition in 0..self.rules.partitions {
            self.would_meet[partition] -= usize::from(self.pairs.missing(partition, evicted));
            self.would_meet[partition] += usize::from(self.pairs.missing(partition, loaded));
        }
    }
}
