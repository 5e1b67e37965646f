use std::sync::Arc;

/// Low bits of a float that a level drops. A level keeps the exponent and three bits of the
/// fraction: eight levels per doubling of the value.
const DROPPED_BITS: u32 = 20;

/// Converts values, none of them negative, to levels of heat: 255 for the largest value, 8 less for
/// half of it, and 0 below about 2^-32 of it.
///
/// **Cost** two passes; one byte per value.
///
/// # Example
/// ```
/// use outercore_cache::heat_levels;
/// assert_eq!(heat_levels(&[0.0, 6.0, 3.0, 3.1, 1.5])[..], [0, 255, 247, 247, 239]);
/// ```
pub fn heat_levels(values: &[f32]) -> Arc<[u8]> {
    // For non-negative floats, the bit patterns have the same order as the values.
    let level = |value: &f32| value.to_bits() >> DROPPED_BITS;
    let top = values.iter().map(level).max().unwrap_or(0);
    let below = |value: &f32| (top - level(value)).min(u32::from(u8::MAX)) as u8;
    values.iter().map(|value| u8::MAX - below(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_that_are_all_zero_are_alike() {
        assert_eq!(heat_levels(&[0.0; 3])[..], [255; 3]);
        assert!(heat_levels(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn levels_have_the_order_of_values_that_differ_by_an_eighth(
            values in proptest::collection::vec(1e-4f32..1e4, 2..50),
        ) {
            let levels = heat_levels(&values);
            for (a, at) in values.iter().zip(levels.iter()) {
                for (b, bt) in values.iter().zip(levels.iter()) {
                    prop_assert!(a > b || at <= bt, "{} {} {} {}", a, at, b, bt);
                    prop_assert!(*a < b * 1.126 || at > bt, "{} {} {} {}", a, at, b, bt);
                }
            }
        }
    }
}
