//! The engine on a device that fails according to a script.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use outercore_core::{Bytes, ErrorKind};
use outercore_io::sim::{Fault, SimConfig, SimReader};
use outercore_io::{Arena, Engine, FileId, PlannedRead};
use proptest::prelude::*;

const EIO: i32 = 5;

/// An engine on a device with one file, `x`.
fn engine(config: SimConfig, content: Vec<u8>) -> (Engine, FileId) {
    let arena = Arena::new(Bytes::kib(256)).unwrap();
    let reader = SimReader::open(config).with_file("x", content);
    let mut engine = Engine::over(Box::new(reader), arena, Duration::from_secs(30));
    let file = engine.register(Path::new("x")).unwrap();
    (engine, file)
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 31 + place / 251) as u8).collect()
}

fn pages(count: u64) -> Vec<PlannedRead> {
    (0..count).map(|page| PlannedRead { offset: page * 4096 + 100, len: 3000 }).collect()
}

fn scripted(script: impl Into<BTreeMap<u64, Fault>>) -> SimConfig {
    SimConfig { script: script.into(), ..SimConfig::default() }
}

#[test]
fn a_device_error_names_file_and_offset_and_nothing_more_is_begun() {
    let (mut engine, file) = engine(scripted([(7, Fault::Error(EIO))]), content(1 << 20));
    let error = engine.read(file, &pages(200), &mut |_, _| Ok(())).unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(EIO)));
    let text = error.to_string();
    assert!(text.starts_with("file `x`: read of 4096 bytes at offset 28672"), "{text}");
    assert!(engine.counters().requests < 100, "{:?}", engine.counters());
}

#[test]
fn short_reads_are_continued_at_the_right_place() {
    let script: BTreeMap<_, _> = (0..40).map(|number| (number, Fault::Short(1))).collect();
    let config = SimConfig { alignment: 512, ..scripted(script) };
    let bytes = content(100_000);
    let (mut engine, file) = engine(config, bytes.clone());
    let read = PlannedRead { offset: 700, len: 50_000 };
    engine
        .read(file, &[read], &mut |_, found| {
            assert!(found == &bytes[700..50_700]);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_read_that_never_completes_ends_at_the_deadline() {
    let (mut engine, file) = engine(scripted([(3, Fault::Never)]), content(1 << 20));
    let mut seen = 0;
    let error = engine
        .read(file, &pages(50), &mut |_, _| {
            seen += 1;
            Ok(())
        })
        .unwrap_err();
    assert_eq!((error.kind(), seen), (ErrorKind::Io, 49));
    let text = error.to_string();
    assert!(text.contains("file `x`") && text.contains("within 30.0 s, 1 in flight"), "{text}");
}

#[test]
fn an_answer_that_comes_after_its_call_has_failed_is_not_taken_for_another() {
    // The call gives up after 30 s, and waits another 30 s before it returns.
    let late = Fault::Delay(Duration::from_secs(63));
    let config = SimConfig { latency: Duration::from_secs(1), ..scripted([(0, late)]) };
    let bytes = content(1 << 20);
    let (mut engine, file) = engine(config, bytes.clone());
    engine.read(file, &pages(1), &mut |_, _| Ok(())).unwrap_err();
    for _ in 0..5 {
        let reads: Vec<_> = pages(100).into_iter().rev().collect();
        let mut seen = vec![false; reads.len()];
        let outcome = engine.read(file, &reads, &mut |index, found| {
            assert!(!std::mem::replace(&mut seen[index], true));
            let read = reads[index];
            assert!(found == &bytes[read.offset as usize..read.end() as usize]);
            Ok(())
        });
        outcome.unwrap();
        assert!(seen.into_iter().all(|seen| seen));
    }
}

#[test]
fn completions_arrive_in_the_order_of_the_device() {
    let slow = Fault::Delay(Duration::from_secs(1));
    let (mut engine, file) = engine(scripted([(0, slow)]), content(1 << 20));
    let mut order = Vec::new();
    engine
        .read(file, &pages(100), &mut |index, _| {
            order.push(index);
            Ok(())
        })
        .unwrap();
    assert_eq!(order.last(), Some(&0), "the queue went on while the first read took its time");
}

proptest! {
    #[test]
    fn whatever_the_device_does_bytes_are_right_or_there_is_an_error(
        seed: u64,
        short_share in 0.0f64..0.9,
        faults in prop::collection::btree_map(
            0u64..60,
            prop_oneof![
                Just(Fault::Error(EIO)),
                Just(Fault::Never),
                (0usize..9000).prop_map(Fault::Short),
                (0u64..100).prop_map(|seconds| Fault::Delay(Duration::from_secs(seconds))),
            ],
            0..3,
        ),
    ) {
        let fatal = |fault: &Fault| matches!(fault, Fault::Error(_) | Fault::Never);
        let harmless = !faults.values().any(fatal);
        let bytes = content(300_000);
        let config = SimConfig { seed, short_share, alignment: 512, script: faults, ..SimConfig::default() };
        let (mut engine, file) = engine(config, bytes.clone());
        let reads: Vec<_> =
            (0..70).map(|number| PlannedRead { offset: number * 4000, len: 1 + number as u32 * 250 }).collect();
        let mut seen = vec![0; reads.len()];
        let outcome = engine.read(file, &reads, &mut |index, found| {
            seen[index] += 1;
            let read = reads[index];
            assert!(found == &bytes[read.offset as usize..read.end() as usize]);
            Ok(())
        });
        prop_assert!(seen.iter().all(|&times| times <= 1));
        match outcome {
            Ok(_) => prop_assert!(seen.iter().all(|&times| times == 1)),
            // A delay beyond the deadline is an error too, if nothing else completes meanwhile.
            Err(error) => prop_assert!(!harmless || error.to_string().contains("no read completed")),
        }
    }
}
