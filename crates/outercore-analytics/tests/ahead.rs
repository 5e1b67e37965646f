//! Tests reads for a pass before it begins, and that unbuffered runs do not read while other
//! threads compute.

mod fixture;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fixture::{Pair, Sum, sim, sums};
use outercore_analytics::{EdgeProgram, Flow, Passes, Selection, StreamOptions, StreamRun};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_grid::Arcs;
use outercore_io::reader::{Completion, FileId, ReadRequest, Reader};
use outercore_io::sim::{Fault, SimConfig, SimReader};
use outercore_io::{Arena, Engine};

/// Selections by number: everything, everything with weights, some partitions, the opposite
/// direction.
fn select<'a>(number: usize, all: &'a [bool], some: &'a [bool]) -> Selection<'a> {
    let (sources, targets, flow, weights) = match number {
        0 => (all, all, Flow::Along, false),
        1 => (all, all, Flow::Along, true),
        2 => (all, some, Flow::Both, false),
        _ => (some, some, Flow::Against, true),
    };
    Selection { sources, targets, flow, weights }
}

/// Makes one pass per selection, announcing the following pass as given, and calls `between` after
/// every pass. Returns the bits of all sums.
fn chain<R: Passes>(
    run: &mut R,
    steps: &[(usize, Option<usize>)],
    between: &mut dyn FnMut(&mut R),
) -> Result<Vec<u64>> {
    let parts = run.shape().partitions();
    let (all, some) = (vec![true; parts], (0..parts).map(|part| part % 3 != 1).collect::<Vec<_>>());
    let lens: Vec<usize> = (0..parts).map(|part| run.shape().partition_len(part)).collect();
    let values: Vec<Vec<f64>> = lens
        .iter()
        .enumerate()
        .map(|(part, &len)| (0..len).map(|local| 1.0 / ((part + 9 * local) as f64 + 3.0)).collect())
        .collect();
    let mut bits = Vec::new();
    for &(now, next) in steps {
        if let Some(next) = next {
            run.expect(&select(next, &all, &some));
        }
        let mut found: Vec<Vec<f64>> = lens.iter().map(|&len| vec![0.0; len]).collect();
        run.pass(&Sum, &values, &mut found, &select(now, &all, &some))?;
        bits.extend(found.iter().flatten().map(|sum| sum.to_bits()));
        between(run);
    }
    Ok(bits)
}

fn as_announced(order: &[usize]) -> Vec<(usize, Option<usize>)> {
    (0..order.len()).map(|at| (order[at], order.get(at + 1).copied())).collect()
}

fn unannounced(order: &[usize]) -> Vec<(usize, Option<usize>)> {
    order.iter().map(|&now| (now, None)).collect()
}

/// Waits until no reads are in flight, because counting reads needs the engine.
fn settle(run: &mut StreamRun<'_>) {
    run.counters();
}

#[test]
fn what_was_expected_is_read_before_the_pass_and_once() {
    for symmetric in [false, true] {
        let pair = Pair::skewed(symmetric);
        let order = [0, 0, 1, 1, 2, 2, 0, 3, 3];
        let expected = chain(&mut pair.memory(), &unannounced(&order), &mut |_| ()).unwrap();
        for (pinned, window) in [(0, 900_000), (700_000, 1_300_000), (0, 8 << 20)] {
            for threads in [1, 3] {
                let what = format!("{symmetric} {pinned} {window} {threads}");
                let plan = pair.plan(Bytes(pinned), Bytes(window));
                let mut quiet = |_: &str, _, _, _: &str| Ok(());
                let mut run =
                    pair.open(plan.clone(), sim(SimConfig::default()), threads, &mut quiet);
                let found = chain(&mut run, &as_announced(&order), &mut settle).unwrap();
                assert!(found == expected, "{what}");
                let counters = run.counters();
                assert_eq!(counters.by_pass[0].ahead_bytes, 0, "{what}");
                for (number, pass) in counters.by_pass.iter().enumerate().skip(1) {
                    assert!(pass.ahead_bytes > 0, "{what}: pass {number}");
                    assert!(pass.ahead_bytes <= window, "{what}: pass {number}");
                }
                let mut quiet = |_: &str, _, _, _: &str| Ok(());
                let mut plain = pair.open(plan, sim(SimConfig::default()), threads, &mut quiet);
                assert!(chain(&mut plain, &unannounced(&order), &mut |_| ()).unwrap() == expected);
                assert_eq!(counters.reads, plain.counters().reads, "{what}");
                assert!(plain.counters().by_pass.iter().all(|pass| pass.ahead_bytes == 0));
            }
        }
    }
}

