use std::fmt;
use std::str::FromStr;

use outercore_core::Error;

/// Which rows leave the dynamic part when it needs room.
///
/// # Example
/// ```
/// use outercore_cache::Policy;
/// assert_eq!("window".parse::<Policy>().unwrap(), Policy::Window);
/// assert_eq!(Policy::Lru.to_string(), "lru");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Evicts the row whose next use is farthest ahead among the announced groups. Rows that no
    /// announced group uses leave first: the row with the least heat or, without known heat, with
    /// the fewest uses since it was read. Among equals the least recently used row leaves, then the
    /// smaller row.
    ///
    /// # Source
    /// Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
    /// Journal 5(2), 1966, restricted to the look-ahead.
    #[default]
    Window,
    /// Evicts the least recently used row; among equals the smaller row.
    Lru,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "window",
            Self::Lru => "lru",
        })
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "window" => Ok(Self::Window),
            "lru" => Ok(Self::Lru),
            _ => Err(Error::invalid(format!("`{text}` is not a cache policy"))
                .hint("choose `window` or `lru`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_policy_is_refused_by_name() {
        let error = "belady".parse::<Policy>().unwrap_err();
        assert!(error.to_string().contains("`belady`"), "{error}");
        assert!(error.to_string().contains("hint:"), "{error}");
    }
}
