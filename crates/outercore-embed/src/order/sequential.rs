use super::{Pairs, Swap};

/// Swaps from the state `0..resident` on that bring together every two partitions in the order of
/// their numbers: the first with all others, then the second, and so on. Whatever was needed
/// longest ago makes room. It is what training bucket after bucket amounts to.
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