#[test]
fn what_was_expected_in_vain_changes_no_bits() {
    let pair = Pair::skewed(true);
    for first in 0..4 {
        for announced in 0..4 {
            let steps =
                [(first, Some(announced)), (3 - first, Some(first)), (2, None), (0, Some(3))];
            let expected = chain(&mut pair.memory(), &steps, &mut |_| ()).unwrap();
            for (pinned, settled) in [(0, true), (0, false), (500_000, true)] {
                let plan = pair.plan(Bytes(pinned), Bytes(700_000));
                let mut quiet = |_: &str, _, _, _: &str| Ok(());
                let mut run = pair.open(plan, sim(SimConfig::default()), 2, &mut quiet);
                let mut between = |run: &mut StreamRun<'_>| {
                    if settled {
                        settle(run);
                    }
                };
                for _ in 0..2 {
                    let found = chain(&mut run, &steps, &mut between).unwrap();
                    assert!(found == expected, "{first} {announced} {pinned} {settled}");
                }
            }
        }
    }
}

#[test]
fn node_arrays_and_the_end_of_a_run_make_an_end_of_reading_ahead() {
    let pair = Pair::skewed(true);
    let order = [1, 1, 1];
    let expected = chain(&mut pair.memory(), &unannounced(&order), &mut |_| ()).unwrap();
    let nodes = pair.memory().nodes(1).unwrap();
    let plan = pair.plan(Bytes(300_000), Bytes(700_000));
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    let mut run = pair.open(plan.clone(), sim(SimConfig::default()), 2, &mut quiet);
    let mut between = |run: &mut StreamRun<'_>| assert_eq!(run.nodes(1).unwrap(), nodes);
    assert!(chain(&mut run, &as_announced(&order), &mut between).unwrap() == expected);
    assert!(run.counters().by_pass.iter().all(|pass| pass.ahead_bytes == 0));
    // Pins are released, and the run is dropped, while it reads ahead.
    assert!(chain(&mut run, &[(1, Some(1))], &mut |run| run.release()).is_ok());
    assert!(chain(&mut run, &as_announced(&order), &mut |_| ()).unwrap() == expected);
    assert!(chain(&mut run, &[(1, Some(1))], &mut |_| ()).is_ok());
}

#[test]
fn a_failed_read_ends_the_pass_that_needs_it_or_is_tried_again() {
    let pair = Pair::skewed(true);
    let order = [1, 1, 1];
    let expected = chain(&mut pair.memory(), &unannounced(&order), &mut |_| ()).unwrap();
    let mut outcomes = [0, 0];
    for nth in 0..30 {
        for fault in [Fault::Error(5), Fault::Never] {
            let config = SimConfig { script: [(nth, fault)].into(), ..SimConfig::default() };
            let plan = pair.plan(Bytes(300_000), Bytes(700_000));
            let mut quiet = |_: &str, _, _, _: &str| Ok(());
            let mut run = pair.open(plan, sim(config), 2, &mut quiet);
            match chain(&mut run, &as_announced(&order), &mut settle) {
                Ok(found) => assert!(found == expected, "{nth} {fault:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{nth} {fault:?}: {error}"),
            }
            outcomes[usize::from(run.counters().passes == 3)] += 1;
            if fault == Fault::Error(5) {
                let found = chain(&mut run, &as_announced(&order), &mut |_| ()).unwrap();
                assert!(found == expected, "{nth} {fault:?}");
            }
        }
    }
    assert!(outcomes.iter().all(|&times| times > 0), "{outcomes:?}");
}

#[test]
fn the_wish_to_stop_ends_a_pass_and_what_is_read_ahead() {
    let pair = Pair::skewed(true);
    let expected = chain(&mut pair.memory(), &unannounced(&[0, 0]), &mut |_| ()).unwrap();
    let plan = pair.plan(Bytes(200_000), Bytes(700_000));
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    let mut run = pair.open(plan, sim(SimConfig::default()), 2, &mut quiet);
    let all = vec![true; run.shape().partitions()];
    let select = Selection { sources: &all, targets: &all, flow: Flow::Along, weights: false };
    for stop_at in [1, 5, 20] {
        run.expect(&select);
        let mut calls = 0;
        let error = run.stream(&select, &mut |_, _, _| {
            calls += 1;
            if calls == stop_at { Err(Error::invalid("enough")) } else { Ok(()) }
        });
        assert_eq!(error.unwrap_err().to_string(), "enough");
        assert!(chain(&mut run, &as_announced(&[0, 0]), &mut |_| ()).unwrap() == expected);
    }
}

