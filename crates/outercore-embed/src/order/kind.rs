use std::fmt;
use std::str::FromStr;

use outercore_core::Error;
use serde::{Deserialize, Serialize};

/// Method that constructs an order of partitions.
///
/// # Example
/// ```
/// use outercore_embed::OrderKind;
/// assert_eq!("beta".parse::<OrderKind>().unwrap(), OrderKind::Beta);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    /// The fewest states that a search finds, with training to hide every swap.
    #[default]
    Optimal,
    /// Column by column, never evicting the partition that was just loaded; three partitions in
    /// memory.
    ///
    /// # Source
    /// Legend 4, algorithms 1 and 2.
    Legend,
    /// All slots but one stay fixed while the other partitions pass through the last slot.
    ///
    /// # Source
    /// Mohoney et al., "Marius: learning massive graph embeddings on a single machine", OSDI 2021.
    Beta,
    /// The lines of an affine space: any two partitions are on exactly one line.
    ///
    /// # Source
    /// Zheng et al., "GE2: a general and efficient knowledge graph embedding learning system",
    /// SIGMOD 2024.
    Cover,
}

impl OrderKind {
    /// All kinds, in the order of help texts.
    pub const ALL: [Self; 4] = [Self::Optimal, Self::Legend, Self::Beta, Self::Cover];
}

impl fmt::Display for OrderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Optimal => "optimal",
            Self::Legend => "legend",
            Self::Beta => "beta",
            Self::Cover => "cover",
        })
    }
}

impl FromStr for OrderKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.to_string() == text).ok_or_else(|| {
            let names = Self::ALL.map(|kind| format!("`{kind}`")).join(", ");
            Error::invalid(format!("`{text}` is not an order of partitions"))
                .hint(format!("choose one of {names}"))
        })
    }
}

/// Destination of a loaded partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwapMode {
    /// The slot of the evicted partition. During the swap, only buckets that need neither of the
    /// two partitions can be trained.
    #[default]
    InPlace,
    /// A slot that is kept free. All buckets of the state can be trained during the swap, but one
    /// partition fewer is trained at a time.
    SpareSlot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused_with_the_list() {
        for kind in OrderKind::ALL {
            assert_eq!(kind.to_string().parse::<OrderKind>().unwrap(), kind);
        }
        let error = "hilbert".parse::<OrderKind>().unwrap_err().to_string();
        assert!(error.contains("`hilbert`") && error.contains("`cover`"), "{error}");
    }
}
