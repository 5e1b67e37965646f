//! Names of a layout's arrays.

use crate::Precision;

/// Prefix of all keys of layouts.
const PREFIX: &str = "layout/";

/// An array of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The description: JSON as `uint8 [n]`.
    Header,
    /// The rows: `[N, width]`, of the array's type or `int8`.
    Rows,
    /// The place of each node's row: `uint32` or `uint64 [N]`; absent if each place equals the node
    /// id.
    Places,
    /// The step size of each `int8` column: `float32 [width]`.
    Scale,
    /// The value that a 0 in an `int8` column represents: `float32 [width]`.
    Offset,
}

impl Part {
    pub(crate) const ALL: [Self; 5] =
        [Self::Header, Self::Rows, Self::Places, Self::Scale, Self::Offset];

    const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Rows => "rows",
            Self::Places => "places",
            Self::Scale => "scale",
            Self::Offset => "offset",
        }
    }
}

/// The key of a part of a layout of `array`.
pub(crate) fn key(array: &str, precision: Precision, part: Part) -> String {
    format!("{PREFIX}{array}/{precision}/{}", part.name())
}

/// The array and the precision of the layout whose header has this key; `None` for another key.
pub(crate) fn of_header(key: &str) -> Option<(&str, Precision)> {
    let (array, precision) = key
        .strip_prefix(PREFIX)?
        .strip_suffix(Part::Header.name())?
        .strip_suffix('/')?
        .rsplit_once('/')?;
    Some((array, precision.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_its_array_and_no_other_key_does() {
        for array in ["nodes/node/x", "nodes/node/deep/er"] {
            for precision in Precision::ALL {
                let header = key(array, precision, Part::Header);
                assert_eq!(of_header(&header), Some((array, precision)));
                assert_eq!(of_header(&key(array, precision, Part::Rows)), None);
            }
        }
        for other in ["nodes/node/x", "layout/header", "layout/x/float/header", "grid/edge/header"]
        {
            assert_eq!(of_header(other), None, "{other}");
        }
    }
}
