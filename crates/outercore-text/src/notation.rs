//! Separators, quotes, and the symmetry of matrix entries.

use std::fmt;
use std::str::FromStr;

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Separator between two fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Separator {
    /// A tab.
    Tab,
    /// A comma.
    Comma,
    /// A semicolon.
    Semicolon,
    /// A vertical bar.
    Pipe,
    /// One or more blanks or tabs.
    Blanks,
}

impl Separator {
    /// All separators; separators that rarely occur in names come first.
    pub const ALL: [Self; 5] = [Self::Tab, Self::Comma, Self::Semicolon, Self::Pipe, Self::Blanks];

    /// The separator as a byte, if it is a single byte.
    pub fn byte(self) -> Option<u8> {
        match self {
            Self::Tab => Some(b'\t'),
            Self::Comma => Some(b','),
            Self::Semicolon => Some(b';'),
            Self::Pipe => Some(b'|'),
            Self::Blanks => None,
        }
    }

    /// The separator in words, for messages: `commas`.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Tab => "tabs",
            Self::Comma => "commas",
            Self::Semicolon => "semicolons",
            Self::Pipe => "vertical bars",
            Self::Blanks => "blanks",
        }
    }
}

impl fmt::Display for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tab => "tab",
            Self::Comma => "comma",
            Self::Semicolon => "semicolon",
            Self::Pipe => "pipe",
            Self::Blanks => "blanks",
        })
    }
}

impl FromStr for Separator {
    type Err = Error;

    /// The name of a separator, or the character itself.
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|separator| separator.to_string() == text);
        let by_byte = || match text {
            "\t" | "\\t" => Some(Self::Tab),
            "," => Some(Self::Comma),
            ";" => Some(Self::Semicolon),
            "|" => Some(Self::Pipe),
            " " => Some(Self::Blanks),
            _ => None,
        };
        found.or_else(by_byte).ok_or_else(|| {
            Error::invalid(format!(
                "separator `{text}`: expected tab, comma, semicolon, pipe or blanks"
            ))
        })
    }
}

/// Whether fields between tabs or blanks may be quoted; between other separators they always may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quotes {
    /// A quote is a character like any other.
    #[default]
    Plain,
    /// A field that begins with a quote ends with one, and has two for each quote inside.
    Enclosing,
}

/// The other entry that an entry off the diagonal also represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// No other entry.
    No,
    /// Its reverse with the same value.
    Same,
    /// Its reverse with the negated value.
    Negated,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_given_by_name_or_by_itself() {
        for separator in Separator::ALL {
            assert_eq!(separator.to_string().parse::<Separator>().unwrap(), separator);
        }
        for (text, expected) in
            [("\t", Separator::Tab), (";", Separator::Semicolon), ("|", Separator::Pipe)]
        {
            assert_eq!(text.parse::<Separator>().unwrap(), expected);
        }
        let error = "::".parse::<Separator>().unwrap_err().to_string();
        assert!(error.contains("expected tab, comma, semicolon, pipe or blanks"), "{error}");
    }
}
