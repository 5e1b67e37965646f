//! One line of text becomes the fields of a triple.

use outercore_core::{Error, Result};

use super::options::{Column, Columns};

/// What stands between two columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    Tab,
    Comma,
    Semicolon,
    Blanks,
}

impl Separator {
    /// The one that cuts `line` into `columns`; a tab wins.
    pub fn of(line: &[u8], columns: usize) -> Self {
        if line.contains(&b'\t') {
            return Self::Tab;
        }
        let mut fields = Fields::default();
        let fits =
            |separator: &&Self| fields.cut(line, **separator).is_ok_and(|found| found == columns);
        [Self::Comma, Self::Semicolon].iter().find(fits).copied().unwrap_or(Self::Blanks)
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Tab => "tabs",
            Self::Comma => "commas",
            Self::Semicolon => "semicolons",
            Self::Blanks => "blanks",
        }
    }
}

/// How the lines of a text are to be read.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    pub separator: Separator,
    pub columns: Columns,
}

/// A triple as the input has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Named<'a> {
    pub head: &'a [u8],
    pub relation: &'a [u8],
    pub tail: &'a [u8],
    pub weight: f32,
}

/// Longer names than this are no names.
pub(crate) const LONGEST_NAME: usize = 32 << 10;

impl Named<'_> {
    /// Refuses what is no name of an entity or relation, and weights that cannot be.
    pub fn check(&self) -> Result<()> {
        for (what, name) in [("head", self.head), ("relation", self.relation), ("tail", self.tail)]
        {
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
        }
        if self.weight.is_finite() && self.weight >= 0.0 {
            return Ok(());
        }
        Err(Error::invalid(format!("the weight is {}, expected a number from 0 on", self.weight)))
    }
}

/// Cuts lines into fields, and reuses its memory for it.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// Start and end of each field, in the line or in `unquoted`.
    places: Vec<(usize, usize)>,
    /// The fields of a line with quotes, without them.
    unquoted: Vec<u8>,
    is_unquoted: bool,
}

