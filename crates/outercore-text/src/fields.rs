use outercore_core::{Error, Result};

use crate::notation::{Quotes, Separator};
use crate::shown::shown;

/// The position of a field in the line, or in the text without quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub start: usize,
    pub end: usize,
    /// Whether it was in quotes.
    pub quoted: bool,
}

/// Splits lines into fields, and reuses its memory.
///
/// # Example
/// ```
/// use outercore_text::{Dialect, Fields, Separator};
/// # fn main() -> outercore_core::Result<()> {
/// let dialect = Dialect::plain(Separator::Comma, 3);
/// let mut fields = Fields::default();
/// assert_eq!(fields.cut(b"7, \"a, b\" ,", &dialect)?, 3);
/// assert_eq!(fields.get(b"7, \"a, b\" ,", 1), b"a, b");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Fields {
    pub(crate) places: Vec<Place>,
    /// The unquoted fields of a line with quotes.
    pub(crate) unquoted: Vec<u8>,
    pub(crate) is_unquoted: bool,
}

impl Fields {
    /// The field at index `place` of the last split line.
    ///
    /// # Panics
    /// If the line has fewer fields.
    pub fn get<'a>(&'a self, line: &'a [u8], place: usize) -> &'a [u8] {
        let whole = if self.is_unquoted { &self.unquoted[..] } else { line };
        let at = self.places[place];
        &whole[at.start..at.end]
    }

    /// Whether the field at index `place` was in quotes.
    pub(crate) fn is_quoted(&self, place: usize) -> bool {
        self.places[place].quoted
    }

    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.unquoted.clear();
        self.is_unquoted = false;
    }

    /// Splits a line at a separator, without regard to quotes.
    pub(crate) fn split(
        &mut self,
        line: &[u8],
        separator: Separator,
        quotes: Quotes,
    ) -> Result<usize> {
        self.clear();
        let may_enclose =
            quotes == Quotes::Enclosing || !matches!(separator, Separator::Tab | Separator::Blanks);
        let has_quotes = may_enclose && memchr::memchr(b'"', line).is_some();
        let Some(byte) = separator.byte() else {
            if has_quotes {
                return self.split_quoted_at_blanks(line);
            }
            let mut at = 0;
            for field in line.split(u8::is_ascii_whitespace) {
                if !field.is_empty() {
                    self.places.push(Place { start: at, end: at + field.len(), quoted: false });
                }
                at += field.len() + 1;
            }
            return Ok(self.places.len());
        };
        if has_quotes {
            return self.split_quoted(line, byte);
        }
        let mut start = 0;
        for end in memchr::memchr_iter(byte, line).chain([line.len()]) {
            self.places.push(trimmed(line, start, end));
            start = end + 1;
        }
        Ok(self.places.len())
    }

    /// Splits a line in the style of spreadsheets: a field that begins with `"` ends with it, and
    /// `""` in it stands for a quote.
    fn split_quoted(&mut self, line: &[u8], separator: u8) -> Result<usize> {
        self.is_unquoted = true;
        let mut rest = line;
        loop {
            let start = self.unquoted.len();
            let blanks = blanks_at_start(rest, separator);
            let quoted = rest.get(blanks) == Some(&b'"');
            let end = if quoted {
                let length = self.unquote(&rest[blanks + 1..])?;
                let after = &rest[blanks + 1 + length..];
                let gap = blanks_at_start(after, separator);
                if after.get(gap).is_some_and(|byte| *byte != separator) {
                    return Err(text_after_quote(line));
                }
                rest.len() - after.len() + gap
            } else {
                let end = memchr::memchr(separator, rest).unwrap_or(rest.len());
                self.unquoted.extend_from_slice(rest[..end].trim_ascii());
                end
            };
            self.places.push(Place { start, end: self.unquoted.len(), quoted });
            if end >= rest.len() {
                return Ok(self.places.len());
            }
            rest = &rest[end + 1..];
        }
    }

    /// As [`Fields::split_quoted`], with any number of blanks between two fields.
    fn split_quoted_at_blanks(&mut self, line: &[u8]) -> Result<usize> {
        self.is_unquoted = true;
        let mut rest = line.trim_ascii_start();
        while let Some(first) = rest.first() {
            let start = self.unquoted.len();
            let quoted = *first == b'"';
            let end = if quoted {
                let end = 1 + self.unquote(&rest[1..])?;
                if rest.get(end).is_some_and(|byte| !byte.is_ascii_whitespace()) {
                    return Err(text_after_quote(line));
                }
                end
            } else {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                self.unquoted.extend_from_slice(&rest[..end]);
                end
            };
            self.places.push(Place { start, end: self.unquoted.len(), quoted });
            rest = rest[end..].trim_ascii_start();
        }
        Ok(self.places.len())
    }

    /// Appends the text before the closing quote; returns the number of bytes including that quote.
    fn unquote(&mut self, text: &[u8]) -> Result<usize> {
        let mut at = 0;
        loop {
            let Some(length) = memchr::memchr(b'"', &text[at..]) else {
                return Err(Error::invalid(format!("`\"{}`: a quote is not closed", shown(text)))
                    .hint("a field in quotes must end on its line"));
            };
            self.unquoted.extend_from_slice(&text[at..at + length]);
            at += length + 1;
            if text.get(at) != Some(&b'"') {
                return Ok(at);
            }
            self.unquoted.push(b'"');
            at += 1;
        }
    }
}

