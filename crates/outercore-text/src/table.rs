//! Reads columns of a text as numbers or text, in batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outercore_core::{Bytes, Context, Error, Result};

use crate::dialect::{Dialect, Gap, Position, blank_among_rows};
use crate::fields::{Fields, without_quotes};
use crate::kind::{Kind, boolean, is_integer, is_missing, is_padded};
use crate::parse::require_columns;
use crate::shown::shown;
use crate::stream::{ByteStream, LineBlocks};

/// How to read the chosen columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Integers; `true` and `false` become 1 and 0. A missing value becomes the given one, or is
    /// refused.
    Integers(Option<i64>),
    /// Floats; a missing value becomes NaN. An integer that `f64` cannot represent is refused, and
    /// so is a number that would become 0 or infinite.
    Floats,
    /// Text, unchanged.
    Texts,
}

/// Names or other texts in one buffer: text `i` is `bytes[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// The start of each text, and the end of the last one.
    pub offsets: Vec<i64>,
    /// All texts, one after the other.
    pub bytes: Vec<u8>,
}

/// The values of several rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// Row after row.
    Integers(Vec<i64>),
    /// Row after row.
    Floats(Vec<f64>),
    /// Column after column.
    Texts(Vec<Texts>),
}

impl Rows {
    fn new(cells: Cells, columns: usize) -> Self {
        match cells {
            Cells::Integers(_) => Self::Integers(Vec::new()),
            Cells::Floats => Self::Floats(Vec::new()),
            Cells::Texts => {
                Self::Texts(vec![Texts { offsets: vec![0], bytes: Vec::new() }; columns])
            }
        }
    }
}

/// Content of a column in the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The kind that all its fields can be read as.
    pub kind: Kind,
    /// Fields without a value.
    pub missing: u64,
    /// The row of the first field without a value.
    pub first_missing: u64,
    /// Integers with leading zeros, such as `007`.
    pub padded: u64,
}

/// A text file that is read row by row.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_text::{Cells, Purpose, Rows, Table, TextOptions, detect};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("users.csv");
/// std::fs::write(&path, "id,age\n3,40\n1,\n")?;
/// let dialect = detect(&path, Purpose::Table, &TextOptions::default(), Bytes::mib(16))?;
/// let mut table = Table::open("table", &path, dialect, Bytes::mib(16))?;
/// let rows = table.next(&[0, 1], Cells::Integers(Some(-1)))?;
/// assert_eq!(rows, Some(Rows::Integers(vec![3, 40, 1, -1])));
/// assert_eq!(table.next(&[0, 1], Cells::Integers(Some(-1)))?, None);
/// # Ok(())
/// # }
/// ```
pub struct Table {
    kind: &'static str,
    path: PathBuf,
    dialect: Dialect,
    blocks: LineBlocks,
    consumed: Arc<AtomicU64>,
    bytes: Vec<u8>,
    fields: Fields,
    /// Number of lines before the next block.
    lines: u64,
    rows: u64,
    comments: u64,
    repeated_headers: u64,
    /// The first of the preceding blank lines, after which no row may follow.
    blank: Option<u64>,
}

impl Table {
    const BLOCK: usize = 1 << 20;

    /// Opens `path` at the start of its data. `kind` is the name for the file in messages.
    ///
    /// # Errors
    /// As [`ByteStream::open`].
    pub fn open(kind: &'static str, path: &Path, dialect: Dialect, memory: Bytes) -> Result<Self> {
        let Position { offset, lines, .. } = dialect.start;
        let stream = ByteStream::open(kind, path, offset, memory)?;
        Ok(Self {
            kind,
            path: path.to_owned(),
            consumed: stream.consumed(),
            blocks: LineBlocks::new(stream, Self::BLOCK),
            comments: dialect.comment_lines,
            dialect,
            bytes: Vec::new(),
            fields: Fields::default(),
            lines,
            rows: 0,
            repeated_headers: 0,
            blank: None,
        })
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Comment lines so far, including the lines before the data.
    pub fn comments(&self) -> u64 {
        self.comments
    }

    /// Repeated headers so far.
    pub fn repeated_headers(&self) -> u64 {
        self.repeated_headers
    }

    /// Bytes of the file read so far.
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }

