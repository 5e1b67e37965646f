//! Encodes 16-bit numbers in one or two bytes: control bits give the lengths, then the numbers
//! follow.
//!
//! `n` numbers take `n / 8` control bytes, rounded up, then the numbers, little endian. Bit `k` of
//! control byte `b` is set if number `8 b + k` has two bytes.

/// The start of each of eight numbers, by control byte.
const STARTS: [[u8; 8]; 256] = starts();
/// For each number, the mask of the two bytes at its start, by control byte.
const MASKS: [[u16; 8]; 256] = masks();

const fn starts() -> [[u8; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut control = 0;
    while control < 256 {
        let mut at = 0;
        let mut number = 0;
        while number < 8 {
            table[control][number] = at;
            at += 1 + (control >> number & 1) as u8;
            number += 1;
        }
        control += 1;
    }
    table
}

const fn masks() -> [[u16; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut control = 0;
    while control < 256 {
        let mut number = 0;
        while number < 8 {
            table[control][number] = if control >> number & 1 == 1 { 0xFFFF } else { 0x00FF };
            number += 1;
        }
        control += 1;
    }
    table
}

/// Bytes of the encoded `values`.
pub(crate) fn encoded_len(values: &[u16]) -> usize {
    let wide = values.iter().filter(|value| **value > 0xFF).count();
    values.len().div_ceil(8) + values.len() + wide
}

/// Appends `values`.
pub(crate) fn encode(values: &[u16], out: &mut Vec<u8>) {
    let controls = out.len();
    out.resize(controls + values.len().div_ceil(8), 0);
    for (at, value) in values.iter().enumerate() {
        let [low, high] = value.to_le_bytes();
        out.push(low);
        if high != 0 {
            out.push(high);
            out[controls + at / 8] |= 1 << (at % 8);
        }
    }
}

/// Fills `out` from the first `len` bytes of `bytes`; `None` if these are not exactly `out.len()`
/// numbers.
///
/// The result does not depend on the bytes after `len`, but eight numbers are loaded faster if 17
/// bytes are present.
pub(crate) fn decode(bytes: &[u8], len: usize, out: &mut [u16]) -> Option<()> {
    let count = out.len();
    let (controls, mut rest) = bytes.split_at_checked(count.div_ceil(8))?;
    let wide: usize = controls.iter().map(|control| control.count_ones() as usize).sum();
    if controls.len() + count + wide != len || len > bytes.len() {
        return None;
    }
    let (groups, last) = out.as_chunks_mut::<8>();
    for (group, &control) in groups.iter_mut().zip(controls) {
        rest = decode_group(control, rest, group)?;
    }
    let Some(&control) = controls.get(groups.len()) else { return Some(()) };
    // Control bits beyond the last number must be 0.
    if control >> last.len() != 0 {
        return None;
    }
    decode_one_by_one(control, rest, last)?;
    Some(())
}

#[inline(always)]
fn decode_group<'a>(control: u8, bytes: &'a [u8], out: &mut [u16; 8]) -> Option<&'a [u8]> {
    if control == 0 {
        let (low, rest) = bytes.split_first_chunk::<8>()?;
        for (value, low) in out.iter_mut().zip(low) {
            *value = u16::from(*low);
        }
        return Some(rest);
    }
    if control == 0xFF {
        let (both, rest) = bytes.split_first_chunk::<16>()?;
        for (value, pair) in out.iter_mut().zip(both.as_chunks::<2>().0) {
            *value = u16::from_le_bytes(*pair);
        }
        return Some(rest);
    }
    let Some(window) = bytes.first_chunk::<17>() else {
        return decode_one_by_one(control, bytes, out);
    };
    let (starts, masks) = (&STARTS[usize::from(control)], &MASKS[usize::from(control)]);
    for ((value, start), mask) in out.iter_mut().zip(starts).zip(masks) {
        // No start is above 14; the mask tells the compiler so, and it omits the bounds checks.
        let start = usize::from(start & 15);
        *value = u16::from_le_bytes([window[start], window[start + 1]]) & mask;
    }
    bytes.get(8 + control.count_ones() as usize..)
}

fn decode_one_by_one<'a>(control: u8, bytes: &'a [u8], out: &mut [u16]) -> Option<&'a [u8]> {
    let mut rest = bytes;
    for (number, value) in out.iter_mut().enumerate() {
        let (&low, after) = rest.split_first()?;
        let (high, after) = match control >> number & 1 {
            0 => (0, after),
            _ => after.split_first().map(|(&high, after)| (high, after))?,
        };
        *value = u16::from_le_bytes([low, high]);
        rest = after;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(values: &[u16], after: &[u8]) {
        let mut bytes = Vec::new();
        encode(values, &mut bytes);
        let len = bytes.len();
        assert_eq!(len, encoded_len(values));
        bytes.extend_from_slice(after);
        let mut decoded = vec![7; values.len()];
        assert_eq!(decode(&bytes, len, &mut decoded), Some(()));
        assert_eq!(decoded, values);
        for wrong in [len.wrapping_sub(1), len + 1] {
            assert_eq!(decode(&bytes, wrong, &mut decoded), None, "{wrong} bytes, not {len}");
        }
    }

    #[test]
    fn every_control_byte_is_read_back_with_and_without_bytes_behind_it() {
        for control in 0..=255u8 {
            for count in 0..=9 {
                let values: Vec<u16> = (0..count)
                    .map(|k| if control >> (k % 8) & 1 == 1 { 0xFF00 + k } else { 0xF0 + k })
                    .collect();
                round_trip(&values, &[]);
                round_trip(&values, &[0xFF; 32]);
            }
        }
    }

    #[test]
    fn a_second_byte_of_a_number_that_is_not_there_is_refused() {
        let mut bytes = Vec::new();
        encode(&[1, 2, 3], &mut bytes);
        bytes[0] = 0b1000;
        bytes.push(0);
        assert_eq!(decode(&bytes, bytes.len(), &mut [0; 3]), None);
    }

    fn small_or_large() -> impl Strategy<Value = u16> {
        prop_oneof![0..256u16, any::<u16>()]
    }

    proptest! {
        #[test]
        fn values_round_trip(
            values in prop::collection::vec(small_or_large(), 0..200),
            after in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            round_trip(&values, &after);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            count in 0..100usize,
            len in 0..120usize,
        ) {
            let _ = decode(&bytes, len, &mut vec![0; count]);
        }
    }
}
