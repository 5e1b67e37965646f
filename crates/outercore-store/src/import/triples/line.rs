//! Splits a line of text into the fields of a triple.

use outercore_core::{Error, Result, hint};
use outercore_text::{Dialect, Fields, Format, is_changed, shown};

use super::options::{Column, Columns};

/// A triple with names, as in the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Named<'a> {
    pub head: &'a [u8],
    pub relation: &'a [u8],
    pub tail: &'a [u8],
    pub weight: f32,
}

/// Longest name. A longer text is not a name.
pub(crate) const LONGEST_NAME: usize = 32 << 10;

/// Refuses an invalid name; `what` it names in a message.
pub(crate) fn check_name(what: &str, name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid(format!("the {what} is empty, expected a name")));
    }
    if name.len() > LONGEST_NAME {
        return Err(Error::invalid(format!(
            "the {what} has {} bytes, expected at most {LONGEST_NAME}",
            name.len()
        )));
    }
    if let Err(error) = std::str::from_utf8(name) {
        return Err(Error::invalid(format!(
            "the {what} `{}` is no UTF-8 at its byte {}",
            shown(name),
            error.valid_up_to()
        ))
        .hint("convert the file: `iconv -f LATIN1 -t UTF-8`"));
    }
    Ok(())
}

impl Named<'_> {
    /// Refuses invalid names of entities and relations, and invalid weights.
    pub fn check(&self) -> Result<()> {
        for (what, name) in [("head", self.head), ("relation", self.relation), ("tail", self.tail)]
        {
            check_name(what, name)?;
        }
        if self.weight.is_finite() && self.weight >= 0.0 {
            return Ok(());
        }
        Err(Error::invalid(format!("the weight is {}, expected a number from 0 on", self.weight)))
    }
}

/// Parses the triple in `line`, which is not blank.
///
/// # Errors
/// `Invalid`: a description of the fault, without its place.
pub(crate) fn triple<'a>(
    line: &'a [u8],
    fields: &'a mut Fields,
    dialect: &Dialect,
    columns: &Columns,
) -> Result<Named<'a>> {
    let found = fields.cut(line, dialect)?;
    if found != columns.count() {
        let separator = match dialect.format {
            Format::NTriples => String::new(),
            _ => format!(" separated by {}", dialect.separator.in_words()),
        };
        return Err(Error::invalid(format!(
            "`{}`: found {found} columns{separator}, expected {} ({})",
            shown(line),
            columns.count(),
            columns.in_words()
        ))
        .hint(hint!(
            "mend the line; or say what all lines have by " {columns} ", such as `hrt_` to pass "
            "over a fourth one"
        )));
    }
    let field = |column| columns.place(column).map(|place| fields.get(line, place));
    let weight = field(Column::Weight).map(parse_weight).transpose()?;
    let named = Named {
        head: field(Column::Head).unwrap_or_default(),
        relation: field(Column::Relation).unwrap_or_default(),
        tail: field(Column::Tail).unwrap_or_default(),
        weight: weight.unwrap_or(1.0),
    };
    named.check().map_err(|error| error.context(format!("`{}`", shown(line))))?;
    Ok(named)
}

fn parse_weight(text: &[u8]) -> Result<f32> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(number) = number else {
        return Err(Error::invalid(format!("the weight is `{}`, expected a number", shown(text))));
    };
    let weight = number as f32;
    let changed = is_changed(text, number)
        || number.fract() == 0.0 && f64::from(weight) != number
        || number.is_finite() && weight.is_infinite()
        || number != 0.0 && weight == 0.0;
    if changed {
        return Err(Error::invalid(format!(
            "the weight `{}` would become {weight:?} as a 32-bit float",
            shown(text)
        ))
        .hint("scale the weights, so that 32 bits hold them"));
    }
    Ok(weight)
}

#[cfg(test)]
mod tests {
    use outercore_text::Separator;

    use super::*;

    fn read(line: &str, separator: Separator, columns: &str) -> Result<[String; 3]> {
        let columns: Columns = columns.parse()?;
        let dialect = Dialect::plain(separator, columns.count());
        let mut fields = Fields::default();
        let named = triple(line.as_bytes(), &mut fields, &dialect, &columns)?;
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        Ok([text(named.head), text(named.relation), text(named.tail)])
    }

    #[test]
    fn columns_may_be_in_any_order() {
        use Separator::{Blanks, Comma, Semicolon, Tab};
        for (line, separator, columns, expected) in [
            ("a\tlikes\tb", Tab, "hrt", ["a", "likes", "b"]),
            ("a,b,likes", Comma, "htr", ["a", "likes", "b"]),
            ("a;1;b;0.5", Semicolon, "hrtw", ["a", "1", "b"]),
            ("  7   3 9", Blanks, "trh", ["9", "3", "7"]),
            ("x\ta\tx\tr\tb", Tab, "_h_rt", ["a", "r", "b"]),
        ] {
            assert_eq!(read(line, separator, columns).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        use Separator::{Comma, Tab};
        let long = format!("{}\tr\tb", "a".repeat(LONGEST_NAME + 1));
        for (line, separator, columns, expected) in [
            (
                "a\tb",
                Tab,
                "hrt",
                "found 2 columns separated by tabs, expected 3 (head, relation, tail)",
            ),
            ("a\tr\tb\tc", Tab, "hrt", "found 4 columns"),
            ("a\t \tb", Tab, "hrt", "the relation is empty"),
            ("\tr\tb", Tab, "hrt", "the head is empty"),
            ("a,r,\"\"", Comma, "hrt", "the tail is empty"),
            ("a,r,\"b", Comma, "hrt", "a quote is not closed"),
            ("a\tr\tb\tc", Tab, "hrtw", "the weight is `c`, expected a number"),
            ("a\tr\tb\tNaN", Tab, "hrtw", "the weight is NaN"),
            ("a\tr\tb\t-1", Tab, "hrtw", "the weight is -1"),
            ("a\tr\tb\t16777217.0", Tab, "hrtw", "would become 16777216.0"),
            ("a\tr\tb\t9007199254740993.0", Tab, "hrtw", "would become 9007199000000000.0"),
            (&long, Tab, "hrt", "the head has 32769 bytes"),
        ] {
            let error = read(line, separator, columns).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (dialect, mut fields) = (Dialect::plain(Tab, 3), Fields::default());
        let line = b"a\tr\t\xE9";
        let error = triple(line, &mut fields, &dialect, &Columns::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("the tail") && error.contains("no UTF-8 at its byte 0"), "{error}");
    }
}
