//! Compares policies on skewed traces.

use std::collections::BTreeSet;

use outercore_cache::simulate::{Hits, Simulated, simulate, simulate_heated};
use outercore_core::Stream;

/// Groups of rows drawn with a skew: the square of a uniform draw, scaled.
fn skewed_trace(seed: u64, groups: u64, draws: usize, rows: u64) -> Vec<Vec<u64>> {
    (0..groups)
        .map(|group| {
            let mut uniform = Stream::new(seed, 0).uniform(group, 0, 0);
            let drawn = (0..draws).map(|_| (uniform.unit().powi(3) * rows as f64) as u64);
            drawn.collect::<BTreeSet<u64>>().into_iter().collect()
        })
        .collect()
}

fn hits(trace: &[Vec<u64>], capacity: u32, policy: Simulated) -> u64 {
    simulate(trace, capacity, policy).unwrap().hits
}

#[test]
fn a_look_ahead_beats_recency_on_skewed_traces() {
    for seed in 0..10 {
        let trace = skewed_trace(seed, 60, 200, 2000);
        for capacity in [220, 400, 900] {
            let lru = hits(&trace, capacity, Simulated::Lru);
            for ahead in [1, 4, 16] {
                let window = hits(&trace, capacity, Simulated::Window { ahead });
                assert!(
                    window >= lru,
                    "seed {seed} capacity {capacity} ahead {ahead}: {window} < {lru}"
                );
            }
        }
    }
}

#[test]
fn knowing_everything_is_never_worse_than_any_other_policy() {
    for seed in 0..10 {
        let trace = skewed_trace(seed, 40, 150, 1500);
        for capacity in [160, 500] {
            let best = hits(&trace, capacity, Simulated::Belady);
            for other in [
                Simulated::Window { ahead: 3 },
                Simulated::SuperBatch { groups: 5 },
                Simulated::Lru,
                Simulated::Sieve,
                Simulated::S3Fifo,
                Simulated::Fifo,
                Simulated::Random { seed },
            ] {
                let found = hits(&trace, capacity, other);
                assert!(
                    found <= best,
                    "seed {seed} capacity {capacity} {other:?}: {found} > {best}"
                );
            }
        }
    }
}

#[test]
fn without_a_look_ahead_and_equal_heat_the_window_is_lru() {
    let trace = skewed_trace(3, 50, 100, 1000);
    let window = simulate_heated(&trace, 150, 0, vec![1; 1000].into());
    assert_eq!(window, simulate(&trace, 150, Simulated::Lru));
}

#[test]
fn every_policy_keeps_all_rows_when_there_is_room() {
    let trace = skewed_trace(1, 20, 50, 300);
    let all: BTreeSet<u64> = trace.iter().flatten().copied().collect();
    let distinct: u64 = trace.iter().map(|rows| rows.len() as u64).sum();
    let expected = Hits { distinct, hits: distinct - all.len() as u64 };
    for policy in [
        Simulated::Window { ahead: 2 },
        Simulated::SuperBatch { groups: 3 },
        Simulated::Lru,
        Simulated::Belady,
        Simulated::Sieve,
        Simulated::S3Fifo,
        Simulated::Fifo,
        Simulated::Random { seed: 0 },
    ] {
        assert_eq!(simulate(&trace, 300, policy), Ok(expected), "{policy:?}");
    }
}

#[test]
fn a_group_larger_than_the_cache_is_refused_by_every_policy() {
    let trace = [vec![1, 2, 3]];
    for policy in [Simulated::Window { ahead: 1 }, Simulated::Belady, Simulated::Sieve] {
        let refused = simulate(&trace, 2, policy).unwrap_err();
        assert_eq!((refused.needed, refused.free), (3, 2), "{policy:?}");
    }
}

#[test]
fn heat_and_uses_both_beat_recency_where_the_look_ahead_is_short() {
    for seed in 0..5 {
        let trace = skewed_trace(seed, 200, 100, 2000);
        // Rows are drawn as the cube of a uniform draw, so smaller rows are more frequent.
        let heat: Vec<u8> = (0..2000).map(|row| 255 - (row / 8) as u8).collect();
        let lru = hits(&trace, 400, Simulated::Lru);
        let uses = hits(&trace, 400, Simulated::Window { ahead: 0 });
        let heated = simulate_heated(&trace, 400, 0, heat.into()).unwrap().hits;
        assert!(lru < uses && uses < heated, "seed {seed}: {lru}, {uses}, {heated}");
    }
}
