//! Triples in buckets: from arrays and from memory, pools, damage, wrong input.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Table, build, engine};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_embed::buckets::{OnTriples, Source};
use outercore_embed::{
    ArrayTriples, Bucket, Buckets, MemoryTriples, OnProgress, OrderConfig, OrderKind, PoolReader,
    TriplePool, Triples, Visit, WalkConfig, Walks, build_buckets,
};
use outercore_format::DType;
use outercore_io::RealDisk;
use outercore_store::npy::ArrayWriter;

fn source(table: &Table, identity: &str) -> Source {
    Source { partitioning: table.layout.partitioning(), relations: 3, identity: identity.into() }
}

#[test]
fn buckets_from_arrays_in_little_memory_are_those_from_memory_in_much() {
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 7, 3), 0);
    let weights: Vec<f32> = (0..table.triples.len()).map(|i| i as f32 / 4.0).collect();
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut writer = ArrayWriter::create(&RealDisk, root, "t.npy", DType::I64, &[3]).unwrap();
    writer.write_slice(table.triples.as_flattened()).unwrap();
    writer.finish().unwrap();
    let mut writer = ArrayWriter::create(&RealDisk, root, "w.npy", DType::F32, &[]).unwrap();
    writer.write_slice(&weights).unwrap();
    writer.finish().unwrap();
    for weighted in [false, true] {
        let array = root.join("w.npy");
        let given = weighted.then_some(array.as_path());
        let mut arrays = ArrayTriples::open(&root.join("t.npy"), given).unwrap();
        let mut memory = MemoryTriples {
            triples: &table.triples,
            weights: if weighted { &weights } else { &[] },
        };
        let [small, large] = [format!("small-{weighted}.bin"), format!("large-{weighted}.bin")]
            .map(|n| root.join(n));
        let from = source(&table, "t");
        let error = build(&small, &mut arrays, &from, Bytes(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        build(&small, &mut arrays, &from, Bytes::kib(528)).unwrap();
        build(&large, &mut memory, &from, Bytes::mib(16)).unwrap();
        assert!(std::fs::read(&small).unwrap() == std::fs::read(&large).unwrap());
        let buckets = Buckets::open(&small, engine()).unwrap();
        assert_eq!((buckets.triples(), buckets.weighted()), (table.triples.len() as u64, weighted));
    }
}

#[test]
fn a_pool_holds_the_triples_of_its_buckets_in_their_order() {
    let config = OrderConfig::new(OrderKind::Optimal, 6, 3);
    let table = Table::new(&config, 0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.bin");
    let weights: Vec<f32> = (0..table.triples.len()).map(|i| i as f32).collect();
    let mut triples = MemoryTriples { triples: &table.triples, weights: &weights };
    let from = source(&table, "t");
    build(&path, &mut triples, &from, Bytes::mib(2)).unwrap();
    let mut buckets = Buckets::open(&path, engine()).unwrap();
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let walks = Walks::new(table.order.clone(), table.walks).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    let (dealt, slot_rows) = (table.layout.partitioning(), table.layout.slot_rows());
    let (mut pool, mut largest, mut all) = (TriplePool::default(), 0, Vec::new());
    while let Some(step) = executor.advance().unwrap() {
        buckets.read(&step, slot_rows, &mut pool).unwrap();
        largest = largest.max(pool.triples.len() as u64);
        let mut expected = Vec::new();
        for bucket in &step.buckets {
            let first = |partition| {
                step.resident.iter().find(|r| r.partition == partition).unwrap().slot as u64
                    * slot_rows
            };
            for (at, &[head, relation, tail]) in table.triples.iter().enumerate() {
                let [head, tail] = [head, tail].map(|node| dealt.place_of(node as u64));
                if (head.partition, tail.partition) == (bucket.source, bucket.target) {
                    let row =
                        |place: outercore_embed::Place| (first(place.partition) + place.row) as u32;
                    expected.push(([row(head), relation as u32, row(tail)], weights[at]));
                }
            }
        }
        let found = pool.triples.iter().copied().zip(pool.weights.iter().copied());
        assert_eq!(found.collect::<Vec<_>>(), expected);
        all.extend(pool.weights.iter().map(|weight| *weight as usize));
    }
    all.sort_unstable();
    assert_eq!(all, (0..table.triples.len()).collect::<Vec<_>>());
    assert!(largest <= buckets.largest_pool(&walks).most);
}

#[test]
fn parts_of_many_buckets_are_read_together_and_are_those_of_buckets_in_memory() {
    let ways = WalkConfig { sweeps: 2, spread: true, rename: true, ..WalkConfig::default() };
    let mut table = Table::walked(&OrderConfig::new(OrderKind::Optimal, 6, 3), ways, 0);
    let walks = Walks::new(table.order.clone(), ways).unwrap();
    let slot_rows = table.layout.slot_rows();
    // First, all buckets fit into one joint read. Then the triples are several times the limit of
    // joint reads, and one bucket exceeds it.
    let crowded = [[1, 2, 3]; 700];
    let many = table.triples.iter().chain(&crowded).copied().cycle().take(220_000).collect();
    for (triples, small) in [(table.triples.clone(), true), (many, false)] {
        table.triples = triples;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b.bin");
        let count = table.triples.len();
        let weights: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let mut triples = MemoryTriples { triples: &table.triples, weights: &weights };
        build(&path, &mut triples, &source(&table, "t"), Bytes::mib(4)).unwrap();
        let mut on_disk = Buckets::open(&path, engine()).unwrap();
        let mut in_memory = Buckets::open(&path, engine()).unwrap();
        in_memory.keep_all().unwrap();
        let of = |b: usize| on_disk.count(Bucket { source: b / 6, target: b % 6 });
        let largest = (0..36).map(of).max().unwrap();
        assert_eq!(largest > 1 << 16, !small);
        let room = on_disk.largest_pool(&walks);
        assert_eq!(room.beside, if small { count as u64 } else { largest });

        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let (mut found, mut expected) = (TriplePool::default(), TriplePool::default());
        let (mut visits, mut all) = (0, Vec::new());
        while let Some(step) = executor.advance().unwrap() {
            on_disk.read(&step, slot_rows, &mut found).unwrap();
            in_memory.read(&step, slot_rows, &mut expected).unwrap();
            assert_eq!(found, expected);
            visits += step.buckets.len() as u64;
            all.extend(found.weights.iter().map(|weight| *weight as usize));
        }
        all.sort_unstable();
        assert_eq!(all, (0..count).collect::<Vec<_>>());
        // One read of triples and one of weights per visit; adjacent buckets share their reads.
        let reads = on_disk.counters().requests;
        assert!(!small || reads < 2 * visits, "{reads} reads, {visits} visits");
    }
}

#[test]
fn buckets_side_by_side_are_one_read() {
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.bin");
    let weights: Vec<f32> = (0..table.triples.len()).map(|i| i as f32).collect();
    for (weights, reads) in [(&weights[..0], 1), (&weights[..], 2)] {
        let mut triples = MemoryTriples { triples: &table.triples, weights };
        let from = source(&table, &reads.to_string());
        build(&path, &mut triples, &from, Bytes::mib(2)).unwrap();
        let mut buckets = Buckets::open(&path, engine()).unwrap();
        buckets.keep_all().unwrap();
        assert_eq!(buckets.counters().requests, reads);
        let bytes = if weights.is_empty() { 12 } else { 16 };
        assert_eq!(buckets.counters().useful_bytes, bytes * buckets.triples());
    }
}

#[test]
fn buckets_of_other_triples_are_made_anew_and_damaged_ones_refused() {
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.bin");
    let make = |identity: &str, triples: &[[i64; 3]]| {
        let mut triples = MemoryTriples { triples, weights: &[] };
        build(&path, &mut triples, &source(&table, identity), Bytes::mib(2))
    };
    make("a", &table.triples).unwrap();
    let first = std::fs::read(&path).unwrap();
    make("a", &table.triples).unwrap();
    make("b", &table.triples[1..]).unwrap();
    assert_eq!(Buckets::open(&path, engine()).unwrap().made_from().identity, "b");
    make("a", &table.triples).unwrap();
    assert!(std::fs::read(&path).unwrap() == first);
    let damage = |place: usize| {
        let mut bytes = first.clone();
        bytes[place] ^= 2;
        std::fs::write(&path, bytes).unwrap();
        let mut buckets = Buckets::open(&path, engine())?;
        buckets.keep_all()
    };
    for place in [3, 4100, first.len() - 5] {
        assert_eq!(damage(place).unwrap_err().kind(), ErrorKind::Corrupt, "byte {place}");
    }
    std::fs::write(&path, &first[..first.len() - 1]).unwrap();
    assert_eq!(Buckets::open(&path, engine()).err().unwrap().kind(), ErrorKind::Corrupt);
}

/// Triples with a wrong count.
struct Said<'a>(MemoryTriples<'a>, u64);

impl Triples for Said<'_> {
    fn count(&self) -> u64 {
        self.1
    }

    fn weighted(&self) -> bool {
        self.0.weighted()
    }

    fn for_each(&mut self, take: OnTriples<'_>) -> Result<()> {
        for some in self.0.triples.chunks(4096) {
            take(0, some, &[])?;
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

#[test]
fn both_passes_tell_how_far_they_are_and_end_where_somebody_says_so() {
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.bin");
    let triples = vec![[1, 2, 3]; 600_000];
    let memory = MemoryTriples { triples: &triples, weights: &[] };
    let said = |count| Said(memory, count);
    let from = source(&table, "t");
    let make = |triples: &mut Said<'_>, told: OnProgress<'_>| {
        build_buckets(&RealDisk, &path, triples, &from, Bytes::mib(2), told)
    };
    for (ends, calls) in [("count triples", 1), ("sort triples", 5)] {
        let mut called = 0;
        let error = make(&mut said(600_000), &mut |what, _, _| {
            called += 1;
            if what == ends { Err(Error::new(ErrorKind::Interrupted, "enough")) } else { Ok(()) }
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!((called, directory.path().read_dir().unwrap().count()), (calls, 0));
    }
    let error = make(&mut said(600_001), &mut |_, _, _| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("found 600000, expected 600001"), "{error}");

    let mut told = Vec::new();
    make(&mut said(600_000), &mut |what, done, of| {
        told.push((what.to_owned(), done, of));
        Ok(())
    })
    .unwrap();
    let places = [0, 262_144, 524_288, 600_000];
    let expected = ["count triples", "sort triples"]
        .into_iter()
        .flat_map(|what| places.map(|done| (what.to_owned(), done, 600_000)));
    assert_eq!(told, expected.collect::<Vec<_>>());
}

#[test]
fn what_was_read_ahead_for_another_step_or_badly_is_not_a_steps() {
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    let directory = tempfile::tempdir().unwrap();
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    let slot_rows = table.layout.slot_rows();
    let mut buckets = table.buckets(directory.path());
    let mut pools = PoolReader::new(table.buckets(directory.path())).unwrap();
    let mut expected = TriplePool::default();
    let step = executor.advance().unwrap().unwrap();
    let visits: Vec<Visit> = step.buckets.iter().copied().zip(step.shares.clone()).collect();
    buckets.read(&step, slot_rows, &mut expected).unwrap();
    for begun in [&visits[1..], &[], &visits[..]] {
        pools.begin(begun.to_vec()).unwrap();
        assert_eq!(pools.buckets().unwrap().triples(), table.triples.len() as u64);
        assert_eq!(*pools.read(&step, slot_rows).unwrap(), expected);
        // The step is read again from the file, because the rows of the pool were converted.
        assert_eq!(*pools.read(&step, slot_rows).unwrap(), expected);
    }

    let path = directory.path().join("buckets.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 5;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut failed = None;
    let mut next = Some(step);
    while let Some(step) = next {
        match pools.read(&step, slot_rows) {
            Ok(_) => assert!(!step.buckets.iter().any(|b| (b.source, b.target) == (4, 4))),
            Err(error) => failed = Some((error, step)),
        }
        if failed.is_some() {
            break;
        }
        if let Some(visits) = executor.upcoming() {
            pools.begin(visits.to_vec()).unwrap();
        }
        next = executor.advance().unwrap();
    }
    let (error, step) = failed.unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("bucket (4, 4)"), "{error}");
    // A failed read may be repeated.
    assert!(pools.read(&step, slot_rows).is_err());
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    buckets.read(&step, slot_rows, &mut expected).unwrap();
    assert_eq!(*pools.read(&step, slot_rows).unwrap(), expected);
}

#[test]
fn triples_out_of_range_are_named() {
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    let nodes = table.layout.partitioning().nodes() as i64;
    let path = Path::new("/nowhere/b.bin");
    for (wrong, weight, expected) in [
        ([-1, 0, 0], 1.0, "row 1: head -1, expected 0 to"),
        ([0, 3, 0], 1.0, "row 1: relation 3, expected 0 to 2"),
        ([0, 0, nodes], 1.0, "row 1: tail"),
        ([0, 0, 0], f32::NAN, "row 1: weight NaN"),
        ([0, 0, 0], -1.0, "row 1: weight -1"),
    ] {
        let mut triples = MemoryTriples { triples: &[[0; 3], wrong], weights: &[1.0, weight] };
        let error = build(path, &mut triples, &source(&table, ""), Bytes::mib(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn arrays_of_another_shape_or_length_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for (file, dtype, row, rows) in [
        ("good.npy", DType::I64, &[3u64][..], 4),
        ("pairs.npy", DType::I64, &[2][..], 4),
        ("short.npy", DType::F32, &[][..], 3),
        ("wide.npy", DType::F32, &[2][..], 4),
    ] {
        let mut writer = ArrayWriter::create(&RealDisk, root, file, dtype, row).unwrap();
        let bytes = rows * dtype.size() * row.iter().product::<u64>() as usize;
        writer.write(&vec![0; bytes]).unwrap();
        writer.finish().unwrap();
    }
    let open = |triples: &str, weights: Option<&str>| {
        let weights = weights.map(|file| root.join(file));
        ArrayTriples::open(&root.join(triples), weights.as_deref()).map(drop)
    };
    open("good.npy", None).unwrap();
    for (triples, weights, expected) in [
        ("pairs.npy", None, "expected int64 [m, 3]"),
        ("good.npy", Some("short.npy"), "3 weights for 4 triples"),
        ("good.npy", Some("wide.npy"), "expected float32 [m]"),
    ] {
        let error = open(triples, weights).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
}
