//! Placements for unevenly spread triples, after the triples of every bucket were counted.

use outercore_core::{Bytes, Error, ErrorKind, Hint, Result, hint};

use super::choice::{Planner, fastest, thousands};
use super::memory::{filled, in_memory, partitioned};
use super::request::{Request, SwapKind};
use super::{Count, Placement};
use crate::buckets::{BucketCounts, Pools};
use crate::order::{OrderConfig, SwapMode, partition_order};
use crate::walk::Walks;

/// A placement with its actual pool sizes, and the memory that it needs.
struct Fit {
    placement: Placement,
    pools: Pools,
    /// Bytes that a run needs to start and to resume. Both begin with the first choice, which
    /// assumes even triples and must fit, too.
    needed: u64,
    /// Whether `needed` is exact: the run does not start with less.
    exact: bool,
}

/// Returns `first` if its pools fit. Otherwise it returns the best fitting placement that the
/// request leaves open: fewer slots, more partitions with fewer parts, or more walks with smaller
/// pools.
pub(super) fn place_counted(
    planner: &Planner<'_>,
    first: Placement,
    count: Count<'_>,
) -> Result<Placement> {
    let parts = first.partitions * first.group;
    let counts = count(parts)?;
    let own = fit(planner, &first, &counts, true)?;
    if own.needed <= first.memory {
        return Ok(as_planned(first, own));
    }
    let mut known = Some(counts);
    let mut tried: Vec<Fit> = Vec::new();
    for number in numbers_of_parts(planner, parts) {
        let ways = ways(planner, number);
        // Skip placements that cannot fit and need no less than the ones already tried.
        let least = tried.iter().map(|fit| fit.needed).min().unwrap_or(1) - 1;
        let most = first.memory.max(least);
        if ways.iter().flatten().all(|one| one.needed() > most) {
            continue;
        }
        let counts = match known.take().filter(|_| number == parts) {
            Some(counts) => counts,
            None => count(number)?,
        };
        let mut found = Vec::new();
        for way in &ways {
            found.extend(fits(planner, way, &counts)?);
        }
        let fitting = found.iter().filter(|fit| fit.needed <= first.memory);
        let timed: Vec<(f64, Placement)> = fitting
            .map(|fit| Ok((planner.seconds_with_pools(&fit.placement)?, fit.placement.clone())))
            .collect::<Result<_>>()?;
        if !timed.is_empty() {
            return chosen(planner, fastest(timed), &counts);
        }
        tried.extend(found);
    }
    Err(nothing_fits(planner, &own, tried))
}

/// The memory of a placement for counted triples. With `exact`, and if buckets are trained whole,
/// it simulates the order, whose search may take seconds.
fn fit(
    planner: &Planner<'_>,
    placement: &Placement,
    counts: &BucketCounts,
    exact: bool,
) -> Result<Fit> {
    let settled = planner.request.settled(placement.sweeps, placement.group);
    let whole = settled.keeps_buckets_whole(placement.sweeps);
    let pools = if whole && exact {
        counts.pools(&walks(&settled, placement)?)
    } else {
        let most = counts.most_among(placement.there() * placement.group, placement.sweeps);
        Pools { most, beside: if whole { 0 } else { counts.read_beside() } }
    };
    let with = |request: &Request, pools| {
        let Placement { partitions, slots, swap, .. } = *placement;
        partitioned(request, planner.size, (partitions, slots, swap), pools)
    };
    let found = with(&settled, Some(pools));
    // The first choice assumes even triples, at the start and again at a resume.
    let even = with(planner.request, None).needed().max(with(&settled, None).needed());
    let needed = found.needed().max(even);
    Ok(Fit { placement: found, pools, needed, exact: exact || !whole })
}

/// The walks of a placement through the order of its run.
fn walks(request: &Request, placement: &Placement) -> Result<Walks> {
    let new = OrderConfig::new(request.budget.order, placement.partitions, placement.slots);
    let mode = if placement.spare() { SwapMode::SpareSlot } else { SwapMode::InPlace };
    let order = partition_order(&OrderConfig { mode, seed: request.seed, ..new })?;
    Walks::new(order, placement.walks(request))
}

/// The planned placement if its pools are large enough, otherwise the same with larger pools.
fn as_planned(planned: Placement, fit: Fit) -> Placement {
    let smaller = |name: &str| fit.placement.parts.get(name) <= planned.parts.get(name);
    if ["triples of a state", "triples in training"].into_iter().all(smaller) {
        return planned;
    }
    filled(fit.placement)
}

