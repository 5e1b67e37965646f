//! Time per group to announce rows to a large dynamic part and to admit them.
//!
//! `cargo run --release -p outercore-cache --example admit_bench -- [SLOTS] [ROWS_A_GROUP]` admits
//! 24 groups. Each group has distinct rows drawn from 20 * SLOTS with a skew (the cube of a uniform
//! draw). 4 groups are announced ahead and one is pinned. The first half of the groups fills the
//! cache and is not timed.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use outercore_cache::{DynamicPart, Policy};
use outercore_core::Stream;

const GROUPS: u64 = 24;
const AHEAD: u64 = 4;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let slots: u32 = arguments.next().unwrap_or(4_000_000);
    let rows_a_group = arguments.next().unwrap_or(400_000);
    let trace: Vec<Vec<u64>> = (0..GROUPS)
        .map(|group| {
            let mut draws = Stream::new(0, 0).uniform(group, 0, 0);
            let mut draw = || (draws.unit().powi(3) * 20.0 * f64::from(slots)) as u64;
            let mut rows: Vec<u64> = (0..rows_a_group).map(|_| draw()).collect();
            rows.sort_unstable();
            rows.dedup();
            rows
        })
        .collect();
    for policy in [Policy::Window, Policy::Lru] {
        let mut part = DynamicPart::new(slots, policy);
        let (mut announcing, mut admitting) = (Duration::ZERO, Duration::ZERO);
        let (mut rows, mut misses) = (0, 0);
        for group in 0..GROUPS + AHEAD {
            let start = Instant::now();
            if group < GROUPS {
                part.announce(group, &trace[group as usize]);
            }
            let announced = start.elapsed();
            let Some(group) = group.checked_sub(AHEAD) else { continue };
            let start = Instant::now();
            let admission = part.admit(group).expect("a group is smaller than the cache");
            part.release(group);
            if group >= GROUPS / 2 {
                announcing += announced;
                admitting += start.elapsed();
                rows += admission.slots.len();
                misses += admission.misses.len();
            }
        }
        let groups = GROUPS as f64 / 2.0;
        println!(
            "{policy}: {slots} slots, {:.0} rows a group, hits {:.3}: announce {:.1} ms, admit {:.1} ms",
            rows as f64 / groups,
            1.0 - misses as f64 / rows as f64,
            announcing.as_secs_f64() * 1e3 / groups,
            admitting.as_secs_f64() * 1e3 / groups,
        );
    }
}
