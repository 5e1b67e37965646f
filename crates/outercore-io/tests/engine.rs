//! The engine on every back end: it delivers the planned bytes exactly once, or an error with a
//! name.

use std::fs;
use std::path::Path;

use outercore_core::{Bytes, Error, ErrorKind, ReadCounters, Stream};
use outercore_io::{
    Backend, Engine, EngineConfig, Kept, KeptRead, PlannedRead, available_backends,
};
use proptest::prelude::*;

/// Engines on all back ends that this kernel offers, with little memory.
fn engines() -> Vec<Engine> {
    available_backends()
        .into_iter()
        .filter(|found| found.missing.is_none())
        .map(|found| found.backend)
        .map(|backend| EngineConfig { backend, staging: Bytes::kib(256), depth: 7, tier: None })
        .map(|config| Engine::open(config).unwrap())
        .collect()
}

fn file_of(len: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
    let mut draws = Stream::new(len as u64, 0).uniform(0, 0, 0);
    let content: Vec<u8> = (0..len).map(|_| draws.below(256) as u8).collect();
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(file.path(), &content).unwrap();
    file.as_file().sync_all().unwrap();
    (file, content)
}

fn read_at(offset: u64, len: u32) -> PlannedRead {
    PlannedRead { offset, len }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_list_of_reads_brings_exactly_the_bytes_of_the_file(
        file_len in 1usize..200_000,
        ranges in prop::collection::vec((0.0f64..1.0, 0u32..100_000), 0..60),
    ) {
        let (file, content) = file_of(file_len);
        let reads: Vec<_> = ranges
            .into_iter()
            .map(|(place, len)| {
                let offset = (place * file_len as f64) as u64;
                read_at(offset, len.min((file_len as u64 - offset) as u32))
            })
            .collect();
        for mut engine in engines() {
            let id = engine.register(file.path()).unwrap();
            let mut seen = vec![0; reads.len()];
            let counters = engine
                .read(id, &reads, &mut |index, bytes| {
                    seen[index] += 1;
                    let read = reads[index];
                    assert!(bytes == &content[read.offset as usize..read.end() as usize], "{read:?}");
                    Ok(())
                })
                .unwrap();
            prop_assert!(seen.iter().all(|&times| times == 1), "{}", engine.backend_name());
            let useful: u64 = reads.iter().map(|read| u64::from(read.len)).sum();
            prop_assert_eq!(counters.useful_bytes, useful);
            prop_assert_eq!(counters.requests, reads.iter().filter(|read| read.len > 0).count() as u64);
            prop_assert!(counters.bytes >= useful && counters.bytes <= useful + 8192 * counters.requests);
        }
    }
}

#[test]
fn a_long_range_is_read_into_place() {
    let (file, content) = file_of(3_000_017);
    for mut engine in engines() {
        let id = engine.register(file.path()).unwrap();
        let mut found = vec![0; 2_900_000];
        let counters = engine.read_into(id, 100_001, &mut found).unwrap();
        assert!(found == content[100_001..3_000_001], "{}", engine.backend_name());
        assert_eq!(counters.useful_bytes, 2_900_000);
        assert_eq!(engine.counters(), counters);
    }
}

#[test]
fn a_read_past_the_end_is_refused_by_name() {
    let (file, _) = file_of(10_000);
    for mut engine in engines() {
        let id = engine.register(file.path()).unwrap();
        for read in [read_at(9_999, 2), read_at(10_000, 1), read_at(u64::MAX, 1)] {
            let error = engine.read(id, &[read_at(0, 1), read], &mut |_, _| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains(file.path().to_str().unwrap()), "{text}");
            assert!(text.contains(&format!("offset {}", read.offset)), "{text}");
        }
    }
}

