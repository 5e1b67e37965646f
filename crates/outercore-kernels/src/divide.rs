//! Which triples of a batch share their negatives.

use outercore_core::{Error, Result};

/// Who draws for an anchor, by the range that it is in.
#[derive(Clone, Copy, Debug)]
pub struct Askers<'a> {
    /// First row of each range, ascending.
    pub starts: &'a [i64],
    /// The group of each.
    pub groups: &'a [i64],
    /// The kind of each within its group.
    pub kinds: &'a [i64],
}

/// The triples of each group, in their order, as `(places, kinds)`.
///
/// `triples` are heads, relations and tails, of which `column` holds the anchor.
///
/// # Errors
/// Invalid: a place or a range that is not there, a group beyond `groups`, ranges that do not agree
/// or ascend.
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
    // All anchors first: triples lie far apart, and the processor waits for many of them at once
    // as long as nothing is done with them.
    let mut anchors = Vec::with_capacity(places.len());
    for &place in places {
        let first = usize::try_from(place).ok().and_then(|place| place.checked_mul(3));
        let at = first.and_then(|first| first.checked_add(column));
        let anchor = at.and_then(|at| triples.get(at));
        anchors.push(*anchor.ok_or_else(|| wrong("no triple", place))?);
    }
    let mut found = vec![(Vec::new(), Vec::new()); groups];
    for (&place, &anchor) in places.iter().zip(&anchors) {
        // Few ranges: looking at each is faster than halving them.
        let before = starts.iter().filter(|&&start| start <= anchor).count();
        let range = before.checked_sub(1).ok_or_else(|| wrong("no range of row", anchor))?;
        let group = usize::try_from(group_of[range]).ok().and_then(|group| found.get_mut(group));
        let (some, of_some) = group.ok_or_else(|| wrong("no group", group_of[range]))?;
        some.push(place);
        of_some.push(kinds[range]);
    }
    Ok(found)
}
