//! Intersection of two sorted lists.

/// If one list is this many times longer than the other, it is searched instead of scanned.
const GALLOP_RATIO: usize = 16;

/// Calls `on_match(i, j)` for every `a[i] == b[j]`, ascending. Both lists are sorted and unique.
///
/// **Cost** `min(a + b, short * log(long / short))` comparisons.
pub(crate) fn intersect(a: &[u64], b: &[u64], mut on_match: impl FnMut(usize, usize)) {
    if a.len() / GALLOP_RATIO > b.len() {
        gallop(b, a, |j, i| on_match(i, j));
    } else if b.len() / GALLOP_RATIO > a.len() {
        gallop(a, b, on_match);
    } else {
        let (mut i, mut j) = (0, 0);
        while i < a.len() && j < b.len() {
            let (x, y) = (a[i], b[j]);
            if x == y {
                on_match(i, j);
            }
            // Branch-free, because the processor cannot predict which side advances.
            i += usize::from(x <= y);
            j += usize::from(y <= x);
        }
    }
}

fn gallop(short: &[u64], long: &[u64], mut on_match: impl FnMut(usize, usize)) {
    let mut from = 0;
    for (i, &wanted) in short.iter().enumerate() {
        let mut step = 1;
        let mut low = from;
        while low + step < long.len() && long[low + step] < wanted {
            low += step;
            step *= 2;
        }
        let high = (low + step + 1).min(long.len());
        from = low + long[low..high].partition_point(|&x| x < wanted);
        if from == long.len() {
            return;
        }
        if long[from] == wanted {
            on_match(i, from);
            from += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn every_common_element_is_found_once_in_order(
            a in proptest::collection::btree_set(0u64..400, 0..200),
            b in proptest::collection::btree_set(0u64..400, 0..12),
            swap in any::<bool>(),
        ) {
            let expected: Vec<u64> = a.intersection(&b).copied().collect();
            let list = |set: &BTreeSet<u64>| set.iter().copied().collect::<Vec<_>>();
            let (a, b) = if swap { (list(&b), list(&a)) } else { (list(&a), list(&b)) };
            let mut found = Vec::new();
            intersect(&a, &b, |i, j| {
                assert_eq!(a[i], b[j]);
                found.push(a[i]);
            });
            prop_assert_eq!(found, expected);
        }
    }
}
