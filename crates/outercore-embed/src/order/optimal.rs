use outercore_core::Stream;

use super::search::{Found, LoadFirst, Rules, Search, Taste};
use super::{Order, OrderConfig, Swap, SwapMode, beta, check, legend, sequential};

/// Searches alternate between these. Each is the best for some numbers of partitions and slots.
const TASTES: [Taste; 4] = [
    Taste { waste_first: true, load: LoadFirst::NearlyDone },
    Taste { waste_first: true, load: LoadFirst::FewestWaysOn },
    Taste { waste_first: false, load: LoadFirst::NearlyDone },
    Taste { waste_first: true, load: LoadFirst::Any },
];

/// A search is abandoned after this many times the work of a search without backtracking. A new
/// start improves more than changing the last few swaps.
const PATIENCE: u64 = 8;

/// After this many searches, the next ones may take twice as long, because only an exhaustive
/// search proves that no order exists.
const IMPATIENT: u64 = 384;

/// Number of searches for an order of the same cost that is also good in reverse.
const TURNS: usize = 64;

/// The fewest states that bring every two partitions together with one swap between states. The
/// first state covers all pairs of its partitions; every other state covers at most one new pair
/// with each partition that stays.
///
/// # Panics
/// If there is more than one partition and room for fewer than two.
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

/// The cheapest list of swaps that a search finds, starting from the state `0..resident`.
///
/// The search starts from the best order of the other methods and looks for cheaper ones with new
/// random draws. It stops at the lower bound or when the work is used up. With a spare slot the
/// cheapest order is the shortest. With swaps in place and at least three partitions in memory, a
/// swap may leave nothing new to train meanwhile. Such a swap costs slightly more than two swaps
/// that leave something, and only occurs in orders of many partitions. In reverse the same order
/// may have a few such swaps; among equal orders, one without them is preferred.
pub fn swaps(config: &OrderConfig, resident: usize) -> Vec<Swap> {
    // With two partitions in memory, a swap evicts one, and no pair is left to train meanwhile.
    let prefetch = config.mode == SwapMode::InPlace && resident > 2;
    let rules = Rules { partitions: config.partitions, resident, prefetch };
    let by_rule = orders_by_rule(config, resident);
    let by_rule = by_rule.iter().map(|order| Best::new(rules, order));
    let mut best = by_rule.min_by_key(Best::rank).expect("two rules take any numbers");
    let least = rules.cost(lower_bound(rules.partitions, resident) - 1, 0);
    let (mut work, mut turns) = (config.work, TURNS);
    for attempt in 0.. {
        let again = !best.both_ways && turns > 0;
        if work == 0 || (best.cost == least && !again) {
            break;
        }
        turns -= usize::from(again);
        // Even if no swap has to be hidden, the prefetch rule leads to short orders more often than
        // not.
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
    /// Whether every swap leaves new pairs to train in reverse order, too.
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

/// Number of swaps that leave no new pair to train meanwhile.
fn unhidden(order: &Order) -> usize {
    let facts = check(order).expect("orders are made right");
    facts.evicts_last_loaded + facts.nothing_new_stays
}

/// The orders by rules that begin with the state `0..resident`.
///
/// No other kind of order is `sequential`, but with four and more partitions in memory it is
/// sometimes the shortest of these.
fn orders_by_rule(config: &OrderConfig, resident: usize) -> Vec<Order> {
    let legend = match resident {
        legend::RESIDENT => legend::swaps(config.partitions, resident).ok(),
        _ => None,
    };
    let rules = [beta::swaps, sequential::swaps].map(|swaps| swaps(config.partitions, resident));
    let all = legend.into_iter().chain(rules);
    all.map(|swaps| Order::new(config, (0..resident).collect(), &swaps)).collect()
}
