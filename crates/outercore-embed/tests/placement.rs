//! Compares placements with recorded results of the earlier Python version.

use std::thread;

use outercore_core::{Error, Result};
use outercore_embed::BucketCounts;
use outercore_embed::placement::{Count, Request, Size, decide};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    request: Request,
    size: Size,
    /// How many times more triples the first partitions have; `None`: triples are not counted.
    skew: Option<u32>,
    /// The placement, or the error.
    found: Value,
}

/// Counts for partitions of which the first have the most triples.
fn counted(parts: usize, skew: u32, triples: u64) -> Result<BucketCounts> {
    let weights: Vec<u64> =
        (1..=parts as u64).map(|place| 1_000_000 / place.pow(skew) + 1).collect();
    let all = u128::from(weights.iter().sum::<u64>()).pow(2);
    let of = |a: u64, b: u64| (u128::from(triples) * u128::from(a) * u128::from(b) / all) as u64;
    let counts = weights.iter().flat_map(|&a| weights.iter().map(move |&b| of(a, b)));
    BucketCounts::new(parts, counts.collect())
}

fn text(error: &Error) -> String {
    match error.next_step() {
        Some(hint) => format!("{}\nhint: {hint}", error.message()),
        None => error.message(),
    }
}

fn check(number: usize, case: &Case) {
    let Case { request, size, skew, found } = case;
    let mut count = |parts| counted(parts, skew.unwrap_or(0), size.triples);
    let count: Option<Count<'_>> = if skew.is_some() { Some(&mut count) } else { None };
    let mut decided = match decide(request, size, count) {
        Ok(decision) => serde_json::to_value(decision.placement).unwrap(),
        Err(error) => serde_json::json!({ "error": text(&error) }),
    };
    // These fields were added after the recording.
    for name in ["partition_bytes", "pool", "negative_sets"] {
        decided.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(&decided, found, "case {number}: {request:?} {size:?} {skew:?}");
}

#[test]
fn placements_are_those_that_were_recorded() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases/placements.json")).unwrap();
    assert_eq!(cases.len(), 186);
    let (even, odd): (Vec<_>, Vec<_>) =
        cases.iter().enumerate().partition(|(number, _)| number % 2 == 0);
    thread::scope(|scope| {
        for half in [even, odd] {
            scope.spawn(move || half.into_iter().for_each(|(number, case)| check(number, case)));
        }
    });
}
