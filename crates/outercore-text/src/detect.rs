//! Detects the format of a text from its first lines and the caller's options.

mod lines;
mod marks;
mod options;

use std::path::Path;

use outercore_core::{Bytes, Context, Error, Hint, Result, hint};

use crate::dialect::{Dialect, Format, Gaps, Position, bare};
use crate::fields::{Fields, without_quotes};
use crate::header::{First, Seen, Verdict, judge};
use crate::kind::Kind;
use crate::notation::Separator;
use crate::sample::{Line, Sample};
use crate::separator::{Fit, quotes};
use crate::shown::shown;
use crate::stated::stated;
use crate::words::Names;
use crate::{dimacs, market, ntriples};

use lines::{ascends, empty_rows_above, is_above_keys, is_spreadsheet_error, kinds, repeated};

pub use options::{Convention, Purpose, TextOptions};

/// Detects the format of the text at `path`.
///
/// **Cost** Reads the first 2,000 lines, at most 16 MiB.
///
/// # Errors
/// `Invalid`: the format is ambiguous, and the message says which option decides. `Invalid` also if
/// two columns have the same name, or the purpose needs more columns. `Unsupported`: a known
/// convention that cannot be read. As [`crate::ByteStream::open`].
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_text::{Purpose, Separator, TextOptions, detect};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("edges.tsv");
/// std::fs::write(&path, "# made by hand\nsrc\tdst\tw\n0\t1\t0.5\n4\t2\t1\n")?;
/// let dialect = detect(&path, Purpose::Edges, &TextOptions::default(), Bytes::mib(16))?;
/// assert_eq!((dialect.separator, dialect.columns, dialect.comment_lines), (Separator::Tab, 3, 1));
/// assert_eq!(dialect.header.unwrap(), ["src", "dst", "w"]);
/// # Ok(())
/// # }
/// ```
pub fn detect(
    path: &Path,
    purpose: Purpose,
    options: &TextOptions,
    memory: Bytes,
) -> Result<Dialect> {
    let sample = Sample::read(purpose.file_kind(), path, memory)?;
    Detection { path, purpose, options }
        .dialect(&sample)
        .with_context(|| format!("{} `{}`", purpose.file_kind(), path.display()))
}

struct Detection<'a> {
    path: &'a Path,
    purpose: Purpose,
    options: &'a TextOptions,
}

