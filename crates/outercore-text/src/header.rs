//! Decides whether the first line of a text names its columns.

use crate::fields::without_quotes;
use crate::kind::Kind;
use crate::words::is_word;

/// Properties of a column in the lines after the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub kind: Kind,
    /// Whether any field is an integer.
    pub integers: bool,
    /// Whether any field is a number.
    pub numbers: bool,
    /// Whether any field is in quotes.
    pub quoted: bool,
    /// Whether any field equals the field of the first line.
    pub comes_again: bool,
    /// The common pattern of non-empty fields, if there are several and all are similar.
    alike: Alike,
}

/// Whether the fields of a column are similar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Alike {
    #[default]
    Unknown,
    /// One field so far, with this pattern.
    One(Vec<u8>),
    /// Several fields, all with this pattern.
    All(Vec<u8>),
    No,
}

impl Alike {
    fn with(self, field: &[u8]) -> Self {
        let look = look(field);
        match self {
            Self::Unknown => look.map_or(Self::No, Self::One),
            Self::One(known) | Self::All(known) if look.as_ref() == Some(&known) => {
                Self::All(known)
            }
            _ => Self::No,
        }
    }
}

/// The pattern of keys such as `user_17` or `9f86d081`. Numbers in them, or all hexadecimal digits,
/// are replaced, so that similar keys have equal patterns. `None` for a text without digits.
pub(crate) fn look(key: &[u8]) -> Option<Vec<u8>> {
    if !key.iter().any(u8::is_ascii_digit) {
        return None;
    }
    let is_hexadecimal = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    if key.len() >= 8 && key.iter().all(is_hexadecimal) {
        return Some(key.iter().map(|&byte| if byte == b'-' { byte } else { b'0' }).collect());
    }
    let mut look = key.to_vec();
    look.iter_mut().filter(|byte| byte.is_ascii_digit()).for_each(|byte| *byte = b'0');
    look.dedup_by(|one, other| *one == b'0' && *other == b'0');
    Some(look)
}

impl Seen {
    pub fn add(&mut self, field: &[u8], quoted: bool, first: &First) {
        let kind = Kind::of(without_quotes(field));
        self.kind = self.kind.with(kind);
        self.integers |= kind == Kind::Integer;
        self.numbers |= kind.is_numeric();
        self.quoted |= quoted;
        self.comes_again |= !field.is_empty() && field == first.text;
        if kind != Kind::Empty {
            self.alike = std::mem::take(&mut self.alike).with(without_quotes(field));
        }
    }

    /// Whether `field` has digits and the same pattern as all fields below it, like a date above
    /// dates.
    fn goes_on(&self, field: &[u8]) -> bool {
        let look = look(field);
        self.kind == Kind::Text
            && look.is_some_and(|look| matches!(&self.alike, Alike::All(all) if *all == look))
    }

    /// Whether `word` has a digit, as a key may, but another pattern than all keys below it.
    fn is_apart(&self, word: &[u8]) -> bool {
        let look = look(word);
        self.kind == Kind::Text
            && look.is_some_and(|look| matches!(&self.alike, Alike::All(all) if *all != look))
    }

    /// Whether the keys below `word` all have the same pattern, and `word` is not such a key.
    fn names_keys(&self, word: &[u8]) -> bool {
        self.kind == Kind::Text && matches!(self.alike, Alike::All(_)) && look(word).is_none()
    }
}

/// A field of the first line.
#[derive(Clone, Debug)]
pub(crate) struct First {
    pub text: Vec<u8>,
    pub quoted: bool,
}

/// The meaning of the first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Names,
    Data,
    /// Data, because the lines below continue its order. Without the order it would be unclear.
    Sorted,
    /// Either; with the reason.
    Unclear(String),
}

/// Which words count as names of columns if all columns hold text.
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

