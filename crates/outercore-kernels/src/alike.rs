//! Groups anchors that are compared with the same entities.

use std::collections::BTreeMap;

use outercore_core::{Error, Result};

/// Common properties of the anchors of some ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Alike {
    /// The ranges that contain all their answers, ascending.
    pub answers: Vec<i64>,
    /// For each kind and answer range, the likelihood of an entity relative to the most likely one:
    /// `[kinds, answers]`.
    pub shares: Vec<f64>,
}

/// The ranges of rows in memory, grouped by the entities that their anchors are compared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups {
    /// The group of each range; 0 for a range whose anchors have no answers, because they belong to
    /// no triple.
    pub group_of: Vec<i64>,
    /// The kind of each range within its group.
    pub kind_of: Vec<i64>,
    /// By group.
    pub groups: Vec<Alike>,
}

/// Groups ranges whose anchors can share a draw. If a bias can express likelihoods (`weighs`),
/// these are ranges with answers in the same ranges. Otherwise the likelihoods must be equal too.
///
/// `likely` `[ranges, ranges]` is the relative likelihood that the answer of an anchor in one range
/// is a given entity of another range; 0 if it never is.
///
/// # Errors
/// Invalid: `likely` does not have one entry per pair of ranges, or an entry is negative or not
/// finite.
///
/// # Example
/// ```
/// use outercore_kernels::alike;
/// let found = alike(&[0.5, 0.25, 0.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0], 3, true).unwrap();
/// assert_eq!((found.group_of, found.kind_of), (vec![0; 3], vec![0; 3]));
/// assert_eq!(found.groups[0].answers, [0, 1]);
/// assert_eq!(found.groups[0].shares, [1.0, 0.5]);
/// ```
pub fn alike(likely: &[f64], ranges: usize, weighs: bool) -> Result<Groups> {
    if ranges.checked_mul(ranges) != Some(likely.len()) {
        let text = format!("negatives: {} likelihoods for {ranges} ranges", likely.len());
        return Err(Error::invalid(text));
    }
    if let Some(wrong) = likely.iter().find(|likely| !(0.0..f64::INFINITY).contains(*likely)) {
        return Err(Error::invalid(format!("negatives: a likelihood of {wrong}")));
    }
    let mut sets: BTreeMap<Vec<u64>, Vec<(usize, Vec<u64>)>> = BTreeMap::new();
    for (range, row) in likely.chunks_exact(ranges.max(1)).enumerate() {
        let largest = row.iter().copied().fold(0.0, f64::max);
        if largest > 0.0 {
            // For non-negative floats, the bit patterns have the same order as the values.
            let share = |likely: &f64| (likely / largest).abs().to_bits();
            let shares: Vec<u64> = row.iter().map(share).collect();
            let seen = |share: &u64| if weighs { u64::from(*share != 0) } else { *share };
            sets.entry(shares.iter().map(seen).collect()).or_default().push((range, shares));
        }
    }
    let mut found =
        Groups { group_of: vec![0; ranges], kind_of: vec![0; ranges], groups: Vec::new() };
    for (number, (set, members)) in (0..).zip(sets) {
        let answers: Vec<i64> =
            (0..).zip(&set).filter(|(_, share)| **share != 0).map(|(range, _)| range).collect();
        let mut kinds: Vec<&[u64]> = members.iter().map(|(_, shares)| &shares[..]).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for (range, shares) in &members {
            found.group_of[*range] = number;
            found.kind_of[*range] = kinds.partition_point(|kind| *kind < &shares[..]) as i64;
        }
        let of_kind = |kind: &&[u64]| -> Vec<f64> {
            answers.iter().map(|&range| f64::from_bits(kind[range as usize])).collect()
        };
        let shares = kinds.iter().flat_map(of_kind).collect();
        found.groups.push(Alike { answers, shares });
    }
    Ok(found)
}