/// Numbers of table partitions to choose from: `first`, then larger ones, then smaller ones.
fn numbers_of_parts(planner: &Planner<'_>, first: usize) -> Vec<usize> {
    let groups = |partitions| planner.groups(partitions).into_iter().map(move |g| partitions * g);
    let mut found: Vec<usize> =
        planner.numbers_of_partitions().into_iter().flat_map(groups).collect();
    found.sort_unstable();
    found.dedup();
    let fewer = found.partition_point(|&number| number < first);
    let mut ordered = found.split_off(fewer);
    ordered.extend(found.into_iter().rev());
    ordered
}

/// Placements with `parts` table partitions. Placements in one list differ only in slots, largest
/// number first.
fn ways(planner: &Planner<'_>, parts: usize) -> Vec<Vec<Placement>> {
    let mut found = Vec::new();
    for partitions in planner.numbers_of_partitions() {
        for group in planner.groups(partitions) {
            if partitions * group != parts {
                continue;
            }
            for swap in planner.swaps() {
                let with = |(slots, way): (usize, SwapKind)| Placement {
                    group,
                    ..planner.with(partitions, slots, way, None)
                };
                found.push(planner.slots(partitions, swap).map(with).collect::<Vec<_>>());
            }
        }
    }
    found
}

/// For each number of walks, tries the placements down to the largest number of slots that fits,
/// which comes last. Skips numbers of slots that already fit with fewer walks.
fn fits(planner: &Planner<'_>, way: &[Placement], counts: &BucketCounts) -> Result<Vec<Fit>> {
    let asked = &planner.request.budget;
    let exact = asked.partitions > 0 && asked.slots > 0;
    let (mut most, mut found) = (0, Vec::new());
    for sweeps in planner.sweeps() {
        for one in way {
            if one.slots <= most {
                break;
            }
            let tried = fit(planner, &Placement { sweeps, ..one.clone() }, counts, exact)?;
            let fits = tried.needed <= one.memory;
            found.push(tried);
            if fits {
                most = one.slots;
                break;
            }
        }
    }
    Ok(found)
}

/// Applies the further choices for even triples to a placement that fits, as far as the result
/// still fits.
fn chosen(planner: &Planner<'_>, first: Placement, counts: &BucketCounts) -> Result<Placement> {
    let if_it_fits = |other: &Placement, placement: Placement| -> Result<Placement> {
        let found = fit(planner, other, counts, false)?;
        Ok(if found.needed <= placement.memory { found.placement } else { placement })
    };
    let mut placement = first;
    let settled = planner.request.settled(placement.sweeps, placement.group);
    if let Some(turned) = Planner::new(&settled, planner.size).in_turn(&placement)? {
        placement = if_it_fits(&turned, placement)?;
    }
    let sweeps = match planner.request.budget.sweeps {
        0 => planner.hidden_sweeps(&placement)?,
        sweeps => sweeps,
    };
    if sweeps > placement.sweeps {
        let more = Placement { sweeps, ..placement.clone() };
        placement = if_it_fits(&more, placement)?;
    }
    Ok(filled(placement))
}

/// The error if nothing fits. It names the need of the smallest placement, or of everything in
/// memory if that is allowed and smaller.
fn nothing_fits(planner: &Planner<'_>, first: &Fit, tried: Vec<Fit>) -> Error {
    let asked = &planner.request.budget;
    let least = tried.iter().reduce(|a, b| if b.needed < a.needed { b } else { a });
    let least = least.unwrap_or(first);
    let place = &least.placement;
    let partitions = format!("{} partitions in {} slots", place.partitions, place.slots);
    let whole = in_memory(planner.request, planner.size).needed();
    let (what, needed) = if asked.partitions == 0 && asked.slots == 0 && whole <= least.needed {
        (format!("everything in memory needs at least {}", Bytes(whole)), whole)
    } else if least.exact {
        (format!("{partitions} need at least {}", Bytes(least.needed)), least.needed)
    } else {
        (format!("{} is enough for {partitions}", Bytes(least.needed)), least.needed)
    };
    let fixed = asked.partitions > 0
        || asked.slots > 0
        || asked.group > 0
        || asked.sweeps > 0
        || asked.swap.is_some();
    let other = match fixed {
        true => Hint::from("leave partitions, slots and walks open"),
        false => hint!("choose a smaller " {dim}),
    };
    let message = format!(
        "{} partitions within {}: some have up to {} triples in one pool; {what}, which is {needed} \
         bytes",
        first.placement.partitions,
        Bytes(place.memory),
        thousands(first.pools.most)
    );
    Error::new(ErrorKind::Budget, message).needs(Bytes(needed)).hint(hint!(
        "give that " {memory} ", or " {(other)}
    ))
}