#[test]
fn a_read_longer_than_staging_is_refused_with_both_sizes() {
    let (file, _) = file_of(600_000);
    for mut engine in engines() {
        let id = engine.register(file.path()).unwrap();
        let error = engine.read(id, &[read_at(0, 400_000)], &mut |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert!(error.to_string().contains("into 256.0 KiB"), "{error}");
        assert_eq!(engine.max_read(), Bytes::kib(32));
    }
}

#[test]
fn an_error_of_the_consumer_ends_the_call_and_the_engine_works_on() {
    let (file, content) = file_of(100_000);
    for mut engine in engines() {
        let id = engine.register(file.path()).unwrap();
        let reads: Vec<_> = (0..50).map(|number| read_at(number * 2_000, 1_000)).collect();
        let mut calls = 0;
        let error = engine
            .read(id, &reads, &mut |_, _| {
                calls += 1;
                if calls == 5 { Err(Error::invalid("enough")) } else { Ok(()) }
            })
            .unwrap_err();
        assert_eq!((error.to_string().as_str(), calls), ("enough", 5));
        let mut found = vec![0; 5_000];
        engine.read_into(id, 77, &mut found).unwrap();
        assert!(found == content[77..5_077], "{}", engine.backend_name());
    }
}

#[test]
fn a_file_cut_short_ends_in_an_error_with_path_and_offset() {
    let (file, _) = file_of(100_000);
    for mut engine in engines() {
        fs::write(file.path(), vec![1; 100_000]).unwrap();
        let id = engine.register(file.path()).unwrap();
        file.as_file().set_len(50_000).unwrap();
        let reads: Vec<_> = (0..100).map(|number| read_at(number * 1_000, 1_000)).collect();
        let error = engine.read(id, &reads, &mut |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{}: {error}", engine.backend_name());
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
        assert!(error.to_string().contains("at offset"), "{error}");
    }
}

#[test]
fn no_reads_cost_nothing() {
    let (file, _) = file_of(10);
    for mut engine in engines() {
        let id = engine.register(file.path()).unwrap();
        let counters = engine.read(id, &[], &mut |_, _| panic!("nothing was asked for")).unwrap();
        assert_eq!(counters, ReadCounters::default());
    }
}

#[test]
fn the_automatic_choice_is_the_first_that_works() {
    let engine = Engine::open(EngineConfig::default()).unwrap();
    let first = available_backends().into_iter().find(|found| found.missing.is_none()).unwrap();
    assert_eq!(engine.backend_name(), first.backend.name());
    assert_eq!(Backend::Auto.to_string().parse::<Backend>().unwrap(), Backend::Auto);
}

#[test]
fn a_missing_file_is_named() {
    for mut engine in engines() {
        let error = engine.register(Path::new("/no/such/file")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn kept_reads_of_several_files_begin_in_order_and_only_when_there_is_room() {
    let (first, first_bytes) = file_of(100_000);
    let (second, second_bytes) = file_of(90_000);
    for mut engine in engines() {
        let files = [first.path(), second.path()].map(|path| engine.register(path).unwrap());
        let into = engine.slots(900, 3).unwrap();
        let read = |n: usize| KeptRead {
            file: files[n % 2],
            read: read_at(n as u64 * 1_000, 900),
            into: into.clone(),
        };
        let reads: Vec<_> = (0..80).map(read).collect();
        // Room for three reads. A call of `may_begin` with nothing in flight makes more room.
        let room = std::cell::Cell::new(3i32);
        let kept = std::cell::RefCell::new(Vec::new());
        let mut asked = Vec::new();
        let name = engine.backend_name();
        let content = |index: usize| {
            let content = if index.is_multiple_of(2) { &first_bytes } else { &second_bytes };
            &content[index * 1_000..index * 1_000 + 900]
        };
        let mut seen = 0;
        let mut let_go = || {
            let mut kept = kept.borrow_mut();
            seen += kept.len();
            for (index, bytes) in kept.drain(..) {
                let bytes: Kept = bytes;
                assert!(&bytes[..] == content(index), "{name} {index}");
            }
        };
        let counters = engine.read_kept(
            &reads,
            &mut |index, idle| {
                let begins = room.get() > 0 || idle;
                if idle {
                    let_go();
                }
                room.set(if room.get() > 0 {
                    room.get() - 1
                } else if idle {
                    2
                } else {
                    0
                });
                if begins {
                    asked.push(index);
                }
                Ok(begins)
            },
            &mut |index, bytes| {
                kept.borrow_mut().push((index, bytes));
                Ok(())
            },
        );
        assert_eq!(counters.unwrap().requests, 80, "{name}");
        let_go();
        assert_eq!((asked, seen), ((0..80).collect(), 80), "{name}");
        let refused = engine.read_kept(&reads, &mut |_, _| Ok(false), &mut |_, _| Ok(()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Internal, "{name}");
        let mut hoard = Vec::new();
        let too_many = engine.read_kept(&reads, &mut |_, _| Ok(true), &mut |_, bytes| {
            hoard.push(bytes);
            Ok(())
        });
        assert_eq!(too_many.unwrap_err().kind(), ErrorKind::Internal, "{name}");
        drop(hoard);
        let long = KeptRead { read: read_at(0, 20_000), ..read(0) };
        let long = engine.read_kept(&[long], &mut |_, _| Ok(true), &mut |_, _| Ok(()));
        assert_eq!(long.unwrap_err().kind(), ErrorKind::Budget, "{name}");
        let failed = engine.read_kept(
            &reads,
            &mut |index, _| if index < 9 { Ok(true) } else { Err(Error::invalid("enough")) },
            &mut |_, _| Ok(()),
        );
        assert_eq!(failed.unwrap_err().to_string(), "enough", "{name}");
        engine.read(files[0], &[read_at(5, 7)], &mut |_, _| Ok(())).unwrap();
    }
}