    /// The `columns` of the next rows; `None` at the end.
    ///
    /// # Errors
    /// `Invalid`, with line and column: a line with another number of fields, a blank line or
    /// comment that [`Gaps`](crate::Gaps) does not allow, or a value that cannot be read as `cells`
    /// without a change. As [`ByteStream::read`].
    #[allow(clippy::should_implement_trait, reason = "what it reads is the caller's to say")]
    pub fn next(&mut self, columns: &[usize], cells: Cells) -> Result<Option<Rows>> {
        let mut rows = Rows::new(cells, columns.len());
        let before = self.rows;
        while self.rows == before {
            let more = self.block(|line, fields, dialect| {
                for (at, &place) in columns.iter().enumerate() {
                    let field = fields.get(line, place);
                    let named = |error: Error| {
                        error.context(format!("column {}", dialect.column_name(place)))
                    };
                    match (&mut rows, cells) {
                        (Rows::Integers(rows), Cells::Integers(missing)) => {
                            rows.push(integer(field, missing).map_err(named)?);
                        }
                        (Rows::Floats(rows), _) => rows.push(float(field).map_err(named)?),
                        (Rows::Texts(texts), _) => {
                            let texts = &mut texts[at];
                            texts.bytes.extend_from_slice(text(field).map_err(named)?);
                            texts.offsets.push(texts.bytes.len() as i64);
                        }
                        (Rows::Integers(_), _) => {}
                    }
                }
                Ok(())
            })?;
            if !more {
                return Ok(None);
            }
        }
        Ok(Some(rows))
    }

    /// Reads to the end and returns the content of all columns.
    ///
    /// # Errors
    /// As [`Table::next`], except errors of values.
    pub fn profile(&mut self) -> Result<Vec<Column>> {
        let mut columns = vec![Column::default(); self.dialect.columns];
        let mut row = self.rows;
        while self.block(|line, fields, _| {
            for (place, column) in columns.iter_mut().enumerate() {
                let field = fields.get(line, place);
                // Most fields are of the column's known kind.
                let kind = Kind::of(without_quotes(field));
                if kind == Kind::Empty {
                    if column.missing == 0 {
                        column.first_missing = row;
                    }
                    column.missing += 1;
                }
                let padded = kind == Kind::Integer && is_padded(without_quotes(field));
                column.padded += u64::from(padded);
                column.kind = column.kind.with(kind);
            }
            row += 1;
            Ok(())
        })? {}
        Ok(columns)
    }

    /// Calls `take` with each row of the next block; returns whether there was a block.
    fn block(
        &mut self,
        mut take: impl FnMut(&[u8], &Fields, &Dialect) -> Result<()>,
    ) -> Result<bool> {
        if self.blocks.next(&mut self.bytes)?.is_none() {
            return Ok(false);
        }
        for line in self.bytes.split_inclusive(|byte| *byte == b'\n') {
            self.lines += 1;
            let at =
                |number: u64| format!("{} `{}`: line {number}", self.kind, self.path.display());
            match self.dialect.gap(line).with_context(|| at(self.lines))? {
                Gap::Data => {}
                Gap::Skipped => {
                    self.comments += u64::from(!line.trim_ascii_start().is_empty());
                    continue;
                }
                Gap::Header => {
                    self.repeated_headers += 1;
                    continue;
                }
                Gap::Blank => {
                    self.blank.get_or_insert(self.lines);
                    continue;
                }
            }
            if let Some(blank) = self.blank {
                return Err(blank_among_rows().context(at(blank)));
            }
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            require_columns(line, &self.dialect, &mut self.fields)
                .and_then(|()| take(line, &self.fields, &self.dialect))
                .with_context(|| at(self.lines))?;
            self.rows += 1;
        }
        Ok(true)
    }
}