#[test]
fn what_stays_is_read_before_the_first_pass_where_that_is_wanted() {
    let pair = Pair::skewed(true);
    let expected = sums(&mut pair.memory()).unwrap();
    let plan = pair.plan(Bytes(800_000), Bytes(700_000));
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    let mut run = pair.open(plan.clone(), sim(SimConfig::default()), 2, &mut quiet);
    run.preload().unwrap();
    let before = run.counters().reads;
    assert!(before.useful_bytes > 0 && before.useful_bytes <= 800_000, "{before:?}");
    run.preload().unwrap();
    assert_eq!(run.counters().reads, before);
    assert!(sums(&mut run).unwrap() == expected);
    assert!(run.counters().by_pass[0].pinned_bytes > 0);
    let config = SimConfig { script: [(1, Fault::Error(5))].into(), ..SimConfig::default() };
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    let mut run = pair.open(plan, sim(config), 2, &mut quiet);
    assert_eq!(run.preload().unwrap_err().kind(), ErrorKind::Io);
    assert!(sums(&mut run).unwrap() == expected);
}

/// Publishes the number of reads in flight.
struct Watched {
    inner: SimReader,
    in_flight: Arc<AtomicUsize>,
}

impl Watched {
    fn note(&self) {
        self.in_flight.store(self.inner.in_flight(), Ordering::SeqCst);
    }
}

impl Reader for Watched {
    fn register(&mut self, path: &Path) -> Result<FileId> {
        self.inner.register(path)
    }
    fn file_len(&self, file: FileId) -> u64 {
        self.inner.file_len(file)
    }
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn submit(&mut self, requests: &mut VecDeque<ReadRequest>) -> Result<usize> {
        let taken = self.inner.submit(requests);
        self.note();
        taken
    }
    fn wait(
        &mut self,
        at_least: usize,
        deadline: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let waited = self.inner.wait(at_least, deadline, done);
        self.note();
        waited
    }
    fn name(&self) -> &'static str {
        "watched"
    }
}

/// Sums, and records whether it ran while a read was in flight.
struct Alone {
    in_flight: Arc<AtomicUsize>,
    beside: AtomicUsize,
}

impl EdgeProgram for Alone {
    type Source = Vec<f64>;
    type Target = Vec<f64>;

    fn apply(&self, arcs: &Arcs<'_>, source: &Vec<f64>, target: &mut Vec<f64>) {
        self.beside.fetch_max(self.in_flight.load(Ordering::SeqCst), Ordering::SeqCst);
        Sum.apply(arcs, source, target);
        self.beside.fetch_max(self.in_flight.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[test]
fn without_buffering_nothing_is_computed_while_something_is_read() {
    let pair = Pair::skewed(true);
    let expected = chain(&mut pair.memory(), &unannounced(&[1, 1]), &mut |_| ()).unwrap();
    for (pinned, threads) in [(0, 1), (0, 3), (600_000, 3)] {
        let in_flight = Arc::new(AtomicUsize::new(0));
        let inner = SimReader::open(SimConfig::default());
        let reader = Watched { inner, in_flight: Arc::clone(&in_flight) };
        let arena = Arena::new(Bytes::mib(4)).unwrap();
        let engine = Engine::over(Box::new(reader), arena, Duration::from_secs(2));
        let options = StreamOptions { buffering: false, ..StreamOptions::new(threads) };
        let plan = pair.plan(Bytes(pinned), Bytes::mib(2));
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        let mut run =
            StreamRun::open(&pair.data_set, pair.grid(), plan, engine, &options, &mut quiet)
                .unwrap();
        let program = Alone { in_flight, beside: AtomicUsize::new(0) };
        let parts = run.shape().partitions();
        let all = vec![true; parts];
        let select = Selection { sources: &all, targets: &all, flow: Flow::Along, weights: true };
        let values: Vec<Vec<f64>> =
            (0..parts).map(|part| vec![1.0; run.shape().partition_len(part)]).collect();
        for _ in 0..2 {
            run.expect(&select);
            let mut found = values.clone();
            run.pass(&program, &values, &mut found, &select).unwrap();
        }
        assert_eq!(program.beside.into_inner(), 0, "{pinned} {threads}");
        assert!(run.counters().by_pass.iter().all(|pass| pass.ahead_bytes == 0));
        let found = chain(&mut run, &as_announced(&[1, 1]), &mut |_| ()).unwrap();
        assert!(found == expected, "{pinned} {threads}");
    }
}
