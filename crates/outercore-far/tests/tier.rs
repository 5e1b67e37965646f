//! Finding, placing and keeping files with a tier, over a server on the heap.

mod common;

use std::sync::Arc;

use common::{HEADER, Sample, disk, engine_over, options, place, read_all};
use outercore_core::{Bytes, Error, ErrorKind};
use outercore_far::{FarTier, Placed, Remote};
use outercore_testkit::HeapRemote;

fn tier(remote: &HeapRemote) -> Arc<FarTier> {
    Arc::new(FarTier::over_remote(Arc::new(remote.client()), &options()).unwrap())
}

#[test]
fn a_kept_file_is_found_by_others_and_read_from_far_memory_alone() {
    let server = HeapRemote::new(Bytes::mib(8));
    let sample = Sample::new(1, 300_001);
    let giver = tier(&server);
    assert!(!giver.find(&sample.path, "name").unwrap());
    let mut steps = Vec::new();
    let mut on_progress = |done, total| {
        steps.push((done, total));
        Ok(())
    };
    let placed =
        giver.keep(&sample.path, &sample.contents("name"), &mut disk(), &mut on_progress).unwrap();
    assert_eq!(placed, Placed { bytes: sample.len(), ..Placed::default() });
    assert!(steps.is_sorted());
    assert_eq!(steps.last(), Some(&(sample.len(), sample.len())));
    let again = giver
        .keep(&sample.path, &sample.contents("name"), &mut disk(), &mut |_, _| Ok(()))
        .unwrap();
    assert_eq!(again, Placed { already: sample.len(), ..Placed::default() });
    drop(giver);

    let taker = tier(&server);
    assert!(taker.find(&sample.path, "name").unwrap());
    assert_eq!(place(&taker, &sample, true).unwrap().already, sample.len());
    read_all(&mut engine_over(&taker).unwrap(), &sample.path, &sample.content).unwrap();
    assert!(taker.find(&sample.path, "name").unwrap());
    let counters = taker.counters();
    assert_eq!((counters.disk_requests, counters.found_bytes), (0, sample.len()));
    assert!(counters.far_bytes >= 2 * sample.len());
    assert!(counters.queue_bytes >= Bytes::kib(512));
}

#[test]
fn a_file_that_is_not_what_its_name_says_is_never_kept() {
    let server = HeapRemote::new(Bytes::mib(8));
    let sample = Sample::new(1, 300_001);
    let tier = tier(&server);
    let keep =
        || tier.keep(&sample.path, &sample.contents("name"), &mut disk(), &mut |_, _| Ok(()));
    for at in [HEADER as usize, 150_000, sample.content.len() - 1] {
        let mut altered = sample.content.clone();
        altered[at] ^= 1;
        std::fs::write(&sample.path, &altered).unwrap();
        let error = keep().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let text = error.to_string();
        assert!(text.contains(sample.path.to_str().unwrap()), "{text}");
        assert!(text.contains("bytes were altered"), "{text}");
        assert_eq!(server.used(), Bytes(0));
    }
    std::fs::write(&sample.path, &sample.content[..200_000]).unwrap();
    assert_eq!(keep().unwrap_err().kind(), ErrorKind::Corrupt);
    // The checksum does not cover the header.
    let mut altered = sample.content.clone();
    altered[HEADER as usize - 1] ^= 1;
    std::fs::write(&sample.path, &altered).unwrap();
    assert_eq!(keep().unwrap().bytes, sample.len());
}

#[test]
fn a_name_for_another_length_is_not_taken_for_the_file() {
    let server = HeapRemote::new(Bytes::mib(8));
    let (sample, longer) = (Sample::new(1, 100_000), Sample::new(1, 100_001));
    let tier = tier(&server);
    tier.keep(&sample.path, &sample.contents("name"), &mut disk(), &mut |_, _| Ok(())).unwrap();
    assert!(!tier.find(&longer.path, "name").unwrap());
}

#[test]
fn a_server_that_is_nearly_full_takes_the_first_ranges() {
    let server = HeapRemote::new(Bytes::kib(160));
    let sample = Sample::new(2, 300_000);
    let tier = tier(&server);
    let placed = place(&tier, &sample, true).unwrap();
    assert_eq!(placed.bytes + placed.refused, sample.len());
    assert!(placed.bytes >= 100 << 10, "{placed:?}");
    read_all(&mut engine_over(&tier).unwrap(), &sample.path, &sample.content).unwrap();
    let counters = tier.counters();
    assert!(counters.far_requests > 0 && counters.disk_requests > 0, "{counters:?}");
    assert_eq!(counters.placed_bytes, placed.bytes);

    let refused =
        tier.keep(&sample.path, &sample.contents("name"), &mut disk(), &mut |_, _| Ok(())).unwrap();
    assert_eq!(refused, Placed { refused: sample.len(), ..Placed::default() });
    assert!(tier.is_alive());
}

