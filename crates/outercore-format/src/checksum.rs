use outercore_core::{Error, Result};
use xxhash_rust::xxh3::Xxh3;

const PREFIX: &str = "xxh3:";

/// A running checksum of an array's data bytes: XXH3-64 with seed 0, header excluded.
///
/// It detects torn writes, bit rot and truncated files; it does not protect against intentional
/// changes.
///
/// # Example
/// ```
/// use outercore_format::Checksum;
/// let mut checksum = Checksum::new();
/// checksum.update(b"out");
/// checksum.update(b"ercore");
/// assert_eq!(checksum.finish(), Checksum::of(b"outercore"));
/// ```
#[derive(Clone, Default)]
pub struct Checksum(Xxh3);

impl Checksum {
    /// Starts the checksum, over zero bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum in the notation of the manifest: `xxh3:` and 16 lower-case hexadecimal digits.
    pub fn finish(&self) -> String {
        format!("{PREFIX}{:016x}", self.0.digest())
    }

    /// The checksum of a whole array in memory.
    pub fn of(bytes: &[u8]) -> String {
        let mut checksum = Self::new();
        checksum.update(bytes);
        checksum.finish()
    }

    /// Checks that `text` has the notation of [`Checksum::finish`].
    ///
    /// # Errors
    /// `Corrupt`, naming the text.
    pub fn validate(text: &str) -> Result<()> {
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        let hexadecimal = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() == 16 && digits.bytes().all(hexadecimal) {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "checksum `{text}`, expected `{PREFIX}` and 16 lower-case hexadecimal digits"
        )))
    }
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({})", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_xxh3() {
        // XXH3_64bits of the empty input, seed 0, from the reference implementation.
        assert_eq!(Checksum::of(b""), "xxh3:2d06800538d394c2");
    }

    #[test]
    fn only_the_canonical_spelling_is_valid() {
        Checksum::validate(&Checksum::of(b"x")).unwrap();
        for text in
            ["", "xxh3:", "md5:0123456789abcdef", "xxh3:0123456789ABCDEF", "xxh3:0123456789abcde"]
        {
            Checksum::validate(text).unwrap_err();
        }
    }
}
