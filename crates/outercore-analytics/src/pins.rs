//! Which segments stay in memory. Pure.

/// The segments to keep within `room` bytes: spread evenly over the file, since all are used
/// alike, so that the device is busy while those in memory are computed.
///
/// **Cost**: linear in the segments.
pub fn choose(segments: &[u64], room: u64) -> Vec<bool> {
    let total: u64 = segments.iter().sum();
    if total <= room {
        return vec![true; segments.len()];
    }
    let share = room as f64 / total as f64;
    let (mut owed, mut left) = (0.0, room);
    segments
        .iter()
        .map(|&bytes| {
            // What has been owed for long enough is taken: the error diffuses down the file.
            owed += share * bytes as f64;
            let taken = owed >= bytes as f64 / 2.0 && bytes <= left;
            if taken {
                owed -= bytes as f64;
                left -= bytes;
            }
            taken
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_stay_within_the_room_and_use_nearly_all_of_it() {
        for room in [0u64, 100, 5_000, 50_000, 99_999, 100_000] {
            let sizes: Vec<u64> = (0..100).map(|at| 500 + at * 10).collect();
            let pinned = choose(&sizes, room);
            let used: u64 =
                sizes.iter().zip(&pinned).filter(|pair| *pair.1).map(|pair| pair.0).sum();
            assert!(used <= room, "{used} of {room}");
            assert!(
                used + 2 * 1_490 > room || used == sizes.iter().sum::<u64>(),
                "{used} of {room}"
            );
        }
    }

    #[test]
    fn pins_are_spread_over_the_file() {
        let pinned = choose(&[1000; 400], 100_000);
        for window in pinned.chunks(8) {
            assert_eq!(window.iter().filter(|pinned| **pinned).count(), 2, "{window:?}");
        }
    }
}