fn integer(field: &[u8], missing: Option<i64>) -> Result<i64> {
    let field = without_quotes(field);
    if let Some(value) = std::str::from_utf8(field).ok().and_then(|text| text.parse().ok()) {
        return Ok(value);
    }
    if is_missing(field) {
        return missing.ok_or_else(|| {
            Error::invalid("found no value, expected a whole number")
                .hint("fill the empty fields, or leave the column out")
        });
    }
    if let Some(value) = boolean(field) {
        return Ok(i64::from(value));
    }
    let text = shown(field);
    Err(if is_integer(field) {
        Error::invalid(format!("`{text}` is beyond 64 bits")).hint("store it as text")
    } else {
        Error::invalid(format!("found `{text}`, expected a whole number"))
    })
}

fn float(field: &[u8]) -> Result<f64> {
    let field = without_quotes(field);
    if is_missing(field) {
        return Ok(f64::NAN);
    }
    let parsed = std::str::from_utf8(field).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(value) = parsed else {
        return match boolean(field) {
            Some(value) => Ok(f64::from(u8::from(value))),
            None => Err(Error::invalid(format!("found `{}`, expected a number", shown(field)))),
        };
    };
    if is_changed(field, value) {
        return Err(Error::invalid(format!(
            "`{}` would become {value:?} as a 64-bit float",
            shown(field)
        ))
        .hint("import it as text or as whole numbers of at most 64 bits"));
    }
    Ok(value)
}

/// Whether the number in `field` differs from `value`, its nearest float: it became 0, infinite or
/// another integer. The rounding of fractions does not count.
pub fn is_changed(field: &[u8], value: f64) -> bool {
    // 2^53: all integers up to this are exact floats, and most numbers are smaller.
    const ALL_WHOLE: f64 = 9_007_199_254_740_992.0;
    if value == 0.0 {
        return field.iter().any(|byte| (b'1'..=b'9').contains(byte)) && has_mantissa(field);
    }
    if value.is_nan() || value.abs() < ALL_WHOLE {
        return false;
    }
    if value.is_infinite() {
        return field.iter().any(u8::is_ascii_digit);
    }
    whole_digits(field).is_some_and(|digits| digits.parse::<i128>() != Ok(value as i128))
}

/// The digits of an integer, such as `12`, `12.0` or `1.2e1`; `None` if digits are missing, as in
/// `1e30`, or a fraction remains.
fn whole_digits(field: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(field).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<usize>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (moved, rest) = fraction.split_at_checked(exponent)?;
    rest.bytes().all(|digit| digit == b'0').then(|| format!("{whole}{moved}"))
}

/// Whether any digit before the exponent is not 0.
fn has_mantissa(field: &[u8]) -> bool {
    let mantissa = field.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte))
}

