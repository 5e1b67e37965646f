//! Whether the first line of a text names its columns.

use crate::fields::without_quotes;
use crate::kind::Kind;

/// What the lines after the first one hold in a column.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub kind: Kind,
    /// Whether any field is a whole number.
    pub integers: bool,
    /// Whether any field is a number.
    pub numbers: bool,
    /// Whether any field is in quotes.
    pub quoted: bool,
    /// Whether any field is the same as the one of the first line.
    pub comes_again: bool,
}

impl Seen {
    pub fn add(&mut self, field: &[u8], quoted: bool, first: &First) {
        let kind = Kind::of(without_quotes(field));
        self.kind = self.kind.with(kind);
        self.integers |= kind == Kind::Integer;
        self.numbers |= kind.is_numeric();
        self.quoted |= quoted;
        self.comes_again |= !field.is_empty() && field == first.text;
    }
}

/// A field of the first line.
#[derive(Clone, Debug)]
pub(crate) struct First {
    pub text: Vec<u8>,
    pub quoted: bool,
}

/// What the first line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Names,
    Data,
    /// It can be either; why.
    Unclear(String),
}

/// Which words name columns where all of them hold text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    Edges,
    Triples,
    Table,
}

const SOURCES: &[&str] = &["source", "src", "from", "u", "head", "subject", "node1", "h", "s"];
const TARGETS: &[&str] =
    &["target", "dst", "destination", "to", "v", "tail", "object", "node2", "t", "o"];
const RELATIONS: &[&str] =
    &["relation", "rel", "r", "predicate", "p", "property", "label", "type", "edge"];
const TABLES: &[&str] =
    &["", "node", "vertex", "name", "entity", "key", "label", "target", "class", "y"];

/// Judges the `first` line by what the other lines hold; `rows` is how many those are.
///
/// `pandas` says whether the file may have the header `0,1,2` that pandas writes for columns
/// without names.
pub(crate) fn judge(
    first: &[First],
    seen: &[Seen],
    rows: usize,
    words: Words,
    pandas: bool,
) -> Verdict {
    let kinds: Vec<Kind> =
        first.iter().map(|field| Kind::of(without_quotes(&field.text))).collect();
    let all_numbers = kinds.iter().all(|kind| kind.is_numeric());
    if rows == 0 {
        // No line below tells names of columns from data, so that only known words are names.
        let names = kinds.contains(&Kind::Text)
            && !kinds.iter().any(|kind| kind.is_numeric())
            && has_words(first, words);
        return if names { Verdict::Names } else { Verdict::Data };
    }
    let pairs = || kinds.iter().zip(seen);
    let only_first_quoted =
        first.iter().all(|field| field.quoted) && !seen.iter().any(|seen| seen.quoted);
    if only_first_quoted && seen.iter().any(|seen| seen.kind != Kind::Text) {
        return Verdict::Names;
    }
    let named = pairs().any(|(kind, seen)| {
        *kind == Kind::Text && (seen.kind.is_numeric() || seen.kind == Kind::Boolean)
    });
    let data = pairs().any(|(kind, seen)| kind.is_numeric() && seen.kind.is_numeric());
    if named && data {
        return Verdict::Unclear(
            "has names in some columns and numbers in others, where all other lines have numbers"
                .to_owned(),
        );
    }
    if named {
        return Verdict::Names;
    }
    if all_numbers && seen.iter().all(|seen| seen.kind == Kind::Text && !seen.numbers) {
        return Verdict::Unclear("has numbers, and all other lines have text".to_owned());
    }
    if pandas && is_range(first) && seen.iter().all(|seen| seen.kind != Kind::Text) {
        let fractions = |seen: &Seen| seen.kind == Kind::Float && !seen.integers;
        if seen.iter().any(fractions) {
            return Verdict::Names;
        }
        return Verdict::Unclear(
            "may be data, or the header that pandas writes for columns without names".to_owned(),
        );
    }
    let all_text = seen.iter().all(|seen| matches!(seen.kind, Kind::Text | Kind::Empty));
    if !(all_text && has_words(first, words)) {
        return Verdict::Data;
    }
    if words == Words::Table
        && let Some(word) = first.iter().zip(seen).find(|(_, seen)| seen.comes_again)
    {
        let word = String::from_utf8_lossy(without_quotes(&word.0.text)).into_owned();
        return Verdict::Unclear(format!("may name the columns, or be data: `{word}` comes again"));
    }
    if words == Words::Edges && first.iter().all(|field| field.text.len() == 1) {
        return Verdict::Unclear("may name the columns, or two nodes".to_owned());
    }
    Verdict::Names
}

