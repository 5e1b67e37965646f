use serde::{Deserialize, Serialize};

/// How a field, or all fields of a column, can be read. Later kinds include the earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A missing value: an empty field, or a word for one.
    #[default]
    Empty,
    /// `true` or `false`.
    Boolean,
    /// An integer.
    Integer,
    /// Any other number.
    Float,
    /// Anything else.
    Text,
}

/// Words for a missing value in pandas, R and SQL.
const MISSING: [&str; 10] = ["", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "None", "<NA>"];

/// Whether a field is a missing value.
pub(crate) fn is_missing(field: &[u8]) -> bool {
    field.len() <= 4 && MISSING.iter().any(|word| word.as_bytes() == field)
}

/// The value of a Boolean field.
pub(crate) fn boolean(field: &[u8]) -> Option<bool> {
    match field {
        b"true" | b"True" | b"TRUE" => Some(true),
        b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// Whether a field is an integer: digits with an optional sign.
pub(crate) fn is_integer(field: &[u8]) -> bool {
    let digits = field.strip_prefix(b"-").or_else(|| field.strip_prefix(b"+")).unwrap_or(field);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Whether a field is an integer with leading zeros, such as `007`, which as a text differs from
/// `7`.
pub(crate) fn is_padded(field: &[u8]) -> bool {
    field.len() > 1 && field[0] == b'0' && field.iter().all(u8::is_ascii_digit)
}

impl Kind {
    /// The kind of one field.
    pub fn of(field: &[u8]) -> Self {
        if is_missing(field) {
            return Self::Empty;
        }
        if is_integer(field) {
            return Self::Integer;
        }
        if boolean(field).is_some() {
            return Self::Boolean;
        }
        let number = std::str::from_utf8(field).is_ok_and(|text| text.parse::<f64>().is_ok());
        if number { Self::Float } else { Self::Text }
    }

    /// The common kind of two fields of a column.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            // `true` is not a number, and 1 is not a Boolean: a column that mixes them is text.
            (Self::Boolean, Self::Integer | Self::Float)
            | (Self::Integer | Self::Float, Self::Boolean) => Self::Text,
            (one, other) => one.max(other),
        }
    }

    /// Whether it can be read as numbers.
    pub fn is_numeric(self) -> bool {
        matches!(self, Self::Integer | Self::Float)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart() {
        for (field, kind) in [
            ("", Kind::Empty),
            ("NA", Kind::Empty),
            ("nan", Kind::Empty),
            ("0", Kind::Integer),
            ("-17", Kind::Integer),
            ("18446744073709551617", Kind::Integer),
            ("1.5", Kind::Float),
            ("1e-60", Kind::Float),
            ("-inf", Kind::Float),
            ("true", Kind::Boolean),
            ("False", Kind::Boolean),
            ("a", Kind::Text),
            ("1 2", Kind::Text),
            ("-", Kind::Text),
        ] {
            assert_eq!(Kind::of(field.as_bytes()), kind, "{field:?}");
        }
        assert_eq!(Kind::Integer.with(Kind::Float), Kind::Float);
        assert_eq!(Kind::Integer.with(Kind::Boolean), Kind::Text);
        assert_eq!(Kind::Boolean.with(Kind::Empty), Kind::Boolean);
    }
}
