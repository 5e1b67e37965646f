use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind};

/// A number of bytes; printed and parsed with binary units (`8GiB`, `4KiB`).
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// assert_eq!("1.5MiB".parse::<Bytes>().unwrap(), Bytes::kib(1536));
/// assert_eq!(Bytes::gib(2).to_string(), "2.0 GiB");
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` kibibytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` gibibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The count as `usize`; sizes that reach this come from memory budgets, which fit.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// As many or a few more, so that their text says exactly how many, below a pebibyte: for what
    /// somebody is told to ask for.
    ///
    /// # Example
    /// ```
    /// use outercore_core::Bytes;
    /// let needed = Bytes(45_940_000);
    /// assert_eq!(needed.to_string(), "43.8 MiB");
    /// assert!("43.8 MiB".parse::<Bytes>()? < needed);
    /// assert_eq!(needed.readable(), "43.9 MiB".parse()?);
    /// # Ok::<(), outercore_core::Error>(())
    /// ```
    #[must_use]
    pub fn readable(self) -> Self {
        let mut unit = 1u128;
        while u128::from(self.0) >= 1024 * unit && unit < 1 << (10 * UNITS.len()) {
            unit *= 1024;
        }
        if unit == 1 {
            return self;
        }
        let tenths = (u128::from(self.0) * 10).div_ceil(unit);
        Self(u64::try_from((tenths * unit + 5) / 10).unwrap_or(u64::MAX))
    }
}

const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

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