impl Fields {
    /// The triple in `line`, which is not blank.
    ///
    /// # Errors
    /// `Invalid`: what is wrong with it, without its place.
    pub fn triple<'a>(&'a mut self, line: &'a [u8], dialect: &Dialect) -> Result<Named<'a>> {
        let Dialect { separator, columns } = dialect;
        let found = self.cut(line, *separator)?;
        if found != columns.count() {
            return Err(Error::invalid(format!(
                "`{}`: found {found} columns separated by {}, expected {} ({})",
                shown(line),
                separator.in_words(),
                columns.count(),
                columns.in_words()
            ))
            .hint("say what the columns are, such as `--columns hrt_` to pass over a fourth one"));
        }
        let whole = if self.is_unquoted { &self.unquoted[..] } else { line };
        let field = |column| {
            columns.place(column).map(|place| {
                let (start, end) = self.places[place];
                &whole[start..end]
            })
        };
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

    /// Finds the fields and counts them. Blanks around a field are no part of it.
    fn cut(&mut self, line: &[u8], separator: Separator) -> Result<usize> {
        self.places.clear();
        self.is_unquoted = false;
        let byte = match separator {
            Separator::Tab => b'\t',
            Separator::Comma => b',',
            Separator::Semicolon => b';',
            Separator::Blanks => {
                let mut at = 0;
                for field in line.split(u8::is_ascii_whitespace) {
                    if !field.is_empty() {
                        self.places.push((at, at + field.len()));
                    }
                    at += field.len() + 1;
                }
                return Ok(self.places.len());
            }
        };
        if separator != Separator::Tab && line.contains(&b'"') {
            return self.cut_quoted(line, byte);
        }
        let mut start = 0;
        for end in memchr::memchr_iter(byte, line).chain([line.len()]) {
            self.places.push(trimmed(line, start, end));
            start = end + 1;
        }
        Ok(self.places.len())
    }

    /// Fields as spreadsheets write them: one that begins with `"` ends with it, and has `""` for
    /// each of its own.
    fn cut_quoted(&mut self, line: &[u8], separator: u8) -> Result<usize> {
        self.is_unquoted = true;
        self.unquoted.clear();
        let mut rest = line;
        loop {
            let start = self.unquoted.len();
            let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let end = if rest.get(blanks) == Some(&b'"') {
                let length = self.unquote(&rest[blanks + 1..])?;
                self.places.push((start, self.unquoted.len()));
                let after = &rest[blanks + 1 + length..];
                let gap = after.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                if after.get(gap).is_some_and(|byte| *byte != separator) {
                    return Err(Error::invalid(format!(
                        "`{}`: text after a closing quote",
                        shown(line)
                    )));
                }
                rest.len() - after.len() + gap
            } else {
                let end = memchr::memchr(separator, rest).unwrap_or(rest.len());
                self.unquoted.extend_from_slice(rest[..end].trim_ascii());
                self.places.push((start, self.unquoted.len()));
                end
            };
            if end >= rest.len() {
                return Ok(self.places.len());
            }
            rest = &rest[end + 1..];
        }
    }

    /// Appends what comes before the closing quote; how many bytes that and the quote are.
    fn unquote(&mut self, text: &[u8]) -> Result<usize> {
        let mut at = 0;
        loop {
            let Some(length) = memchr::memchr(b'"', &text[at..]) else {
                return Err(Error::invalid(format!("`\"{}`: a quote is not closed", shown(text)))
                    .hint("a name in quotes must end on its line"));
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

    /// Whether the line names its columns: `head`, `relation` and `tail`, or words like them.
    pub fn is_header(&mut self, line: &[u8], dialect: &Dialect) -> bool {
        const HEADS: [&str; 8] =
            ["h", "head", "s", "subject", "source", "from", "node1", "subject_id"];
        const RELATIONS: [&str; 10] = [
            "r",
            "rel",
            "relation",
            "p",
            "predicate",
            "property",
            "label",
            "type",
            "edge",
            "relation_id",
        ];
        const TAILS: [&str; 8] = ["t", "tail", "o", "object", "target", "to", "node2", "object_id"];
        let bare = Dialect { separator: dialect.separator, columns: without_weight(dialect) };
        let Ok(named) = self.triple(line, &bare) else { return false };
        let is = |name: &[u8], words: &[&str]| {
            words.iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
        };
        is(named.head, &HEADS) && is(named.relation, &RELATIONS) && is(named.tail, &TAILS)
    }
}

/// A header has a word where the weights are.
fn without_weight(dialect: &Dialect) -> Columns {
    let text = dialect.columns.to_string().replace('w', "_");
    text.parse().unwrap_or_default()
}

fn parse_weight(text: &[u8]) -> Result<f32> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        Error::invalid(format!("the weight is `{}`, expected a number", shown(text)))
    })
}

fn trimmed(line: &[u8], start: usize, end: usize) -> (usize, usize) {
    let field = &line[start..end];
    let start = start + (field.len() - field.trim_ascii_start().len());
    (start, start + field.trim_ascii().len())
}

/// A line or name, short enough for a message.
pub(crate) fn shown(text: &[u8]) -> String {
    const MOST: usize = 80;
    let text = String::from_utf8_lossy(text.trim_ascii());
    if text.chars().count() <= MOST {
        return text.escape_debug().to_string();
    }
    let cut: String = text.chars().take(MOST).collect();
    format!("{}…", cut.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triple(line: &str, separator: Separator, columns: &str) -> Result<[String; 3]> {
        let dialect = Dialect { separator, columns: columns.parse()? };
        let mut fields = Fields::default();
        let named = fields.triple(line.as_bytes(), &dialect)?;
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        Ok([text(named.head), text(named.relation), text(named.tail)])
    }

    #[test]
    fn fields_are_found_whatever_separates_them() {
        use Separator::{Blanks, Comma, Semicolon, Tab};
        for (line, separator, columns, expected) in [
            ("a\tlikes\tb", Tab, "hrt", ["a", "likes", "b"]),
            ("New York\tis in\tthe \"US\"\r", Tab, "hrt", ["New York", "is in", "the \"US\""]),
            ("a,b,likes", Comma, "htr", ["a", "likes", "b"]),
            ("\"a, b\",\"say \"\"yes\"\"\", c ", Comma, "hrt", ["a, b", "say \"yes\"", "c"]),
            ("a;1;b;0.5", Semicolon, "hrtw", ["a", "1", "b"]),
            ("  7   3 9", Blanks, "trh", ["9", "3", "7"]),
            ("x\ta\tx\tr\tb", Tab, "_h_rt", ["a", "r", "b"]),
        ] {
            assert_eq!(Separator::of(line.as_bytes(), columns.len()), separator, "{line}");
            assert_eq!(triple(line, separator, columns).unwrap(), expected, "{line}");
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
            ("a,\"r\"s,b", Comma, "hrt", "text after a closing quote"),
            ("a\tr\tb\tc", Tab, "hrtw", "the weight is `c`, expected a number"),
            ("a\tr\tb\tNaN", Tab, "hrtw", "the weight is NaN"),
            ("a\tr\tb\t-1", Tab, "hrtw", "the weight is -1"),
            (&long, Tab, "hrt", "the head has 32769 bytes"),
        ] {
            let error = triple(line, separator, columns).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let dialect = Dialect { separator: Tab, columns: Columns::default() };
        let error = Fields::default().triple(b"a\tr\t\xE9", &dialect).unwrap_err().to_string();
        assert!(error.contains("the tail") && error.contains("no UTF-8 at its byte 0"), "{error}");
    }

    #[test]
    fn a_header_is_known_by_its_words() {
        let is_header = |line: &str, columns: &str| {
            let separator = Separator::of(line.as_bytes(), columns.len());
            let dialect = Dialect { separator, columns: columns.parse().unwrap() };
            Fields::default().is_header(line.as_bytes(), &dialect)
        };
        assert!(is_header("head\trelation\ttail", "hrt"));
        assert!(is_header("Subject,Object,Predicate", "htr"));
        assert!(is_header("h r t weight", "hrtw"));
        assert!(!is_header("head\tlikes\ttail", "hrt"));
        assert!(!is_header("a\tr\tb", "hrt"));
    }
}