#[test]
fn ranges_are_placed_once_and_given_back_with_the_last_user() {
    let server = HeapRemote::new(Bytes::mib(8));
    let sample = Sample::new(3, 200_000);
    let tier = tier(&server);
    let half = place(&tier, &sample, false).unwrap();
    assert_eq!(half.bytes, server.used().0);
    let rest = place(&tier, &sample, true).unwrap();
    assert_eq!((rest.already, rest.bytes), (half.bytes, sample.len() - half.bytes));
    assert_eq!(server.used().0, sample.len());

    let mut engine = engine_over(&tier).unwrap();
    drop(tier);
    read_all(&mut engine, &sample.path, &sample.content).unwrap();
    assert_eq!(server.used().0, sample.len());
    drop(engine);
    assert_eq!(server.used(), Bytes(0));
}

#[test]
fn what_is_placed_after_a_file_was_opened_is_used() {
    let server = HeapRemote::new(Bytes::mib(8));
    let sample = Sample::new(4, 100_000);
    let tier = tier(&server);
    let mut engine = engine_over(&tier).unwrap();
    read_all(&mut engine, &sample.path, &sample.content).unwrap();
    assert_eq!(tier.counters().far_requests, 0);
    place(&tier, &sample, true).unwrap();
    read_all(&mut engine, &sample.path, &sample.content).unwrap();
    assert!(tier.counters().far_requests > 0);
}

#[test]
fn a_file_that_has_taken_the_place_of_another_is_read_from_the_disk() {
    let server = HeapRemote::new(Bytes::mib(8));
    let (sample, other) = (Sample::new(5, 100_000), Sample::new(6, 100_000));
    let tier = tier(&server);
    place(&tier, &sample, true).unwrap();
    std::fs::rename(&other.path, &sample.path).unwrap();
    read_all(&mut engine_over(&tier).unwrap(), &sample.path, &other.content).unwrap();
    assert_eq!(tier.counters().far_requests, 0);
}

#[test]
fn whoever_watches_the_progress_may_end_it_and_nothing_stays() {
    let server = HeapRemote::new(Bytes::mib(8));
    let sample = Sample::new(7, 300_000);
    let tier = tier(&server);
    let mut stop = |done: u64, _| match done {
        0..100_000 => Ok(()),
        _ => Err(Error::new(ErrorKind::Interrupted, "stopped")),
    };
    let ranges = sample.ranges(true);
    let placed = tier.place(&sample.path, &ranges, &mut disk(), &mut stop);
    assert_eq!(placed.unwrap_err().kind(), ErrorKind::Interrupted);
    let kept = tier.keep(&sample.path, &sample.contents("name"), &mut disk(), &mut stop);
    assert_eq!(kept.unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(server.used(), Bytes(0));
    assert!(tier.is_alive());
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_refused() {
    let server = HeapRemote::new(Bytes::mib(8));
    let sample = Sample::new(8, 100_000);
    let tier = tier(&server);
    let mut change = |done, total| {
        if done == total {
            std::fs::write(&sample.path, "short").unwrap();
        }
        Ok(())
    };
    let ranges = sample.ranges(true);
    let error = tier.place(&sample.path, &ranges, &mut disk(), &mut change).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("changed"), "{error}");
    assert_eq!(server.used(), Bytes(0));
}

#[test]
fn names_of_files_and_options_out_of_range_are_refused() {
    let server = HeapRemote::new(Bytes::mib(8));
    let tier = tier(&server);
    let missing = std::path::Path::new("/no/such/file");
    assert_eq!(tier.find(missing, "name").unwrap_err().kind(), ErrorKind::NotFound);
    let empty = Sample::new(9, 0);
    let error = tier
        .keep(&empty.path, &empty.contents("name"), &mut disk(), &mut |_, _| Ok(()))
        .unwrap_err();
    assert!(error.to_string().contains("is empty"), "{error}");
    assert_eq!(place(&tier, &empty, true).unwrap(), Placed::default());
    let remote: Arc<dyn Remote> = Arc::new(server);
    let options = outercore_far::FarOptions { queues: 0, ..options() };
    assert_eq!(FarTier::over_remote(remote, &options).unwrap_err().kind(), ErrorKind::Invalid);
}
