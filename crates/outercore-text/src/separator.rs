//! How well a separator fits the lines of a sample, and the meaning of quotes between tabs and
//! blanks.

use std::collections::BTreeMap;

use crate::fields::{Fields, without_quotes};
use crate::kind::Kind;
use crate::notation::{Quotes, Separator};
use crate::sample::Line;

/// The meaning of quotes in lines that are split at tabs or blanks.
///
/// Quotes enclose fields if all lines can be read so, and if the quoted texts of each column follow
/// a rule: either all texts are quoted, as R writes them, or only the texts that need it. Otherwise
/// they belong to names, such as `"Heroes"` next to `Low`. The first line may be a header in
/// another style.
pub fn quotes(separator: Separator, data: &[Line<'_>]) -> Quotes {
    let has_quotes = |line: &Line<'_>| memchr::memchr(b'"', line.text).is_some();
    let is_clear = !matches!(separator, Separator::Tab | Separator::Blanks);
    if is_clear || !data.iter().any(has_quotes) {
        return Quotes::Plain;
    }
    let needs_quotes = |byte: &u8| match separator.byte() {
        Some(separator) => *byte == separator || *byte == b'"',
        None => byte.is_ascii_whitespace() || *byte == b'"',
    };
    let mut fields = Fields::default();
    let mut is_first_quoted = false;
    let (mut is_quoted, mut is_bare, mut columns) = (false, false, Vec::new());
    for (row, line) in data.iter().enumerate() {
        let Ok(count) = fields.split(line.text, separator, Quotes::Enclosing) else {
            return Quotes::Plain;
        };
        if row == 0 && data.len() > 1 {
            let is_quote = |place: &usize| fields.is_quoted(*place);
            is_first_quoted = (0..count).all(|place| is_quote(&place));
            is_quoted = (0..count)
                .filter(is_quote)
                .any(|place| fields.get(line.text, place).iter().any(needs_quotes));
            continue;
        }
        columns.resize(columns.len().max(count), (false, false));
        for (place, (needless, bare)) in columns[..count].iter_mut().enumerate() {
            let field = fields.get(line.text, place);
            if fields.is_quoted(place) {
                is_quoted = true;
                *needless |= !field.is_empty() && !field.iter().any(needs_quotes);
            } else if Kind::of(field) == Kind::Text {
                is_bare = true;
                *bare = true;
            }
        }
    }
    let is_mixed = columns.iter().any(|(needless, bare)| *needless && *bare);
    if !is_mixed && (is_quoted || is_first_quoted && !is_bare) {
        Quotes::Enclosing
    } else {
        Quotes::Plain
    }
}

/// How well a separator fits a sample.
pub struct Fit {
    pub separator: Separator,
    /// Number of fields on most lines.
    pub columns: usize,
    /// Number of lines with that many fields.
    pub lines: usize,
    /// Whether most lines begin with two integers.
    pub starts_with_ids: bool,
}

impl Fit {
    /// Splits every line of `data` at `separator`.
    pub fn of(separator: Separator, data: &[Line<'_>]) -> Self {
        let quotes = quotes(separator, data);
        let mut fields = Fields::default();
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let mut ids = 0;
        for line in data {
            let count = fields.split(line.text, separator, quotes).unwrap_or(0);
            *counts.entry(count).or_default() += 1;
            let is_id =
                |place| Kind::of(without_quotes(fields.get(line.text, place))) == Kind::Integer;
            ids += usize::from(count > 1 && is_id(0) && is_id(1));
        }
        let (columns, lines) = counts.into_iter().max_by_key(|(_, lines)| *lines).unwrap_or((0, 0));
        Self { separator, columns, lines, starts_with_ids: 2 * ids > data.len() }
    }

    /// Whether all of the `lines` have the same number of fields.
    pub fn agrees(&self, lines: usize) -> bool {
        self.lines == lines
    }
}
