use super::{Pairs, Swap};

/// Swaps, starting from the state `0..resident`, that bring every two partitions together in
/// numerical order: the first with all others, then the second, and so on. The least recently used
/// partition is evicted. This equals training one bucket after the other.
pub fn swaps(partitions: usize, resident: usize) -> Vec<Swap> {
    let mut buffer: Vec<usize> = (0..resident).collect();
    let mut last_use = vec![0; partitions];
    let mut pairs = Pairs::new(partitions);
    pairs.cover_all(&buffer);
    let mut swaps = Vec::new();
    let mut now = 0;
    for a in 0..partitions {
        for b in a + 1..partitions {
            if !pairs.missing(a, b) {
                continue;
            }
            now += 1;
            (last_use[a], last_use[b]) = (now, now);
            for needed in [a, b] {
                if buffer.contains(&needed) {
                    continue;
                }
                let oldest = (0..resident).min_by_key(|&slot| last_use[buffer[slot]]);
                let slot = oldest.expect("at least two slots");
                swaps.push(Swap { evicted: buffer[slot], loaded: needed });
                buffer[slot] = needed;
                pairs.cover_all(&buffer);
            }
        }
    }
    swaps
}
