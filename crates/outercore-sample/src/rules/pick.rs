//! Chooses among some edges: a function only of their numbers and the draws.

use outercore_core::Uniform;

use crate::config::FanOut;
use crate::pick::{Picker, Taken};

/// Separates the random numbers of sources from other draws of the same hop.
pub(super) const OF_SOURCES: u32 = 0x80;

/// Places of in-edges among all in-edges of a node.
pub(super) type Places = Vec<u64>;

/// The key of a number with a draw in `[0, 1)` and a weight.
///
/// Taking the numbers with the smallest keys is a choice without replacement, in proportion to the
/// weights.
pub(super) fn key(draw: f64, weight: f64) -> f64 {
    -(1.0 - draw).ln() / weight
}

/// The `count` numbers with the smallest keys, or all of them, in this order; among equal keys the
/// smaller numbers first.
pub(super) fn first(mut keyed: Vec<(f64, u64)>, count: usize) -> Vec<u64> {
    let by_key = |a: &(f64, u64), b: &(f64, u64)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if count < keyed.len() {
        keyed.select_nth_unstable_by(count, by_key);
        keyed.truncate(count);
    }
    keyed.sort_unstable_by(by_key);
    keyed.into_iter().map(|(_, number)| number).collect()
}

/// The choice of `picker` from `among`, each equally likely; ascending without replacement.
pub(super) fn uniform(
    picker: Picker,
    among: &[u64],
    draws: impl FnOnce() -> Uniform,
    taken: &mut Taken,
) -> Places {
    let mut places = vec![0; picker.count(among.len() as u64) as usize];
    picker.pick(among.len() as u64, draws, &mut places, taken);
    places.into_iter().map(|place| among[place as usize]).collect()
}

/// A choice from `among` in proportion to weights, none of which is negative.
///
/// Without replacement, each edge has a draw, and the smallest [keys](key) win; the result is
/// sorted by place. With replacement, each draw is located in the cumulative sums of the weights.
pub(super) fn weighted(
    fan_out: FanOut,
    replace: bool,
    among: &[u64],
    weights: &[f64],
    mut draws: Uniform,
) -> Places {
    let possible = among.iter().copied().zip(weights.iter().copied()).filter(|&(_, w)| w > 0.0);
    let FanOut::Take(count) = fan_out else { return possible.map(|(place, _)| place).collect() };
    if replace {
        let (places, mut sums): (Places, Vec<f64>) = possible.unzip();
        let mut sum = 0.0;
        for weight in &mut sums {
            sum += *weight;
            *weight = sum;
        }
        if places.is_empty() {
            return places;
        }
        let draw = |_| {
            let at = draws.unit() * sum;
            places[sums.partition_point(|&end| end <= at).min(places.len() - 1)]
        };
        return (0..count).map(draw).collect();
    }
    let keyed = possible.map(|(place, weight)| (key(draws.unit(), weight), place)).collect();
    let mut places = first(keyed, count as usize);
    places.sort_unstable();
    places
}

/// The places of `among` whose source's number is at most `fan-out / degree`.
pub(super) fn labor(fan_out: FanOut, among: &[u64], number: impl Fn(u64) -> f64) -> Places {
    let FanOut::Take(count) = fan_out else { return among.to_vec() };
    let limit = f64::from(count) / among.len() as f64;
    among.iter().copied().filter(|&place| number(place) < limit).collect()
}
