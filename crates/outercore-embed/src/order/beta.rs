use super::Swap;

/// Swaps of BETA, starting from the state `0..resident`.
///
/// All slots but the last hold fixed partitions, until every other unfinished partition has passed
/// through the last slot. Then unfinished partitions replace the fixed ones, one after the other.
pub fn swaps(partitions: usize, resident: usize) -> Vec<Swap> {
    let mut swaps = Vec::new();
    let mut fixed: Vec<usize> = (0..resident - 1).collect();
    let mut passing = resident - 1;
    let mut waiting: Vec<usize> = (resident..partitions).collect();
    loop {
        let mut passed = Vec::new();
        for loaded in waiting {
            swaps.push(Swap { evicted: passing, loaded });
            passed.push(passing);
            passing = loaded;
        }
        // The fixed partitions are done. Partitions that have passed replace them; the rest waits
        // for the next round.
        let coming = passed.len().min(fixed.len());
        waiting = passed.split_off(coming);
        for (place, loaded) in passed.into_iter().enumerate() {
            swaps.push(Swap { evicted: fixed[place], loaded });
            fixed[place] = loaded;
        }
        if waiting.is_empty() {
            return swaps;
        }
    }
}
