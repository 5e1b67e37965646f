//! Access to regions by session, and the remaining memory.

use super::*;
use crate::protocol::ALLOCATION_STEP;

const LEN: u64 = 10_000;

fn regions() -> Regions {
    Regions::new(Bytes::kib(64), 3, 1000)
}

fn allocate(regions: &Regions, session: u64, name: Option<&str>) -> Result<Arc<Region>> {
    regions.allocate(session, LEN, name, &mut || Ok(()))
}

#[test]
fn a_region_is_private_until_it_is_sealed_under_its_name() {
    let regions = regions();
    let region = allocate(&regions, 1, Some("x")).unwrap();
    assert!(regions.find("x").is_none());
    assert_eq!(regions.readable(2, region.key).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(regions.writable(2, region.key).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(regions.list(2, None, 9999).0.len(), 0);
    region.write(LEN - 1, &[7]).unwrap();
    assert_eq!(regions.seal(2, region.key, true).unwrap_err().kind(), ErrorKind::NotFound);
    regions.seal(1, region.key, false).unwrap();
    assert_eq!(regions.find("x").unwrap().key, region.key);
    let mut byte = [0];
    regions.readable(2, region.key).unwrap().read(LEN - 1, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(regions.list(2, None, 9999).0.len(), 1);
    for written in [regions.writable(1, region.key).map(drop), region.write(0, &[1])] {
        assert!(written.unwrap_err().to_string().contains("sealed"));
    }
    assert!(region.unchangeable().is_ok());
    assert_eq!(regions.free(2, region.key).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_full_server_says_what_is_left_and_gets_back_what_is_freed() {
    let regions = regions();
    let region = allocate(&regions, 1, None).unwrap();
    assert_eq!(regions.used(), Bytes(3 * PAGE));
    let error = regions.allocate(1, 64 << 10, None, &mut || Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("52.0 KiB left of 64.0 KiB"), "{error}");
    for len in [u64::MAX, u64::MAX - PAGE] {
        let error = regions.allocate(1, len, None, &mut || Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
    regions.free(1, region.key).unwrap();
    assert_eq!(regions.used(), Bytes(3 * PAGE), "somebody still reads it");
    drop(region);
    assert_eq!(regions.used(), Bytes(0));
    assert_eq!(regions.table().owned[&1], 0);
}

#[test]
fn a_session_that_ends_leaves_only_what_is_kept() {
    let regions = regions();
    for (name, seal, keep) in [("a", false, false), ("b", true, false), ("c", true, true)] {
        let region = allocate(&regions, 1, Some(name)).unwrap();
        if seal {
            regions.seal(1, region.key, keep).unwrap();
        }
    }
    let error = allocate(&regions, 2, Some("a")).unwrap_err();
    assert!(error.to_string().contains("`a` is taken"), "{error}");
    assert_eq!(regions.session_ended(1).len(), 2);
    assert_eq!(regions.used(), Bytes(3 * PAGE));
    assert!(regions.find("b").is_none());
    let kept = regions.find("c").unwrap().key;
    allocate(&regions, 2, Some("a")).unwrap();
    regions.free(2, kept).unwrap();
    assert!(regions.find("c").is_none());
}

#[test]
fn a_session_has_so_many_regions_and_keeping_one_makes_room() {
    let regions = regions();
    let names = ["a", "b", "c"];
    let all: Vec<_> = names.iter().map(|name| allocate(&regions, 1, Some(name)).unwrap()).collect();
    let error = regions.allocate(1, 1, None, &mut || Ok(())).unwrap_err();
    assert!(error.to_string().contains("has 3 regions"), "{error}");
    regions.seal(1, all[0].key, true).unwrap();
    regions.allocate(1, 1, None, &mut || Ok(())).unwrap();
}

#[test]
fn regions_of_all_sessions_together_leave_descriptors_for_others() {
    let regions = Regions::new(Bytes::mib(1), 3, 2);
    let kept = allocate(&regions, 1, Some("kept")).unwrap().key;
    regions.seal(1, kept, true).unwrap();
    allocate(&regions, 2, None).unwrap();
    let error = allocate(&regions, 3, Some("x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("has 2 regions"), "{error}");
    regions.free(3, kept).unwrap();
    allocate(&regions, 3, Some("x")).unwrap();
}

#[test]
fn bad_names_and_unnamed_regions_to_keep_are_refused() {
    let regions = regions();
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert_eq!(allocate(&regions, 1, Some(name)).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let region = allocate(&regions, 1, None).unwrap();
    let error = regions.seal(1, region.key, true).unwrap_err();
    assert!(error.to_string().contains("needs a name"), "{error}");
    for (offset, len) in [(LEN, 1), (0, LEN as usize + 1), (u64::MAX, 1)] {
        assert!(region.check_range(offset, len).is_err());
    }
    region.check_range(LEN, 0).unwrap();
}

#[test]
fn an_allocation_that_is_given_up_leaves_nothing() {
    let regions = Regions::new(Bytes::mib(256), 3, 1000);
    let mut steps = 0;
    let given_up = regions.allocate(1, 2 * ALLOCATION_STEP, Some("x"), &mut || {
        steps += 1;
        Err(Error::new(ErrorKind::Io, "the client is gone"))
    });
    assert_eq!((given_up.unwrap_err().kind(), steps), (ErrorKind::Io, 1));
    assert_eq!(regions.used(), Bytes(0));
    allocate(&regions, 1, Some("x")).unwrap();
}

#[test]
fn a_long_list_comes_in_pages_without_gaps() {
    let regions = Regions::new(Bytes::mib(4), 1000, 1000);
    for number in 0..100 {
        let name = format!("region {number}");
        regions.allocate(1, 1, Some(&name), &mut || Ok(())).unwrap();
    }
    let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let (page, next) = regions.list(1, after, 2000);
        pages += 1;
        names.extend(page.into_iter().filter_map(|region| region.name));
        match next {
            Some(key) => after = Some(key),
            None => break,
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 100);
    assert!(pages > 3, "{pages}");
}
