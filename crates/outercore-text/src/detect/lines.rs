//! Properties of a text, computed from the lines of a sample.

use crate::dialect::{Dialect, Position, bare};
use crate::fields::{Fields, without_quotes};
use crate::header::{Words, are_names, look};
use crate::kind::Kind;
use crate::notation::Separator;
use crate::sample::{Line, Sample};

/// Whether there are at least three lines, and the first two numbers of each line sort after the
/// previous line's.
pub(super) fn ascends(data: &[Line<'_>], dialect: &Dialect) -> bool {
    let mut fields = Fields::default();
    let mut before = None;
    let goes_on = data.iter().all(|line| {
        let cut = fields.cut(line.text, dialect).is_ok_and(|count| count > 1);
        let number = |place| {
            let field = without_quotes(fields.get(line.text, place));
            std::str::from_utf8(field).ok().and_then(|text| text.parse::<u64>().ok())
        };
        let ends = if cut { number(0).zip(number(1)) } else { None };
        let ascends = ends.is_some() && before < ends;
        before = ends;
        ascends
    });
    goes_on && data.len() > 2
}

/// The text of a header, if a later line with the same text cannot be data. That holds if the
/// header names several columns, or one column of numbers or of similar keys.
pub(super) fn repeated(header: Line<'_>, below: &[Line<'_>], dialect: &Dialect) -> Option<String> {
    let mut fields = Fields::default();
    let found = fields.cut(header.text, dialect).ok()?;
    let is_name = |place| Kind::of(without_quotes(fields.get(header.text, place))) == Kind::Text;
    let is_apart = found > 1 || is_above_keys(header, below);
    let has_names = is_apart && (0..found).any(is_name);
    has_names.then(|| String::from_utf8(bare(header.text).to_vec()).ok()).flatten()
}

/// Whether the lines `below` a header of one field hold numbers, or keys that are similar to each
/// other but not to the header. Lines that repeat the header are ignored.
pub(super) fn is_above_keys(header: Line<'_>, below: &[Line<'_>]) -> bool {
    let field = |line: &Line<'_>| without_quotes(bare(line.text)).to_vec();
    let word = field(&header);
    let others: Vec<_> = below.iter().map(field).filter(|other| *other != word).collect();
    let are_numbers = || others.iter().all(|other| Kind::of(other).is_numeric());
    let are_alike = || match look(&others[0]) {
        Some(first) => others.iter().all(|other| look(other).as_ref() == Some(&first)),
        None => false,
    };
    let is_unlike = look(&word).is_none() && Kind::of(&word) == Kind::Text;
    !others.is_empty() && is_unlike && (are_numbers() || others.len() > 1 && are_alike())
}

/// The start of the blank lines directly above the `first` row, if they may be rows without values.
pub(super) fn empty_rows_above(
    first: Line<'_>,
    sample: &Sample,
    dialect: &Dialect,
) -> Option<Position> {
    let mut start = None;
    for line in sample.lines().take_while(|line| line.start.offset < first.start.offset) {
        let has_tab = dialect.separator == Separator::Tab && line.text.contains(&b'\t');
        if !line.text.trim_ascii().is_empty() {
            start = None;
        } else if has_tab || dialect.columns == 1 {
            start.get_or_insert(line.start);
        }
    }
    start
}

/// Whether a line starts with an error value of spreadsheets, which stands for a missing value.
pub(super) fn is_spreadsheet_error(line: &[u8]) -> bool {
    const ERRORS: [&[u8]; 7] =
        [b"#N/A", b"#NULL!", b"#DIV/0!", b"#VALUE!", b"#REF!", b"#NAME?", b"#NUM!"];
    let line = line.trim_ascii_start();
    ERRORS.iter().any(|error| line.starts_with(error))
}

/// Whether a line that starts like a comment may be a row. It may be if the sign is directly before
/// a word, the line has as many fields as the rows, and the fields are not names of columns.
pub(super) fn may_be_row(line: &[u8], dialect: &Dialect, words: Words) -> bool {
    let mut fields = Fields::default();
    let Ok(count) = fields.cut(line, dialect) else { return false };
    let Some((sign, word)) = fields.get(line, 0).trim_ascii_start().split_first() else {
        return false;
    };
    let is_word = word.first().is_some_and(|byte| byte != sign && !byte.is_ascii_whitespace());
    let is_prose = count == 1 && word.trim_ascii().contains(&b' ');
    if count != dialect.columns || !is_word || is_prose {
        return false;
    }
    let mut all: Vec<&[u8]> = (0..count).map(|place| fields.get(line, place)).collect();
    all[0] = word;
    !are_names(&all, words)
}

/// The kind of each column of the sample.
pub(super) fn kinds(data: &[Line<'_>], dialect: &Dialect) -> Vec<Kind> {
    let mut kinds = vec![Kind::Empty; dialect.columns];
    let mut fields = Fields::default();
    for line in data.iter().filter(|line| !dialect.repeats_header(line.text)) {
        if fields.cut(line.text, dialect).is_ok_and(|count| count == dialect.columns) {
            for (place, kind) in kinds.iter_mut().enumerate() {
                *kind = kind.with(Kind::of(without_quotes(fields.get(line.text, place))));
            }
        }
    }
    kinds
}