/// `0`, `0,1`, `0,1,2`, ...
fn is_range(first: &[First]) -> bool {
    first.iter().enumerate().all(|(place, field)| field.text == place.to_string().as_bytes())
}

fn has_words(first: &[First], words: Words) -> bool {
    let any = |known: &[&str]| first.iter().any(|field| known.contains(&&*plain(&field.text)));
    match words {
        Words::Edges => any(SOURCES) && any(TARGETS),
        Words::Triples => any(SOURCES) && any(RELATIONS) && any(TARGETS),
        Words::Table => first.iter().all(|field| TABLES.contains(&&*plain(&field.text))),
    }
}

/// `FromNodeId` and `from_node_id` as `from`.
fn plain(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(without_quotes(name)).to_lowercase();
    let letters: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
    let short = letters.strip_suffix("id").unwrap_or(&letters);
    match short.strip_suffix("node") {
        Some(rest) if !rest.is_empty() => rest.to_owned(),
        _ => short.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[&str], words: Words) -> Verdict {
        let first: Vec<First> = lines[0]
            .split(',')
            .map(|text| First { text: text.into(), quoted: text.starts_with('"') })
            .collect();
        let mut seen = vec![Seen::default(); first.len()];
        for line in &lines[1..] {
            for ((seen, field), first) in seen.iter_mut().zip(line.split(',')).zip(&first) {
                seen.add(field.as_bytes(), field.starts_with('"'), first);
            }
        }
        judge(&first, &seen, lines.len() - 1, words, true)
    }

    #[test]
    fn the_first_line_is_judged_by_all_others() {
        use Words::{Edges, Table, Triples};
        for (lines, words, expected) in [
            (&["src,dst", "0,1"][..], Edges, Verdict::Names),
            (&["a,b", "0,1", "2,3"], Edges, Verdict::Names),
            (&["5,3", "0,1"], Edges, Verdict::Data),
            (&["source,target", "alice,bob"], Edges, Verdict::Names),
            (&["alice,carol", "alice,bob"], Edges, Verdict::Data),
            (&["source,target"], Edges, Verdict::Names),
            (&["alice,bob"], Edges, Verdict::Data),
            (&["0.1,NA,0.3", "0.2,0.4,0.5"], Table, Verdict::Data),
            (&["a,b,c", "0.1,NA,0.3"], Table, Verdict::Names),
            (&["0,1,2", "0.1,0.5,0.3"], Table, Verdict::Names),
            (&["\"0\",\"1\"", "4,1"], Edges, Verdict::Names),
            (&["head,relation,tail", "a,r,b"], Triples, Verdict::Names),
            (&["head,likes,tail", "a,r,b"], Triples, Verdict::Data),
            (&["subject,object,predicate", "a,r,b"], Triples, Verdict::Names),
            (&["node_id", "alice", "bob"], Table, Verdict::Names),
            (&["carol"], Table, Verdict::Data),
            (&["carol,paris"], Table, Verdict::Data),
            (&["carol,3"], Table, Verdict::Data),
            (&["name"], Table, Verdict::Names),
            (&["node_id"], Table, Verdict::Names),
            (&["id,class"], Table, Verdict::Names),
            (&["node", "alice", "bob"], Table, Verdict::Names),
        ] {
            assert_eq!(judged(lines, words), expected, "{lines:?}");
        }
        for (lines, words) in [
            (&["0,1", "4,2", "0,7"][..], Edges),
            (&["5,3", "u,v", "a,b"], Edges),
            (&["name,1", "0,1"], Edges),
            (&["u,v", "alice,bob"], Edges),
            (&["0", "3", "1"], Table),
            (&["name", "alice", "name"], Table),
        ] {
            let verdict = judged(lines, words);
            assert!(matches!(verdict, Verdict::Unclear(_)), "{lines:?}: {verdict:?}");
        }
    }
}
