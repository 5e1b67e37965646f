//! A stored edge before it is encoded into its block.

use bytemuck::Pod;
use outercore_format::DType;

/// A weight as the grid stores it: `float32` if that is exact, otherwise `float64`.
pub(super) trait Weight: Pod + Send + Sync + Into<f64> {
    /// Type in the file.
    const DTYPE: DType;
    /// The nearest value of this type.
    fn nearest(value: f64) -> Self;
}

impl Weight for f32 {
    const DTYPE: DType = DType::F32;

    fn nearest(value: f64) -> Self {
        value as Self
    }
}

impl Weight for f64 {
    const DTYPE: DType = DType::F64;

    fn nearest(value: f64) -> Self {
        value
    }
}

/// Row, column and weight of an edge within a block, in the order of blocks.
pub(super) trait Record: Pod + Ord + Send + Sync {
    /// Whether [`Record::weight`] is used.
    const WEIGHTED: bool;
    /// Type of a weight.
    type Weight: Weight;
    /// The edge `row << 16 | column`.
    fn new(key: u32, weight: Self::Weight) -> Self;
    fn key(self) -> u32;
    fn weight(self) -> Self::Weight;
    /// Sorts the records; may use `scratch`.
    fn sort(records: &mut [Self], scratch: &mut Vec<Self>);

    fn is_loop(self) -> bool {
        self.key() >> 16 == self.key() & 0xFFFF
    }
}

impl Record for u32 {
    const WEIGHTED: bool = false;
    type Weight = f32;

    fn new(key: u32, _weight: f32) -> Self {
        key
    }

    fn key(self) -> u32 {
        self
    }

    fn weight(self) -> f32 {
        1.0
    }

    fn sort(records: &mut [Self], scratch: &mut Vec<Self>) {
        /// With fewer records, three passes over 2048 counters cost more than comparisons.
        const FEW: usize = 1 << 10;
        const BITS: u32 = 11;
        if records.len() < FEW {
            return records.sort_unstable();
        }
        scratch.clear();
        scratch.resize(records.len(), 0);
        radix_pass(records, scratch, 0, BITS);
        radix_pass(scratch, records, BITS, BITS);
        radix_pass(records, scratch, 2 * BITS, 32 - 2 * BITS);
        records.copy_from_slice(scratch);
    }
}

/// Distributes `from` into `to` by the `bits` bits above `shift`, keeping the order of equal keys.
fn radix_pass(from: &[u32], to: &mut [u32], shift: u32, bits: u32) {
    let digit = |key: u32| (key >> shift) as usize & ((1 << bits) - 1);
    let mut places = vec![0usize; 1 << bits];
    from.iter().for_each(|key| places[digit(*key)] += 1);
    let mut start = 0;
    for place in &mut places {
        start += std::mem::replace(place, start);
    }
    for key in from {
        let place = &mut places[digit(*key)];
        to[*place] = *key;
        *place += 1;
    }
}

impl Record for u64 {
    const WEIGHTED: bool = true;
    type Weight = f32;

    fn new(key: u32, weight: f32) -> Self {
        Self::from(key) << 32 | Self::from(weight.to_bits())
    }

    fn key(self) -> u32 {
        (self >> 32) as u32
    }

    fn weight(self) -> f32 {
        f32::from_bits(self as u32)
    }

    fn sort(records: &mut [Self], _scratch: &mut Vec<Self>) {
        records.sort_unstable();
    }
}

impl Record for u128 {
    const WEIGHTED: bool = true;
    type Weight = f64;

    fn new(key: u32, weight: f64) -> Self {
        Self::from(key) << 64 | Self::from(weight.to_bits())
    }

    fn key(self) -> u32 {
        (self >> 64) as u32
    }

    fn weight(self) -> f64 {
        f64::from_bits(self as u64)
    }

    fn sort(records: &mut [Self], _scratch: &mut Vec<Self>) {
        records.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use outercore_core::Stream;

    use super::*;

    #[test]
    fn many_records_are_sorted_as_few_are() {
        for len in [0, 1, 1023, 1024, 5000] {
            let mut keys: Vec<u32> = (0..len)
                .map(|at| (Stream::new(3, 0).uniform(0, 0, at).unit() * 4_294_967_296.0) as u32)
                .collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            u32::sort(&mut keys, &mut Vec::new());
            assert!(keys == expected, "{len} keys");
        }
    }
}
