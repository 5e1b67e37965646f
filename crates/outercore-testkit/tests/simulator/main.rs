//! A simulator of all processes that share a data set. A server starts, replays its log, accepts
//! updates, folds and answers. Commands read, compute and check at the same time. Kills, machine
//! crashes and flipped bits interrupt them.
//!
//! Everything runs over one simulated disk. A seed decides every interleaving, every draw and every
//! fault, so a failing seed can be repeated: `OUTERCORE_SIMULATOR_SEED=7 cargo test -p
//! outercore-testkit --test simulator`. `OUTERCORE_SIMULATOR_SECONDS` sets how long to search for
//! new failures.

mod disk;
mod life;
mod turns;
mod world;

use std::time::{Duration, Instant};

use world::World;

/// Number of seeds that are always tested.
const SEEDS: u64 = 60;

/// Seeds that have found a fault, with the fault.
const FOUND: &[(u64, &str)] = &[
    (12, "a fold gives a flipped bit of an array a new checksum"),
    (49, "a fold gives a flipped bit of an array a new checksum"),
    (78, "a server opens its arrays after a fold has removed them"),
    (248, "a server opens its arrays after a fold has removed them"),
    (9, "`run` is refused beside a server"),
    (233, "a command reads arrays that a fold has removed"),
    (3, "a server follows to arrays that the next fold has removed"),
    (184, "a crash brings back files that nobody knows"),
    (230, "a killed commit leaves its temporary file"),
];

#[test]
fn seeds_that_once_found_a_fault_find_none() {
    for &(seed, fault) in FOUND {
        simulate(seed).unwrap_or_else(|failure| panic!("{fault}\n{failure}"));
    }
}

#[test]
fn whatever_is_interleaved_killed_or_damaged_nothing_is_lost_or_wrong() {
    if let Some(seed) = number("OUTERCORE_SIMULATOR_SEED") {
        return simulate(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
    let seconds = Duration::from_secs(number("OUTERCORE_SIMULATOR_SECONDS").unwrap_or(0));
    let first = number("OUTERCORE_SIMULATOR_FIRST").unwrap_or(0);
    let most = number("OUTERCORE_SIMULATOR_FAILURES").unwrap_or(1);
    let (began, mut failures) = (Instant::now(), Vec::new());
    let mut seed = first;
    while seed < first + SEEDS || began.elapsed() < seconds {
        if let Err(failure) = simulate(seed) {
            eprintln!("{failure}");
            failures.push(seed);
            if failures.len() as u64 >= most {
                break;
            }
        }
        seed += 1;
    }
    println!("{} seeds in {:?}", seed - first, began.elapsed());
    assert!(failures.is_empty(), "failing seeds: {failures:?}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

/// Simulates the lives of a machine with one data set, one after the other.
fn simulate(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    for life in 0..world.lives() {
        life::live(&mut world, life);
        if !world.failures.is_empty() {
            break;
        }
    }
    if world.failures.is_empty() {
        world.close();
    }
    match world.failures.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "seed {seed}:\n  {}\n{}",
            world.events.join("\n  "),
            world.failures.join("\n")
        )),
    }
}