/// Decides the meaning of the `first` line from the columns below it; `rows` is the number of lines
/// below.
///
/// `pandas`: whether the header may be `0,1,2`, which pandas writes for columns without names.
/// `ascends`: whether each line sorts after the previous one, starting with the first line.
pub(crate) fn judge(
    first: &[First],
    seen: &[Seen],
    rows: usize,
    words: Words,
    pandas: bool,
    ascends: bool,
) -> Verdict {
    let kinds: Vec<Kind> =
        first.iter().map(|field| Kind::of(without_quotes(&field.text))).collect();
    let all_numbers = kinds.iter().all(|kind| kind.is_numeric());
    if rows == 0 {
        // No line below helps to tell names from data, so only known words count as names.
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
    let named = is_above_values(&kinds, seen, words);
    let data = pairs().any(|(kind, seen)| kind.is_numeric() && seen.kind != Kind::Empty);
    if named && data {
        return Verdict::Unclear("has names in some columns and numbers in others".to_owned());
    }
    let goes_on = |(field, seen): (&First, &Seen)| seen.goes_on(without_quotes(&field.text));
    let has_others = || words != Words::Table && seen.iter().any(|seen| seen.comes_again);
    if named && (first.iter().zip(seen).any(goes_on) || has_others()) {
        return Verdict::Unclear(
            "has a name above numbers, and in another column what other lines have".to_owned(),
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
        if ascends {
            return Verdict::Sorted;
        }
        return Verdict::Unclear(
            "may be data, or the header that pandas writes for columns without names".to_owned(),
        );
    }
    let are_words = first.iter().all(|field| is_word(&field.text));
    let names_keys = |(field, seen): (&First, &Seen)| seen.names_keys(without_quotes(&field.text));
    if are_words && first.iter().zip(seen).any(names_keys) {
        return Verdict::Names;
    }
    let is_apart = |(field, seen): (&First, &Seen)| seen.is_apart(without_quotes(&field.text));
    if are_words && first.iter().zip(seen).all(is_apart) {
        return Verdict::Unclear(
            "may name the columns, or be data: all keys below look otherwise".to_owned(),
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

/// Whether a word is above numbers, or above true and false. In columns of nodes, true and false do
/// not count, because a node may be called `true`.
fn is_above_values(first: &[Kind], seen: &[Seen], words: Words) -> bool {
    let ends = match words {
        Words::Edges => 2,
        Words::Triples => 3,
        Words::Table => 0,
    };
    first.iter().zip(seen).enumerate().any(|(place, (kind, seen))| {
        let is_flag = seen.kind == Kind::Boolean && place >= ends;
        *kind == Kind::Text && (seen.kind.is_numeric() || is_flag)
    })
}

/// `0`, `0,1`, `0,1,2`, ...
fn is_range(first: &[First]) -> bool {
    first.iter().enumerate().all(|(place, field)| field.text == place.to_string().as_bytes())
}

fn has_words(first: &[First], words: Words) -> bool {
    let fields: Vec<&[u8]> = first.iter().map(|field| &field.text[..]).collect();
    are_names(&fields, words)
}

/// Whether all fields of a line are known names of columns.
pub(crate) fn are_names(fields: &[&[u8]], words: Words) -> bool {
    let any = |known: &[&str]| fields.iter().any(|field| known.contains(&&*plain(field)));
    match words {
        Words::Edges => any(SOURCES) && any(TARGETS),
        Words::Triples => any(SOURCES) && any(RELATIONS) && any(TARGETS),
        Words::Table => fields.iter().all(|field| TABLES.contains(&&*plain(field))),
    }
}

/// Reduces `FromNodeId` and `from_node_id` to `from`.
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
        judge(&first, &seen, lines.len() - 1, words, true, lines.is_sorted())
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
            (&["follower,followed", "user_17,user_3", "user_3,user_204"], Edges, Verdict::Names),
            (&["a,b", "m1,m2", "m2,m10"], Edges, Verdict::Names),
            (&["a,b", "m1,ann", "m2,bob"], Edges, Verdict::Names),
            (&["paper_id", "p17", "p204"], Table, Verdict::Names),
            (&["key", "9f86d081", "60303ae2"], Table, Verdict::Names),
            (&["x,y,z", "Q42,P31,Q5", "Q1,P279,Q7"], Triples, Verdict::Names),
            (&["m7,m1", "m1,m2", "m2,m10"], Edges, Verdict::Data),
            (&["ann,bob", "m1,x", "bob,m2"], Edges, Verdict::Data),
            (&["a,b", "m1,m2"], Edges, Verdict::Data),
            (&["bob,ann", "cid,true", "ann,true"], Edges, Verdict::Data),
            (&["ann,likes,7", "true,knows,ann"], Triples, Verdict::Data),
            (&["s,x,on", "ann,bob,true", "bob,cid,false"], Edges, Verdict::Names),
            (&["0,1", "0,2", "1,2"], Edges, Verdict::Sorted),
            (&["0,1,2", "0,2,0.5", "1,2,0.5"], Edges, Verdict::Names),
        ] {
            assert_eq!(judged(lines, words), expected, "{lines:?}");
        }
        for (lines, words) in [
            (&["0,1", "4,2", "0,7"][..], Edges),
            (&["5,3", "u,v", "a,b"], Edges),
            (&["name,1", "0,1"], Edges),
            (&["ann,likes,7", "3,knows,ann"], Triples),
            (&["ann,likes,bob", "3,knows,cid", "7,likes,ann"], Triples),
            (&["m1,m2", "57d4d4c8,c268ab7d", "eb28b145,04e7d6a5"], Edges),
            (&["ann,bob,2019-07-18", "bob,7,2005-09-01", "id,7,2024-05-09"], Edges),
            (&["u,v", "alice,bob"], Edges),
            (&["0", "3", "1"], Table),
            (&["name", "alice", "name"], Table),
        ] {
            let verdict = judged(lines, words);
            assert!(matches!(verdict, Verdict::Unclear(_)), "{lines:?}: {verdict:?}");
        }
    }
}
