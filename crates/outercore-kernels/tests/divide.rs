//! Divides triples by the group of their anchors.

use outercore_kernels::{Askers, divide};
use proptest::prelude::*;

proptest! {
    #[test]
    fn triples_are_divided_by_the_range_of_their_anchor(
        anchors in prop::collection::vec(0..40i64, 0..60),
        starts in prop::collection::btree_set(1..40i64, 0..5),
        column in 0..3usize,
        groups in prop::collection::vec(0..3i64, 6),
    ) {
        let starts: Vec<i64> = std::iter::once(0).chain(starts).collect();
        let groups = &groups[..starts.len()];
        let kinds: Vec<i64> = (0..starts.len() as i64).map(|range| range * 10).collect();
        let mut triples = vec![-1; 3 * anchors.len()];
        for (triple, &anchor) in triples.chunks_exact_mut(3).zip(&anchors) {
            triple[column] = anchor;
        }
        let places: Vec<i64> = (0..anchors.len() as i64).rev().collect();
        let askers = Askers { starts: &starts, groups, kinds: &kinds };
        let found = divide(&triples, column, &places, askers, 3).unwrap();
        for (group, (some, of_some)) in (0..).zip(found) {
            let range = |place: i64| {
                starts.iter().rposition(|&start| start <= anchors[place as usize]).unwrap()
            };
            let mine = places.iter().copied().filter(|&place| groups[range(place)] == group);
            prop_assert_eq!(&some, &mine.collect::<Vec<_>>());
            let expected: Vec<i64> = some.iter().map(|&place| kinds[range(place)]).collect();
            prop_assert_eq!(of_some, expected);
        }
    }
}

#[test]
fn what_cannot_be_divided_is_refused_by_name() {
    let triples = [3, 0, 5];
    let divided = |column, place, start, group, kinds: &[i64]| {
        let askers = Askers { starts: &[start], groups: &[group], kinds };
        divide(&triples, column, &[place], askers, 1).map_err(|error| error.to_string())
    };
    assert!(divided(0, 0, 0, 0, &[0]).is_ok());
    for (found, expected) in [
        (divided(0, 1, 0, 0, &[0]), "no triple 1"),
        (divided(0, -1, 0, 0, &[0]), "no triple -1"),
        (divided(0, i64::MAX, 0, 0, &[0]), "no triple"),
        // Three times this number is the largest address, so adding a column overflows.
        (divided(2, (u64::MAX / 3) as i64, 0, 0, &[0]), "no triple"),
        (divided(3, 0, 0, 0, &[0]), "column 3"),
        (divided(0, 0, 4, 0, &[0]), "no range of row 3"),
        (divided(0, 0, 0, 1, &[0]), "no group 1"),
        (divided(0, 0, 0, 0, &[]), "kinds"),
    ] {
        let error = found.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
