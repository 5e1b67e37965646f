//! Lines that start like comments but may be rows, because their first field is a name or a key.

use outercore_core::{Error, Result, hint};

use super::Detection;
use super::lines::{kinds, may_be_row};
use super::options::Purpose;
use crate::dialect::Dialect;
use crate::kind::Kind;
use crate::notation::Separator;
use crate::sample::Line;
use crate::separator::Fit;
use crate::shown::shown;

impl Detection<'_> {
    /// Refuses comments above the data that may be rows, because their first field is a name or a
    /// key.
    pub(super) fn refuse_rows(
        &self,
        comments: &[Line<'_>],
        data: &[Line<'_>],
        dialect: &Dialect,
    ) -> Result<()> {
        let below = if data.len() > 1 { &data[1..] } else { data };
        if !self.may_hold_marks() || kinds(below, dialect).first() != Some(&Kind::Text) {
            return Ok(());
        }
        let is_row = |line: &&Line<'_>| may_be_row(line.text, dialect, self.purpose.words());
        let Some(line) = comments.iter().find(is_row) else { return Ok(()) };
        let is_prose = |line: &Line<'_>| line.text.trim_ascii_start().starts_with(b"# ");
        // Other lines are clearly comments, and an option that reads all such lines would fail on
        // them.
        let others = if comments.iter().any(is_prose) { "# " } else { "" };
        let error = dialect.unclear_comment(line.text.trim_ascii_start(), others);
        Err(error.context(format!("line {}", line.end.lines)))
    }

    /// As [`Detection::refuse_rows`], if all lines start like comments.
    pub(super) fn refuse_only_rows(&self, lines: &[Line<'_>], dialect: &Dialect) -> Result<()> {
        for fit in Separator::ALL.iter().map(|&separator| Fit::of(separator, lines)) {
            if !self.may_hold_marks()
                || !fit.agrees(lines.len())
                || fit.columns < self.least_columns()
            {
                continue;
            }
            let cut = Dialect { separator: fit.separator, columns: fit.columns, ..dialect.clone() };
            if lines.iter().all(|line| may_be_row(line.text, &cut, self.purpose.words())) {
                let text = shown(lines[0].text);
                return Err(Error::invalid(format!(
                    "line {}: `{text}`: all lines start like comments",
                    lines[0].end.lines
                ))
                .hint(hint!({comment = ""} " reads them as rows")));
            }
        }
        Ok(())
    }

    /// Whether rows may start like comments, and no option says what such lines are.
    fn may_hold_marks(&self) -> bool {
        self.options.comment.is_none() && self.purpose != Purpose::Edges
    }
}
