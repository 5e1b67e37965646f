use crate::merge::intersect;
use crate::select::Smallest;

/// The constant part of the cache: its rows never change, and slot `i` holds the `i`-th smallest
/// row.
///
/// # Example
/// ```
/// use outercore_cache::ConstantPart;
/// let part = ConstantPart::new(vec![9, 2, 5]);
/// let (mut hits, mut others) = (Vec::new(), Vec::new());
/// part.split(&[1, 2, 9], |index, slot| hits.push((index, slot)), &mut others);
/// assert_eq!(hits, [(1, 0), (2, 2)]);
/// assert_eq!(others, [0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ConstantPart {
    rows: Vec<u64>,
}

impl ConstantPart {
    /// Creates a part with `rows`, in any order; duplicates count once.
    ///
    /// # Panics
    /// With more than 2^32 rows.
    pub fn new(mut rows: Vec<u64>) -> Self {
        if !rows.is_sorted_by(|a, b| a < b) {
            rows.sort_unstable();
            rows.dedup();
        }
        assert!(u32::try_from(rows.len()).is_ok(), "{} rows: a slot is a u32", rows.len());
        Self { rows }
    }

    /// The rows, ascending; the index of a row is its slot.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// Number of rows held.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the part holds no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of memory of the index.
    pub fn heap_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<u64>()
    }

    /// Calls `hits(index in rows, slot)` for the rows that the part holds, ascending. Appends the
    /// indices of the other rows to `others`. `rows` must be sorted and unique.
    pub fn split(&self, rows: &[u64], mut hits: impl FnMut(usize, u32), others: &mut Vec<u32>) {
        let mut seen = 0;
        intersect(rows, &self.rows, |index, slot| {
            others.extend(seen as u32..index as u32);
            seen = index + 1;
            hits(index, slot as u32);
        });
        others.extend(seen as u32..rows.len() as u32);
    }
}

/// The `count` rows with the greatest heat, ascending. Rows with heat 0 are never taken; ties go to
/// the smaller row.
///
/// **Cost** one pass; `20 * count` bytes.
///
/// # Example
/// ```
/// use outercore_cache::hottest;
/// assert_eq!(hottest([(0, 1), (1, 5), (2, 0), (3, 5)].into_iter(), 2), [1, 3]);
/// ```
pub fn hottest(hotness: impl Iterator<Item = (u64, u64)>, count: usize) -> Vec<u64> {
    if count == 0 {
        return Vec::new();
    }
    let room = count + (count / 4).max(1024);
    // Sorted ascending, so the hottest row comes first, and among equals the smallest id.
    let mut best: Vec<(u64, u64)> = Vec::new();
    let mut worst_kept = (u64::MAX, u64::MAX);
    for (row, heat) in hotness {
        let key = (u64::MAX - heat, row);
        if heat == 0 || key > worst_kept {
            continue;
        }
        best.push(key);
        if best.len() == room {
            worst_kept = *best.select_nth_unstable(count - 1).1;
            best.truncate(count);
        }
    }
    if best.len() > count {
        best.select_nth_unstable(count - 1);
        best.truncate(count);
    }
    let mut rows: Vec<u64> = best.into_iter().map(|(_, row)| row).collect();
    rows.sort_unstable();
    rows
}

/// Like [`hottest`], for `heat[row]` in memory.
///
/// **Cost** a few passes over `heat`; no memory except for the result.
///
/// # Example
/// ```
/// use outercore_cache::hottest_of;
/// assert_eq!(hottest_of(&[1u16, 5, 0, 5], 3), [0, 1, 3]);
/// ```
pub fn hottest_of<H: Copy + Into<u64>>(heat: &[H], count: usize) -> Vec<u64> {
    let coldness = || heat.iter().map(|&heat| u64::MAX - heat.into());
    let warm = coldness().filter(|&cold| cold != u64::MAX).count();
    let count = count.min(warm);
    let mut smallest = Smallest::of(count, coldness);
    let mut rows = Vec::with_capacity(count);
    rows.extend(
        (0..).zip(coldness()).filter(|&(_, cold)| smallest.picks(cold)).map(|(row, _)| row),
    );
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_part_leaves_every_row_to_the_others() {
        let mut others = Vec::new();
        ConstantPart::default().split(&[4, 7], |_, _| unreachable!("nothing is held"), &mut others);
        assert_eq!(others, [0, 1]);
    }

    proptest! {
        #[test]
        fn a_split_loses_no_row(
            held in proptest::collection::btree_set(0u64..500, 0..60),
            rows in proptest::collection::btree_set(0u64..500, 0..60),
        ) {
            let part = ConstantPart::new(held.iter().rev().copied().collect());
            let rows: Vec<u64> = rows.into_iter().collect();
            let (mut hits, mut others) = (Vec::new(), Vec::new());
            part.split(&rows, |index, slot| hits.push((index, slot)), &mut others);
            for &(index, slot) in &hits {
                prop_assert_eq!(part.rows()[slot as usize], rows[index]);
            }
            let expected: Vec<u32> =
                (0..rows.len()).filter(|&i| !held.contains(&rows[i])).map(|i| i as u32).collect();
            prop_assert_eq!(&others, &expected);
            prop_assert_eq!(hits.len() + others.len(), rows.len());
        }

        #[test]
        fn the_hottest_rows_are_those_of_a_full_sort(
            heat in proptest::collection::vec(0u32..6, 0..3000),
            count in 0usize..400,
        ) {
            let mut order: Vec<u64> =
                (0..heat.len() as u64).filter(|&row| heat[row as usize] > 0).collect();
            order.sort_by_key(|&row| (u32::MAX - heat[row as usize], row));
            order.truncate(count);
            order.sort_unstable();
            prop_assert_eq!(&hottest_of(&heat, count), &order);
            let pairs = (0..).zip(heat.iter().map(|&heat| u64::from(heat)));
            prop_assert_eq!(&hottest(pairs, count), &order);
        }
    }
}
