//! Groups ranges by the entities that their anchors are compared with.

use outercore_kernels::alike;
use proptest::prelude::*;

const RANGES: usize = 5;

proptest! {
    #[test]
    fn ranges_are_together_where_one_draw_serves_their_anchors(
        likely in prop::collection::vec(
            prop::sample::select(vec![0.0, 0.0, 0.125, 0.25, 0.5]),
            RANGES * RANGES,
        ),
        weighs: bool,
    ) {
        let shares: Vec<Vec<f64>> = likely
            .chunks(RANGES)
            .map(|row| {
                let largest = row.iter().copied().fold(0.0, f64::max);
                row.iter().map(|likely| if largest > 0.0 { likely / largest } else { 0.0 }).collect()
            })
            .collect();
        let answers = |row: &[f64]| -> Vec<i64> {
            (0..).zip(row).filter(|(_, share)| **share > 0.0).map(|(range, _)| range).collect()
        };
        let found = alike(&likely, RANGES, weighs).unwrap();
        let asked: Vec<usize> =
            (0..RANGES).filter(|&range| !answers(&shares[range]).is_empty()).collect();
        for (range, shares) in shares.iter().enumerate() {
            let (group, kind) = (found.group_of[range] as usize, found.kind_of[range] as usize);
            if !asked.contains(&range) {
                prop_assert_eq!((group, kind), (0, 0));
                continue;
            }
            let one = &found.groups[group];
            prop_assert_eq!(&one.answers, &answers(shares));
            let of_kind = one.shares.chunks(one.answers.len()).nth(kind).unwrap();
            let expected: Vec<f64> =
                one.answers.iter().map(|&answer| shares[answer as usize]).collect();
            prop_assert_eq!(of_kind, expected);
        }
        for &first in &asked {
            for &second in &asked {
                let same = shares[first] == shares[second];
                let together = if weighs {
                    answers(&shares[first]) == answers(&shares[second])
                } else {
                    same
                };
                prop_assert_eq!(found.group_of[first] == found.group_of[second], together);
                let alike = together && found.kind_of[first] == found.kind_of[second];
                prop_assert_eq!(alike, same);
            }
        }
        // Every group and every kind must be in use by some range.
        for (number, group) in (0..).zip(&found.groups) {
            let members = asked.iter().filter(|&&range| found.group_of[range] == number);
            let highest = members.map(|&range| found.kind_of[range]).max().unwrap();
            prop_assert_eq!(group.shares.len(), (highest as usize + 1) * group.answers.len());
        }
    }
}

#[test]
fn what_is_no_likelihood_is_refused_by_name() {
    for (likely, ranges, expected) in [
        (vec![1.0; 3], 2, "3 likelihoods for 2 ranges"),
        (vec![1.0], usize::MAX, "1 likelihoods"),
        (vec![f64::NAN], 1, "a likelihood of NaN"),
        (vec![-1.0], 1, "a likelihood of -1"),
        (vec![f64::INFINITY], 1, "a likelihood of inf"),
    ] {
        let error = alike(&likely, ranges, true).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(alike(&[], 0, true).unwrap().groups.is_empty());
    assert!(alike(&[-0.0], 1, true).unwrap().groups.is_empty());
}
