//! Divides the triples of a batch into groups that share negatives.

use outercore_core::{Error, Result};

/// The group and kind of anchors, by their range.
#[derive(Clone, Copy, Debug)]
pub struct Askers<'a> {
    /// First row of each range, ascending.
    pub starts: &'a [i64],
    /// The group of each range.
    pub groups: &'a [i64],
    /// The kind of each range within its group.
    pub kinds: &'a [i64],
}

/// The triples of each group, in order, as `(places, kinds)`.
///
/// `triples` are rows of head, relation and tail; `column` is the column of the anchor.
///
/// # Errors
/// Invalid: a place or a range out of bounds, a group beyond `groups`, or ranges that disagree or
/// do not ascend.
///
/// # Example
/// ```
/// use outercore_kernels::{Askers, divide};
/// let triples = [0, 0, 9, 5, 0, 1, 6, 0, 2];
/// let askers = Askers { starts: &[0, 5], groups: &[1, 0], kinds: &[0, 3] };
/// let found = divide(&triples, 0, &[2, 0, 1], askers, 2).unwrap();
/// assert_eq!(found, [(vec![2, 1], vec![3, 3]), (vec![0], vec![0])]);
/// ```
pub fn divide(
    triples: &[i64],
    column: usize,
    places: &[i64],
    askers: Askers<'_>,
    groups: usize,
) -> Result<Vec<(Vec<i64>, Vec<i64>)>> {
    let Askers { starts, groups: group_of, kinds } = askers;
    if column > 2 || group_of.len() != starts.len() || kinds.len() != starts.len() {
        return Err(Error::invalid(format!(
            "negatives: column {column}, groups and kinds of {} and {} ranges of {}",
            group_of.len(),
            kinds.len(),
            starts.len()
        )));
    }
    if !starts.is_sorted() {
        return Err(Error::invalid(format!("negatives: ranges at {starts:?} do not ascend")));
    }
    let wrong = |what: &str, number: i64| Error::invalid(format!("negatives: {what} {number}"));
    // Read all anchors first. The triples are far apart in memory, and the processor can wait for
    // many of them at once if no other work depends on them.
    let mut anchors = Vec::with_capacity(places.len());
    for &place in places {
        let first = usize::try_from(place).ok().and_then(|place| place.checked_mul(3));
        let at = first.and_then(|first| first.checked_add(column));
        let anchor = at.and_then(|at| triples.get(at));
        anchors.push(*anchor.ok_or_else(|| wrong("no triple", place))?);
    }
    let mut found = vec![(Vec::new(), Vec::new()); groups];
    for (&place, &anchor) in places.iter().zip(&anchors) {
        // With few ranges, comparing all starts is faster than a binary search.
        let before = starts.iter().filter(|&&start| start <= anchor).count();
        let range = before.checked_sub(1).ok_or_else(|| wrong("no range of row", anchor))?;
        let group = usize::try_from(group_of[range]).ok().and_then(|group| found.get_mut(group));
        let (some, of_some) = group.ok_or_else(|| wrong("no group", group_of[range]))?;
        some.push(place);
        of_some.push(kinds[range]);
    }
    Ok(found)
}
