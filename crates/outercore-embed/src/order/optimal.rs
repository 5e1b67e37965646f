use outercore_core::Stream;

use super::search::{Found, LoadFirst, Rules, Search, Taste};
use super::{Order, OrderConfig, OrderKind, Swap, SwapMode, check, legend, partition_order};

/// Searches take turns with these; each is the best for some numbers of partitions and slots.
const TASTES: [Taste; 4] = [
    Taste { waste_first: true, load: LoadFirst::NearlyDone },
    Taste { waste_first: true, load: LoadFirst::FewestWaysOn },
    Taste { waste_first: false, load: LoadFirst::NearlyDone },
    Taste { waste_first: true, load: LoadFirst::Any },
];

/// A search is given up after so many times the work of going to the end without a mistake: a
/// fresh beginning mends more than the last few swaps.
const PATIENCE: u64 = 8;

/// After so many searches the next ones may take twice as long: what does not exist is found out
/// by looking at everything.
const IMPATIENT: u64 = 384;

/// Searches for an order as long as the best one that is as good backwards.
const TURNS: usize = 64;

/// The fewest states that bring every two partitions together with one swap from each to the
/// next: the first makes the pairs of those in memory, every other one at most one pair with each
/// that stays.
///
/// # Panics
/// If there are more partitions than one and room for fewer than two.
///
/// # Example
/// ```
/// assert_eq!(outercore_embed::lower_bound(16, 3), 60);
/// ```
pub fn lower_bound(partitions: usize, resident: usize) -> usize {
    if partitions <= resident {
        return 1;
    }
    1 + pairs_to_come(partitions, resident).div_ceil(resident - 1)
}

fn pairs_to_come(partitions: usize, resident: usize) -> usize {
    partitions * (partitions - 1) / 2 - resident * (resident - 1) / 2
}

/// The cheapest list of swaps that a search finds, from the state `0..resident` on.
///
/// It begins with the best order that a rule makes and looks for cheaper ones, again and again
/// with other draws, until one has as few states as counting allows or the work is done. With a
/// spare slot the cheapest is the shortest. With swaps in place, and three partitions or more in
/// memory, a swap during which nothing new can be trained costs a little more than two that leave
/// something: such swaps are found in the orders of many partitions only. Backwards the same order
/// may have a few; among equals one that has none is preferred.
pub fn swaps(config: &OrderConfig, resident: usize) -> Vec<Swap> {
    // Of two partitions one is evicted: nothing is left that has two ends.
    let prefetch = config.mode == SwapMode::InPlace && resident > 2;
    let rules = Rules { partitions: config.partitions, resident, prefetch };
    let by_rule = orders_by_rule(config, resident);
    let by_rule = by_rule.iter().map(|order| Best::new(rules, order));
    let mut best = by_rule.min_by_key(Best::rank).expect("two orders take any numbers");
    let least = rules.cost(lower_bound(rules.partitions, resident) - 1, 0);
    let (mut work, mut turns) = (config.work, TURNS);
    for attempt in 0.. {
        let again = !best.both_ways && turns > 0;
        if work == 0 || (best.cost == least && !again) {
            break;
        }
        turns -= usize::from(again);
        // Even where nothing has to be hidden the rule leads to short orders more often than not.
        let round = attempt as usize / TASTES.len();
        let rules =
            Rules { prefetch: prefetch || (resident > 2 && round.is_multiple_of(2)), ..rules };
        let allowed = best.cost - usize::from(!again) - pairs_to_come(rules.partitions, resident);
        let straight = (best.swaps.len() * resident * rules.partitions) as u64;
        let mut draws = Stream::new(config.seed, attempt).uniform(0, 0, rules.partitions as u64);
        let search = Search::new(rules, TASTES[attempt as usize % TASTES.len()]);
        let patience = straight.saturating_mul(PATIENCE << (attempt / IMPATIENT).min(30));
        let (found, done) = search.run(allowed, work.min(patience), &mut draws);
        work = work.saturating_sub(done);
        match found {
            Found::Swaps(swaps) => {
                let order = Order::new(config, (0..resident).collect(), &swaps);
                let found = Best::new(Rules { prefetch, ..rules }, &order);
                if found.rank() < best.rank() {
                    best = found;
                }
            }
            Found::Stopped => {}
            Found::Nothing if rules.prefetch != prefetch => {}
            Found::Nothing => break,
        }
    }
    best.swaps
}

/// The best order so far.
struct Best {
    swaps: Vec<Swap>,
    cost: usize,
    /// Whether every swap leaves something new to train backwards, too.
    both_ways: bool,
}

impl Best {
    fn new(rules: Rules, order: &Order) -> Self {
        let cost = rules.cost(order.swaps(), unhidden(order));
        let both_ways = !rules.prefetch || unhidden(&order.reversed()) == 0;
        Self {
            swaps: order.states.iter().filter_map(|state| state.swap).collect(),
            cost,
            both_ways,
        }
    }

    fn rank(&self) -> (usize, bool) {
        (self.cost, !self.both_ways)
    }
}

/// Swaps that leave no new pair to train meanwhile.
fn unhidden(order: &Order) -> usize {
    let facts = check(order).expect("orders are made right");
    facts.evicts_last_loaded + facts.nothing_new_stays
}

/// The orders made by a rule that begin as the search does.
fn orders_by_rule(config: &OrderConfig, resident: usize) -> Vec<Order> {
    [OrderKind::Legend, OrderKind::Beta, OrderKind::Sequential]
        .into_iter()
        .filter(|&kind| kind != OrderKind::Legend || resident == legend::RESIDENT)
        .filter_map(|kind| partition_order(&OrderConfig { kind, ..config.clone() }).ok())
        .collect()
}
