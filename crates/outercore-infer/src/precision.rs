use std::fmt;

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// The arithmetic in which a network is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Precision {
    /// Single precision, as in training.
    #[default]
    Float32,
    /// Integers, for 8-bit features; see [`Model::open`](crate::Model::open).
    Int8,
}

impl Precision {
    /// The name in options and metadata.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Int8 => "int8",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl TryFrom<String> for Precision {
    type Error = Error;

    /// # Errors
    /// `Invalid`: an unknown name.
    fn try_from(name: String) -> Result<Self> {
        [Self::Float32, Self::Int8].into_iter().find(|one| one.name() == name).ok_or_else(|| {
            Error::invalid(format!("precision: expected `float32` or `int8`, found `{name}`"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_refused() {
        let read = |name: &str| serde_json::from_value::<Precision>(name.into());
        for precision in [Precision::Float32, Precision::Int8] {
            assert_eq!(read(precision.name()).unwrap(), precision);
        }
        let error = read("int4").unwrap_err().to_string();
        assert!(error.contains("expected `float32` or `int8`, found `int4`"), "{error}");
    }
}
