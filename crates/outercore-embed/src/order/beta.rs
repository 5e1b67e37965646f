use super::Swap;

/// Swaps of BETA from the state `0..resident` on.
///
/// All slots but the last hold partitions that stay until every other unfinished one has passed
/// through the last slot; then unfinished ones take their places, one after the other.
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
        // The fixed ones are done. What has passed takes their places; the rest goes on waiting.
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
