use std::fmt;

use serde::{Deserialize, Serialize};

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

    /// The count as `usize`. Such sizes come from memory budgets, so they fit.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }

    /// Rounds up to the next size that prints exactly (below a pebibyte). Use it for a size that a
    /// message asks the user to type.
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
