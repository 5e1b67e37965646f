use outercore_core::Bytes;
use outercore_store::import::{Duplicates, EdgeImportOptions, SelfLoops, Tuning};
use proptest::prelude::*;

use crate::model::{import, naive, options, random_edges, read, scratch, tiny};

fn any_options() -> impl Strategy<Value = EdgeImportOptions> {
    let loops = prop_oneof![Just(SelfLoops::Keep), Just(SelfLoops::Drop), Just(SelfLoops::Add)];
    let duplicates = prop_oneof![Just(Duplicates::Keep), Just(Duplicates::Drop)];
    let tuning =
        (1usize..40, 1u32..7, 70usize..6000, 1usize..8000, 1u64..60, 1usize..600, any::<bool>())
            .prop_map(|(edge_block, slots, combining, sorting, bucket_arcs, run, wide)| Tuning {
                edge_block,
                histogram_slots: 1 << slots,
                combining,
                // With runs of a single arc, the merge would have one buffer per arc.
                run: run.max(50),
                sorting,
                bucket_arcs,
                wide,
                ..tiny()
            });
    (any::<bool>(), loops, duplicates, 1usize..4, tuning).prop_map(
        |(undirected, self_loops, duplicates, threads, tuning)| EdgeImportOptions {
            undirected,
            self_loops,
            duplicates,
            threads,
            tuning: Some(tuning),
            ..options()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_graph_under_any_options_and_budget_is_the_naive_csc(
        options in any_options(),
        count in 0u64..400,
        nodes in 1u64..120,
        isolated in prop::option::of(0u64..300),
        seed: u64,
    ) {
        let edges = random_edges(count, nodes, seed);
        let num_nodes = isolated.map(|more| nodes + more).or((count == 0).then_some(nodes));
        let options = EdgeImportOptions { num_nodes, ..options };
        let directory = scratch();
        let artifacts = import(directory.path(), &options, &edges).unwrap();
        prop_assert_eq!(read(directory.path(), &artifacts), naive(&edges, &options));
        let loops = edges.iter().filter(|[u, v]| u == v).count() as u64;
        let dropped = if options.self_loops == SelfLoops::Drop { loops } else { 0 };
        prop_assert_eq!(artifacts.loops_dropped, dropped);
        prop_assert_eq!(artifacts.input_edges, count);
        let before = if options.undirected { 2 * count - loops } else { count };
        prop_assert_eq!(
            artifacts.num_edges,
            before - dropped - artifacts.duplicates_dropped + artifacts.loops_added
        );
        let left: std::collections::BTreeSet<_> = std::fs::read_dir(directory.path().join(".import")).unwrap()
            .map(|entry| entry.unwrap().file_name()).collect();
        prop_assert_eq!(left, ["files.json", "journal.json"].map(Into::into).into());
    }
}

#[test]
fn the_least_memory_imports_and_less_is_refused_with_the_least() {
    let edges = random_edges(50_000, 3000, 5);
    let least = EdgeImportOptions::LEAST_MEMORY;
    let options = EdgeImportOptions { memory: least, tuning: None, ..options() };
    let directory = scratch();
    let artifacts = import(directory.path(), &options, &edges).unwrap();
    assert_eq!(read(directory.path(), &artifacts), naive(&edges, &options));

    let less = EdgeImportOptions { memory: Bytes(least.0 - 1), ..options };
    let error = import(scratch().path(), &less, &edges).unwrap_err();
    assert_eq!(error.kind(), outercore_core::ErrorKind::Budget);
    assert!(error.to_string().contains("at least 16.0 MiB"), "{error}");
}

#[test]
fn edge_ids_are_left_out_where_they_say_nothing() {
    let sorted = [[0, 0], [2, 0], [1, 1], [0, 2]];
    for (edges, absent) in
        [(sorted.to_vec(), true), (sorted.iter().rev().copied().collect(), false)]
    {
        let directory = scratch();
        let artifacts = import(directory.path(), &options(), &edges).unwrap();
        assert_eq!(artifacts.arrays.contains_key("edges/edge/ids"), !absent);
        assert_eq!(read(directory.path(), &artifacts), naive(&edges, &options()));
    }
}

#[test]
fn all_arcs_into_one_node_are_sorted_in_runs() {
    let edges: Vec<[u64; 2]> = (0..2000).map(|i| [i * 7919 % 61, 3]).collect();
    for duplicates in [Duplicates::Keep, Duplicates::Drop] {
        let options = EdgeImportOptions { duplicates, ..options() };
        let directory = scratch();
        let artifacts = import(directory.path(), &options, &edges).unwrap();
        assert_eq!(read(directory.path(), &artifacts), naive(&edges, &options));
    }
}
