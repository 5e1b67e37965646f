//! Parses sizes such as `8GiB`.

use std::str::FromStr;

use crate::{Bytes, Error, ErrorKind};

impl FromStr for Bytes {
    type Err = Error;

    /// Parses `512`, `64KiB`, `1.5 GiB`, `2GB` (decimal) and one-letter units (`8G` = `8GiB`).
    fn from_str(text: &str) -> Result<Self, Error> {
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024.0 * 1024.0,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "t" | "tib" => 1024.0f64.powi(4),
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(not_a_size(text)),
        };
        let value: f64 = number.parse().map_err(|_| not_a_size(text))?;
        let bytes = value * factor;
        if !bytes.is_finite() || bytes < 0.0 || bytes > u64::MAX as f64 {
            return Err(not_a_size(text));
        }
        Ok(Self(bytes.round() as u64))
    }
}

fn not_a_size(text: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("`{text}` is not a size"))
        .hint("write a number and a unit, such as 512MiB, 8GiB or 2.5GB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_decimal_and_bare_units_parse() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("4KiB", 4096),
            ("4 kib", 4096),
            ("1.5MiB", 1536 << 10),
            ("8G", 8 << 30),
            ("2.5GB", 2_500_000_000),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap().0, expected, "{text}");
        }
    }

    #[test]
    fn what_is_readable_is_at_least_as_much_and_its_text_says_exactly_how_much() {
        let near =
            |power: u32| [-1i64, 0, 1, 57].map(|more| (1u64 << power).wrapping_add_signed(more));
        let sizes = (0..50).flat_map(near).chain([0, 999, 1025, 45_940_000, 3_333_333_333]);
        for bytes in sizes.map(Bytes) {
            let readable = bytes.readable();
            assert!(readable >= bytes && readable.0 <= bytes.0 + bytes.0 / 10 + 1, "{bytes:?}");
            assert_eq!(readable.to_string().parse::<Bytes>().unwrap(), readable, "{bytes:?}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in ["", "GiB", "-4KiB", "4 potatoes", "1.2.3"] {
            let error = text.parse::<Bytes>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(error.to_string().contains("hint:"), "{text}");
        }
    }
}