impl Detection<'_> {
    fn dialect(&self, sample: &Sample) -> Result<Dialect> {
        let lines: Vec<Line<'_>> =
            sample.lines().filter(|line| !line.text.trim_ascii().is_empty()).collect();
        let convention = self.options.convention;
        let banner = lines.first().filter(|line| market::has_banner(line.text));
        if banner.is_some() && self.purpose != Purpose::Triples {
            return self.matrix_market(&lines);
        }
        if convention == Some(Convention::MatrixMarket) {
            return Err(Error::invalid("line 1: expected the banner of a Matrix Market file")
                .hint(hint!(
                    "a file of edges without it: " {format = "text"} ", with " {one_based = true}
                    " if ids start at 1"
                )));
        }
        let problem = lines.iter().find(|line| !dimacs::is_comment(line.text.trim_ascii_start()));
        if matches!(self.purpose, Purpose::Edges | Purpose::NamedEdges)
            && let Some(line) = problem.filter(|line| dimacs::is_problem(line.text))
        {
            return self.dimacs(&lines, *line);
        }
        if convention == Some(Convention::Dimacs) {
            return Err(Error::invalid("expected a line `p KIND NODES EDGES` before the edges")
                .hint(hint!("a file of edges without it: " {format = "text"})));
        }
        let statements = || {
            let data = lines.iter().filter(|line| !line.text.starts_with(b"#"));
            let mut all = data.peekable();
            all.peek().is_some() && all.all(|line| ntriples::is_statement(line.text))
        };
        if convention == Some(Convention::NTriples)
            || self.purpose == Purpose::Triples && self.options.separator.is_none() && statements()
        {
            let comments = vec!["#".to_owned()];
            return Ok(Dialect {
                format: Format::NTriples,
                separator: Separator::Blanks,
                columns: 3,
                kinds: vec![Kind::Text; 3],
                comments,
                ..Dialect::plain(Separator::Blanks, 3)
            });
        }
        self.delimited(&lines, sample)
    }

    fn matrix_market(&self, lines: &[Line<'_>]) -> Result<Dialect> {
        let at = |line: &Line<'_>| format!("line {}", line.end.lines);
        let banner = market::parse_banner(lines[0].text).with_context(|| at(&lines[0]))?;
        let is_comment = |line: &&Line<'_>| line.text.trim_ascii_start().starts_with(b"%");
        let comments = lines.iter().filter(is_comment).count() as u64 - 1;
        let Some(sizes) = lines.iter().find(|line| !is_comment(line)) else {
            return Err(Error::invalid("Matrix Market header: the line with the sizes is missing"));
        };
        let market = market::parse_sizes(sizes.text, banner).with_context(|| at(sizes))?;
        let columns = market.columns();
        let mut kinds = vec![Kind::Integer; columns];
        if market.field == market::Field::Real {
            kinds[2] = Kind::Float;
        }
        let names = ["row", "column", "value"][..columns].iter().map(ToString::to_string);
        Ok(Dialect {
            format: Format::MatrixMarket(market),
            comments: vec!["%".to_owned()],
            header: Some(names.collect()),
            first_id: 1,
            start: Position { entries: 0, ..sizes.end },
            comment_lines: comments,
            kinds,
            ..Dialect::plain(Separator::Blanks, columns)
        })
    }

    fn dimacs(&self, lines: &[Line<'_>], problem: Line<'_>) -> Result<Dialect> {
        let sizes = dimacs::parse_problem(problem.text)
            .with_context(|| format!("line {}", problem.end.lines))?;
        let columns = sizes.columns();
        let names = ["source", "target", "weight"][..columns].iter().map(ToString::to_string);
        let before = lines.iter().filter(|line| line.start.lines < problem.start.lines).count();
        Ok(Dialect {
            format: Format::Dimacs(sizes),
            comments: ["c ", "c\t", "c\n", "c\r"].map(str::to_owned).to_vec(),
            header: Some(names.collect()),
            first_id: 1,
            start: Position { entries: 0, ..problem.end },
            comment_lines: before as u64,
            kinds: vec![Kind::Integer; columns],
            ..Dialect::plain(Separator::Blanks, columns)
        })
    }

    fn delimited(&self, lines: &[Line<'_>], sample: &Sample) -> Result<Dialect> {
        let mut dialect = Dialect::plain(Separator::Comma, 0);
        dialect.first_id = u64::from(self.options.one_based);
        dialect.comments = match &self.options.comment {
            Some(mark) if mark.is_empty() => Vec::new(),
            Some(mark) => vec![mark.clone()],
            None if self.purpose.holds_names() => Vec::new(),
            None => dialect.comments,
        };
        dialect.gaps = match (self.purpose.is_table(), &self.options.comment) {
            (true, None) => Gaps::None,
            (true, Some(_)) => Gaps::Comments,
            _ => Gaps::Any,
        };
        // In a file of names, `#` may start a name: above the data it marks comments, below it is
        // ambiguous. Names rarely start with `% `, which marks comments of KONECT.
        let leading = if self.options.comment.is_none() && self.purpose.holds_names() {
            let marks: [&[u8]; 3] = [b"#", b"% ", b"%%"];
            let is_comment =
                |text: &[u8]| marks.iter().any(|mark| text.trim_ascii_start().starts_with(mark));
            lines.iter().take_while(|line| is_comment(line.text)).count()
        } else {
            0
        };
        let (above, below) = lines.split_at(leading);
        let (comments, data): (Vec<_>, Vec<_>) = below
            .iter()
            .copied()
            .partition(|line| dialect.is_comment_or_blank(line.text.trim_ascii_start()));
        if data.is_empty() {
            self.refuse_only_rows(lines, &dialect)?;
            return self.without_data(dialect, lines);
        }
        let (separator, columns) = self.separator(&data)?;
        (dialect.separator, dialect.columns) = (separator, columns);
        dialect.quotes = quotes(separator, &data);
        let is_above = |line: &&Line<'_>| line.start.offset < data[0].start.offset;
        let first: Vec<_> = above.iter().chain(comments.iter().filter(is_above)).copied().collect();
        self.refuse_rows(&first, &data, &dialect)?;
        let names_marked = |line: &&Line<'_>| line.text.trim_ascii_start().starts_with(b"#");
        if self.options.comment.is_none()
            && self.purpose.holds_names()
            && let Some(line) = data.iter().find(names_marked)
        {
            let shown = shown(line.text);
            return Err(Error::invalid(format!(
                "line {}: `{shown}` may be a comment or a name that starts with `#`",
                line.end.lines
            ))
            .hint(hint!(
                "say which: " {comment = "#"} " skips such lines, " {comment = ""} " reads them"
            )));
        }
        if dialect.gaps == Gaps::None
            && let Some(line) = comments.iter().find(|line| is_spreadsheet_error(line.text))
        {
            let error = dialect.unclear_comment(line.text.trim_ascii_start(), "");
            return Err(error.context(format!("line {}", line.end.lines)));
        }
        self.refuse_short_header(&data, &dialect)?;
        let has_header = self.has_header(&data, &mut dialect)?;
        let first = data[0];
        if has_header {
            dialect.header = self.names(first, &dialect)?;
            dialect.header_line = repeated(first, &data[1..], &dialect);
        }
        dialect.start = Position { entries: 0, ..if has_header { first.end } else { first.start } };
        if dialect.gaps != Gaps::Any && !has_header {
            dialect.start = empty_rows_above(first, sample, &dialect).unwrap_or(dialect.start);
        }
        let before = |line: &&Line<'_>| line.start.offset < dialect.start.offset;
        let early: Vec<_> = above.iter().chain(comments.iter().filter(before)).collect();
        dialect.comment_lines = early.len() as u64;
        if matches!(self.purpose, Purpose::Edges | Purpose::NamedEdges) {
            dialect.stated = stated(early.iter().map(|line| line.text));
        }
        dialect.kinds = kinds(&data[usize::from(has_header)..], &dialect);
        self.require_columns(&dialect, first)?;
        Ok(dialect)
    }

    /// Whether the caller says that there is a header, or needs one.
    fn expects_header(&self) -> bool {
        self.options.header.unwrap_or(self.options.by_name)
    }

    fn without_data(&self, mut dialect: Dialect, lines: &[Line<'_>]) -> Result<Dialect> {
        dialect.columns = self.options.columns.unwrap_or(2);
        dialect.separator = self.options.separator.unwrap_or(Separator::Comma);
        dialect.kinds = vec![Kind::Empty; dialect.columns];
        dialect.comment_lines = lines.len() as u64;
        if let Some(last) = lines.last() {
            dialect.start = Position { entries: 0, ..last.end };
        }
        Ok(dialect)
    }

    fn require_columns(&self, dialect: &Dialect, first: Line<'_>) -> Result<()> {
        let least = self.least_columns();
        if dialect.columns >= least {
            return Ok(());
        }
        let found = if dialect.columns == 1 { "one column" } else { "two columns" };
        let expected = if least == 2 {
            "at least two (source and target node id)"
        } else {
            "at least three (head, relation and tail)"
        };
        Err(Error::invalid(format!(
            "line {}: `{}`: found {found}, expected {expected}",
            first.end.lines,
            shown(first.text)
        ))
        .hint(hint!("name the separator if it is another one: " {separator})))
    }

    fn least_columns(&self) -> usize {
        match self.purpose {
            Purpose::Edges | Purpose::NamedEdges => 2,
            Purpose::Triples => 3,
            Purpose::Table | Purpose::NamedTable => 1,
        }
    }

    /// The separator of fields, and the number of fields on most lines.
    fn separator(&self, data: &[Line<'_>]) -> Result<(Separator, usize)> {
        // A header may have a different number of fields from the rows.
        let skip = usize::from(self.expects_header() && data.len() > 1);
        let (header, data) = data.split_at(skip);
        if let Some(separator) = self.options.separator {
            let fit = Fit::of(separator, data);
            return Ok((separator, self.options.columns.unwrap_or(fit.columns)));
        }
        let fits: Vec<Fit> = Separator::ALL.iter().map(|one| Fit::of(*one, data)).collect();
        let mut whole: Vec<&Fit> =
            fits.iter().filter(|fit| fit.agrees(data.len()) && fit.columns > 1).collect();
        if let Some(columns) = self.options.columns
            && whole.iter().any(|fit| fit.columns == columns)
        {
            whole.retain(|fit| fit.columns == columns);
        }
        if self.purpose == Purpose::Edges && whole.iter().any(|fit| fit.starts_with_ids) {
            whole.retain(|fit| fit.starts_with_ids);
        }
        let fits_header =
            |fit: &Fit| skip == 0 || Fit::of(fit.separator, header).columns == fit.columns;
        if whole.iter().any(|fit| fits_header(fit)) {
            // A text may hold another separator in each row, and the header then does not.
            whole.retain(|fit| fits_header(fit));
        }
        if let Some(tab) = whole.iter().find(|fit| fit.separator == Separator::Tab) {
            return Ok((Separator::Tab, tab.columns));
        }
        if whole.len() > 1 {
            whole.retain(|fit| fit.separator != Separator::Blanks);
        }
        match whole[..] {
            [] => {}
            [fit] => return Ok((fit.separator, fit.columns)),
            [one, other, ..] => {
                return Err(Error::invalid(format!(
                    "line {}: `{}`: fields may be separated by {} ({} columns) or by {} ({} columns)",
                    data[0].end.lines,
                    shown(data[0].text),
                    one.separator.in_words(),
                    one.columns,
                    other.separator.in_words(),
                    other.columns
                ))
                .hint(Hint::from_iter(whole.iter().enumerate().map(|(place, fit)| {
                    hint!(
                        {(if place == 0 { "say which: " } else { " or " })}
                        {separator = fit.separator}
                    )
                }))));
            }
        }
        if fits.iter().all(|fit| fit.columns <= 1 && fit.agrees(data.len())) {
            return Ok((Separator::Comma, 1));
        }
        // No separator fits all lines. Take the best one; reading then reports the first line that
        // differs.
        let best = fits
            .iter()
            .rev()
            .max_by_key(|fit| (fit.lines * usize::from(fit.columns > 1), fit.lines));
        best.map(|fit| (fit.separator, fit.columns))
            .ok_or_else(|| Error::internal("there are separators"))
    }

    /// Refuses a header with one name fewer than the rows have fields, because it does not say
    /// which column has no name.
    fn refuse_short_header(&self, data: &[Line<'_>], dialect: &Dialect) -> Result<()> {
        let mut fields = Fields::default();
        let Ok(names) = fields.cut(data[0].text, dialect) else { return Ok(()) };
        let is_text =
            |place| Kind::of(without_quotes(fields.get(data[0].text, place))) == Kind::Text;
        let may_be = self.options.by_name || (0..names).all(is_text);
        let is_header = self.options.header.unwrap_or(may_be);
        if !is_header || names + 1 != dialect.columns || data.len() < 2 {
            return Ok(());
        }
        let mut ends_empty = true;
        for line in &data[1..] {
            if !fields.cut(line.text, dialect).is_ok_and(|count| count == dialect.columns) {
                return Ok(());
            }
            ends_empty &= fields.get(line.text, names).is_empty();
        }
        let counted = if names == 1 { "1 name" } else { &format!("{names} names") };
        let what = format!(
            "line {}: the header has {counted}, the rows have {} fields",
            data[0].end.lines,
            names + 1
        );
        Err(if ends_empty {
            Error::invalid(format!("{what}: each row ends with a separator"))
                .hint("end the header with one, too, or take it off the rows")
        } else {
            Error::invalid(format!("{what}: R writes row names"))
                .hint("write with `row.names=FALSE`, or give every column a name")
        })
    }

    fn has_header(&self, data: &[Line<'_>], dialect: &mut Dialect) -> Result<bool> {
        if let Some(header) = self.options.header {
            return Ok(header);
        }
        let mut fields = Fields::default();
        let Ok(count) = fields.cut(data[0].text, dialect) else { return Ok(self.options.by_name) };
        if self.options.by_name {
            let is_number = |place| Kind::of(fields.get(data[0].text, place)).is_numeric();
            if !(0..count).all(is_number) {
                return Ok(true);
            }
            return Err(Error::invalid(format!(
                "line {}: `{}`: columns are chosen by name, and this line has numbers",
                data[0].end.lines,
                shown(data[0].text)
            ))
            .hint(hint!(
                "say which: " {header = true} " if it names the columns; if it is data, choose "
                "`column 1`, `column 2` and so on"
            )));
        }
        if count != dialect.columns {
            return Ok(false);
        }
        let first: Vec<First> = (0..count)
            .map(|place| First {
                text: fields.get(data[0].text, place).to_vec(),
                quoted: fields.is_quoted(place),
            })
            .collect();
        let mut seen = vec![Seen::default(); count];
        let is_one = count == 1 && !is_above_keys(data[0], &data[1..]);
        let others =
            data[1..].iter().filter(|line| is_one || bare(line.text) != bare(data[0].text));
        for line in others {
            if fields.cut(line.text, dialect).is_ok_and(|found| found == count) {
                for (place, seen) in seen.iter_mut().enumerate() {
                    let quoted = fields.is_quoted(place);
                    seen.add(fields.get(line.text, place), quoted, &first[place]);
                }
            }
        }
        let name = self.path.to_string_lossy().to_lowercase();
        let tabular = [".csv", ".tsv"].iter().any(|suffix| name.contains(suffix));
        let pandas = dialect.separator != Separator::Blanks && (count > 1 || tabular);
        let of_edges = matches!(self.purpose, Purpose::Edges | Purpose::NamedEdges);
        let ascends = of_edges && ascends(data, dialect);
        match judge(&first, &seen, data.len() - 1, self.purpose.words(), pandas, ascends) {
            Verdict::Names => Ok(true),
            Verdict::Sorted => {
                dialect.remark = Some(format!(
                    "line {} is read as data, as the lines go on in its order",
                    data[0].end.lines
                ));
                Ok(false)
            }
            Verdict::Data => match self.unlike_names(&first, &seen, data, dialect) {
                Some(why) => Err(unclear_header(data[0], why)),
                None => Ok(false),
            },
            Verdict::Unclear(why) => Err(unclear_header(data[0], &why)),
        }
    }

    /// Why the `first` line of a file of names may be a header, or `None`.
    fn unlike_names(
        &self,
        first: &[First],
        seen: &[Seen],
        lines: &[Line<'_>],
        dialect: &Dialect,
    ) -> Option<&'static str> {
        let are_names = first.iter().all(|field| Kind::of(&field.text) == Kind::Text)
            && seen.iter().all(|seen| seen.kind == Kind::Text);
        if !matches!(self.purpose, Purpose::NamedEdges | Purpose::Triples) || !are_names {
            return None;
        }
        let mut fields = Fields::default();
        let mut names = Names::default();
        let (header, below) = lines.split_at(1);
        let is_other = |line: &&Line<'_>| bare(line.text) != bare(header[0].text);
        let comes_again = !below.iter().all(|line| is_other(&line));
        for line in below.iter().filter(is_other) {
            if fields.cut(line.text, dialect).is_ok_and(|count| count == first.len()) {
                names.add((0..first.len()).map(|place| fields.get(line.text, place)));
            }
        }
        let first: Vec<&[u8]> = first.iter().map(|field| &field.text[..]).collect();
        names.unlike(&first, comes_again)
    }

    /// The names in a header; `None` if their number differs from the number of fields in the rows.
    fn names(&self, line: Line<'_>, dialect: &Dialect) -> Result<Option<Vec<String>>> {
        let mut fields = Fields::default();
        if fields.cut(line.text, dialect)? != dialect.columns {
            return Ok(None);
        }
        let mut names: Vec<String> = Vec::new();
        for place in 0..dialect.columns {
            let name = String::from_utf8_lossy(without_quotes(fields.get(line.text, place)));
            if !name.is_empty() && names.iter().any(|known| *known == name) {
                return Err(Error::invalid(format!(
                    "line {}: two columns are called `{name}`",
                    line.end.lines
                ))
                .hint("give each column a name of its own"));
            }
            names.push(name.into_owned());
        }
        Ok(Some(names))
    }
}

fn unclear_header(line: Line<'_>, why: &str) -> Error {
    Error::invalid(format!("line {}: `{}` {why}", line.end.lines, shown(line.text))).hint(hint!(
        "say which: " {header = true} " if it names the columns, " {header = false} " if it is "
        "data"
    ))
}

#[cfg(test)]
mod tests;