fn text(field: &[u8]) -> Result<&[u8]> {
    match std::str::from_utf8(field) {
        Ok(_) => Ok(field),
        Err(error) => Err(Error::invalid(format!(
            "`{}` is no UTF-8 at its byte {}",
            shown(field),
            error.valid_up_to()
        ))
        .hint("convert the file: `iconv -f LATIN1 -t UTF-8 FILE > NEW`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Purpose, TextOptions, detect};

    fn numbers(text: &str, options: &TextOptions) -> Result<Vec<f64>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.csv");
        std::fs::write(&path, text).unwrap();
        let dialect = detect(&path, Purpose::Table, options, Bytes::mib(16))?;
        let columns: Vec<usize> = (0..dialect.columns).collect();
        let mut table = Table::open("table", &path, dialect, Bytes::mib(16))?;
        let mut all = Vec::new();
        while let Some(Rows::Floats(rows)) = table.next(&columns, Cells::Floats)? {
            all.extend(rows.into_iter().map(|value| if value.is_nan() { -1.0 } else { value }));
        }
        Ok(all)
    }

    #[test]
    fn no_line_of_a_table_vanishes_between_its_rows() {
        let plain = TextOptions::default();
        for (text, line) in [
            ("x\n5\n\n7\n", 3),
            ("5\n\n7\n", 2),
            ("5\n \r\n\n7\n", 2),
            ("\n5\n7\n", 1),
            ("# a\n\n5\n7\n", 2),
            ("a,b\n5,1\n\n7,2\n", 3),
            ("x\n5\n#N/A\n7\n", 3),
            ("#N/A\n5\n7\n", 1),
            ("5,1\n% half\n7,2\n", 2),
            ("5\n7\n# end\n", 3),
        ] {
            let error = numbers(text, &plain).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}: ")), "{text:?}: {error}");
            let hint = if error.contains("is blank") { "write `NA`" } else { "`comment=`" };
            assert!(error.contains(hint), "{text:?}: {error}");
        }
        for (text, expected) in [
            ("5\n7\n\n \n", &[5.0, 7.0][..]),
            ("# a\n\nx\n5\n7", &[5.0, 7.0]),
            ("\n5,1\n7,2\n", &[5.0, 1.0, 7.0, 2.0]),
            ("5\n\"\"\nNA\n7\n", &[5.0, -1.0, -1.0, 7.0]),
            ("5\t1\n\t\n7\t2\n\t\n", &[5.0, 1.0, -1.0, -1.0, 7.0, 2.0, -1.0, -1.0]),
            ("\t\n7\t2\n", &[-1.0, -1.0, 7.0, 2.0]),
        ] {
            assert_eq!(numbers(text, &plain).unwrap(), expected, "{text:?}");
        }
        let comment = |mark: &str| TextOptions { comment: Some(mark.into()), ..plain.clone() };
        assert_eq!(numbers("5\n# a\n7\n", &comment("#")).unwrap(), [5.0, 7.0]);
        let error = numbers("5\n#N/A\n7\n", &comment("")).unwrap_err().to_string();
        assert!(error.contains("found `#N/A`, expected a number"), "{error}");
        assert!(numbers("5\n# a\n\n7\n", &comment("#")).is_err());
    }

    #[test]
    fn numbers_arrive_unchanged_or_are_refused() {
        for (field, expected) in [
            ("0.1", 0.1),
            ("-7", -7.0),
            ("9007199254740992", 9_007_199_254_740_992.0),
            ("1e-300", 1e-300),
            ("0e5", 0.0),
            ("0.000", 0.0),
            ("true", 1.0),
            ("-inf", f64::NEG_INFINITY),
            ("9007199254740992.0", 9_007_199_254_740_992.0),
            ("-9007199254740994.00", -9_007_199_254_740_994.0),
            ("9.007199254740994e15", 9_007_199_254_740_994.0),
            ("9007199254740993.5", 9_007_199_254_740_994.0),
            ("1e23", 1e23),
            ("9.999999999999999161e+22", 1e23),
            ("1.5e300", 1.5e300),
        ] {
            assert_eq!(float(field.as_bytes()).unwrap(), expected, "{field}");
        }
        assert!(float(b"NA").unwrap().is_nan());
        for field in [
            "9007199254740993",
            "9007199254740993.0",
            "-9007199254740993.",
            "+9007199254740993.00",
            "9.007199254740993e15",
            "9.0071992547409930E+15",
            "1e-400",
            "1e999",
            "a",
            "1,5",
            "99999999999999999999",
        ] {
            assert!(float(field.as_bytes()).is_err(), "{field}");
        }
        assert_eq!(integer(b"9007199254740993", None).unwrap(), 9_007_199_254_740_993);
        assert_eq!(integer(b"", Some(-1)).unwrap(), -1);
        for field in ["", "1.0", "18446744073709551616", "x"] {
            assert!(integer(field.as_bytes(), None).is_err(), "{field}");
        }
    }
}
