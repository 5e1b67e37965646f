//! How exactly a layout stores an array.

use std::fmt;
use std::str::FromStr;

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// How exactly rows are stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// The values of the array, bit for bit.
    #[default]
    Exact,
    /// One byte per value, with one scale and one offset per column.
    Int8,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Self; 2] = [Self::Exact, Self::Int8];

    /// The name in keys, options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Int8 => "int8",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|precision| precision.name() == text).ok_or_else(|| {
            Error::invalid(format!("precision `{text}`, expected `exact` or `int8`"))
        })
    }
}
