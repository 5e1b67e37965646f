//! Matrix Market coordinate files: a banner, comments, a line with the sizes, entries from 1.

use outercore_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::fields::Fields;
use crate::notation::{Mirror, Quotes, Separator};
use crate::shown::shown;

/// Type of a matrix's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Field {
    Pattern,
    Real,
    Integer,
}

/// Which entries a file leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Symmetry {
    General,
    Symmetric,
    SkewSymmetric,
}

/// Properties that a Matrix Market file states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Market {
    /// Rows and columns of the matrix.
    pub nodes: u64,
    /// Number of entries that follow.
    pub entries: u64,
    pub(crate) field: Field,
    pub(crate) symmetry: Symmetry,
}

impl Market {
    /// Whether entries have values.
    pub fn has_values(&self) -> bool {
        self.field != Field::Pattern
    }

    pub(crate) fn mirror(&self) -> Mirror {
        match self.symmetry {
            Symmetry::General => Mirror::No,
            Symmetry::Symmetric => Mirror::Same,
            Symmetry::SkewSymmetric => Mirror::Negated,
        }
    }

    pub(crate) fn columns(&self) -> usize {
        if self.has_values() { 3 } else { 2 }
    }
}

const BANNER: &[u8] = b"%%matrixmarket";

/// Whether a line is the banner of a Matrix Market file.
pub(crate) fn has_banner(line: &[u8]) -> bool {
    line.len() >= BANNER.len() && line[..BANNER.len()].eq_ignore_ascii_case(BANNER)
}

fn wrong(what: impl Into<String>) -> Error {
    Error::invalid(format!("Matrix Market header: {}", what.into()))
}

/// Parses the type of entries and their symmetry.
pub(crate) fn parse_banner(line: &[u8]) -> Result<(Field, Symmetry)> {
    let text = String::from_utf8_lossy(line).to_ascii_lowercase();
    let words: Vec<&str> = text.split_ascii_whitespace().skip(1).collect();
    let [object, format, field, symmetry] = words[..] else {
        return Err(wrong(format!(
            "`{}`: expected `%%MatrixMarket matrix coordinate FIELD SYMMETRY`",
            shown(line)
        )));
    };
    let unsupported = |what: String| Err(Error::new(ErrorKind::Unsupported, what));
    if object != "matrix" || format != "coordinate" {
        return unsupported(format!(
            "Matrix Market header: found `{object} {format}`, expected `matrix coordinate`"
        ));
    }
    let field = match field {
        "pattern" => Field::Pattern,
        "real" | "double" => Field::Real,
        "integer" => Field::Integer,
        other => {
            return unsupported(format!(
                "Matrix Market header: found `{other}` values, expected pattern, real or integer"
            ));
        }
    };
    let symmetry = match symmetry {
        "general" => Symmetry::General,
        "symmetric" => Symmetry::Symmetric,
        "skew-symmetric" => Symmetry::SkewSymmetric,
        other => {
            return Err(wrong(format!(
                "symmetry is `{other}`, expected general, symmetric or skew-symmetric"
            )));
        }
    };
    if symmetry == Symmetry::SkewSymmetric && field == Field::Pattern {
        return Err(wrong("a skew-symmetric matrix needs values, found `pattern`"));
    }
    Ok((field, symmetry))
}

/// Parses the sizes in `line`.
pub(crate) fn parse_sizes(line: &[u8], (field, symmetry): (Field, Symmetry)) -> Result<Market> {
    let mut fields = Fields::default();
    let count = fields.split(line, Separator::Blanks, Quotes::Plain)?;
    let number = |place| std::str::from_utf8(fields.get(line, place)).ok()?.parse::<u64>().ok();
    let numbers: Option<Vec<u64>> = (0..count).map(number).collect();
    let Some(&[rows, columns, entries]) = numbers.as_deref() else {
        return Err(wrong(format!(
            "`{}`: expected three sizes: rows, columns, entries",
            shown(line)
        )));
    };
    if rows != columns {
        return Err(wrong(format!(
            "the matrix is {rows} x {columns}, expected a square one (one row and column a node)"
        )));
    }
    Ok(Market { nodes: rows, entries, field, symmetry })
}