fn text_after_quote(line: &[u8]) -> Error {
    Error::invalid(format!("`{}`: text after a closing quote", shown(line)))
}

fn blanks_at_start(text: &[u8], separator: u8) -> usize {
    let blank = |byte: &&u8| byte.is_ascii_whitespace() && **byte != separator;
    text.iter().take_while(blank).count()
}

fn trimmed(line: &[u8], start: usize, end: usize) -> Place {
    let field = &line[start..end];
    let start = start + (field.len() - field.trim_ascii_start().len());
    Place { start, end: start + field.trim_ascii().len(), quoted: false }
}

/// A field without its surrounding quotes.
pub(crate) fn without_quotes(field: &[u8]) -> &[u8] {
    match field {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, separator: Separator) -> Result<Vec<String>> {
        fields_with(line, separator, Quotes::Plain)
    }

    fn fields_with(line: &str, separator: Separator, quotes: Quotes) -> Result<Vec<String>> {
        let mut fields = Fields::default();
        let count = fields.split(line.as_bytes(), separator, quotes)?;
        let text = |place| String::from_utf8(fields.get(line.as_bytes(), place).to_vec()).unwrap();
        Ok((0..count).map(text).collect())
    }

    #[test]
    fn fields_are_found_whatever_separates_them() {
        use Separator::{Blanks, Comma, Pipe, Semicolon, Tab};
        for (line, separator, expected) in [
            ("a\tlikes\tb", Tab, vec!["a", "likes", "b"]),
            ("New York\tis in\tthe \"US\"\r", Tab, vec!["New York", "is in", "the \"US\""]),
            ("a\t\tb\t", Tab, vec!["a", "", "b", ""]),
            ("\"a, b\",\"say \"\"yes\"\"\", c ", Comma, vec!["a, b", "say \"yes\"", "c"]),
            ("a;1;b;0.5", Semicolon, vec!["a", "1", "b", "0.5"]),
            ("a| b |c", Pipe, vec!["a", "b", "c"]),
            ("  7   3\t9", Blanks, vec!["7", "3", "9"]),
            ("\"\",1", Comma, vec!["", "1"]),
            ("\"7\"", Comma, vec!["7"]),
        ] {
            assert_eq!(fields(line, separator).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn quotes_between_tabs_and_blanks_enclose_fields_where_the_dialect_says_so() {
        use Separator::{Blanks, Tab};
        for (line, separator, expected) in [
            ("\"a b\"\t\"c\"", Tab, vec!["a b", "c"]),
            ("\"a\tb\"\tsay \"\"yes\"\"\t \"\"", Tab, vec!["a\tb", "say \"\"yes\"\"", ""]),
            (" \"Al B\"  \"bob\" ", Blanks, vec!["Al B", "bob"]),
            ("\"5\"\" disk\" 5\" \"\"", Blanks, vec!["5\" disk", "5\"", ""]),
        ] {
            let found = fields_with(line, separator, Quotes::Enclosing).unwrap();
            assert_eq!(found, expected, "{line}");
        }
        for line in ["\"a\"b\tc", "\"a\"b c", "a \"b"] {
            let separator = if line.contains('\t') { Tab } else { Blanks };
            assert!(fields_with(line, separator, Quotes::Enclosing).is_err(), "{line}");
            assert!(fields_with(line, separator, Quotes::Plain).is_ok(), "{line}");
        }
    }

    #[test]
    fn wrong_quotes_are_refused() {
        for (line, expected) in
            [("a,\"b", "a quote is not closed"), ("a,\"r\"s,b", "text after a closing quote")]
        {
            let error = fields(line, Separator::Comma).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
