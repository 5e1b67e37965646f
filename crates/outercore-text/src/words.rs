//! Decides whether the first line of a file of names may be a header without any known word.

use std::collections::HashMap;

use crate::fields::without_quotes;

/// Words for the content of name columns. A first line with two of them may be a header.
const ROLES: &[&str] = &[
    "author",
    "buyer",
    "child",
    "cited",
    "citing",
    "customer",
    "disease",
    "drug",
    "entity",
    "followed",
    "followee",
    "follower",
    "following",
    "friend",
    "gene",
    "head",
    "interaction",
    "item",
    "movie",
    "name",
    "node",
    "object",
    "paper",
    "parent",
    "person",
    "predicate",
    "product",
    "property",
    "protein",
    "receiver",
    "relation",
    "relationship",
    "seller",
    "sender",
    "source",
    "subject",
    "tail",
    "target",
    "type",
    "user",
];

/// How often each name occurs in the lines below the first one.
#[derive(Default)]
pub(crate) struct Names {
    counts: HashMap<Vec<u8>, u32>,
    rows: Vec<Vec<Vec<u8>>>,
}

impl Names {
    /// Adds the names of a line.
    pub fn add<'a>(&mut self, fields: impl Iterator<Item = &'a [u8]>) {
        let row: Vec<Vec<u8>> = fields.map(<[u8]>::to_vec).collect();
        for name in &row {
            *self.counts.entry(name.clone()).or_default() += 1;
        }
        self.rows.push(row);
    }

    /// Why the `first` line may name the columns, or `None`.
    ///
    /// Names of nodes and relations usually occur several times, so a word that occurs again is
    /// data. If no word does, the line may be a header in four cases: the whole line `comes_again`;
    /// two of its words are in `ROLES`; all its words are letters above longer names; or nearly all
    /// names of a column occur again: then a line of data would contain such a name with a
    /// probability of 19 in 20.
    pub fn unlike(&self, first: &[&[u8]], comes_again: bool) -> Option<&'static str> {
        let is_apart = (1..first.len()).all(|place| !first[..place].contains(&first[place]));
        let is_new = first.iter().all(|word| !self.counts.contains_key(*word));
        if !(is_apart && is_new && first.iter().all(|word| is_word(word))) {
            return None;
        }
        if comes_again {
            return Some("comes again, and its words come nowhere else: it may name the columns");
        }
        let are_letters = || {
            self.rows.len() > 1
                && first.iter().all(|word| is_letter(word))
                && !self.counts.keys().any(|name| is_letter(name))
        };
        if first.iter().filter(|word| is_role(word)).count() >= 2 || are_letters() {
            return Some("may name the columns, or be data");
        }
        let is_full = (0..first.len()).any(|place| self.nearly_all_come_again(place));
        is_full.then_some("may name the columns: its words do not come again, as other names do")
    }

    fn nearly_all_come_again(&self, place: usize) -> bool {
        let column = || self.rows.iter().filter_map(|row| row.get(place));
        let singles = column().filter(|name| self.counts[*name] == 1).count();
        let different: std::collections::HashSet<&Vec<u8>> = column().collect();
        20 * (singles + 1) <= self.rows.len() + 1 && 10 * singles <= different.len()
    }
}

/// Whether a text looks like a column name: `user`, `user_id`, `User ID`, `node1`.
pub(crate) fn is_word(text: &[u8]) -> bool {
    let text = without_quotes(text);
    let letters = text.strip_suffix(b"1").or_else(|| text.strip_suffix(b"2")).unwrap_or(text);
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || b"_-. ".contains(byte);
    (1..=24).contains(&letters.len()) && letters.iter().all(is_letter)
}

fn is_letter(text: &[u8]) -> bool {
    matches!(without_quotes(text), [letter] if letter.is_ascii_alphabetic())
}

fn is_role(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(without_quotes(text)).to_lowercase();
    let ids = ["_id", "-id", ".id", " id", "_name", " name"];
    ids.iter().any(|end| text.ends_with(end))
        || ROLES.contains(&text.trim_end_matches(|end: char| end.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubted(first: &str, lines: impl IntoIterator<Item = String>) -> bool {
        let mut names = Names::default();
        for line in lines {
            names.add(line.split(',').map(str::as_bytes));
        }
        let first: Vec<&[u8]> = first.split(',').map(str::as_bytes).collect();
        names.unlike(&first, false).is_some()
    }

    /// Random triples of 500 entities; `relation` maps a random number to the relation.
    fn triples(relation: impl Fn(u64) -> u64) -> Vec<String> {
        let letters = |number: u64| {
            let letter = |place: u32| char::from(b'a' + (number / 26u64.pow(place) % 26) as u8);
            format!("{}{}", letter(0), letter(1))
        };
        let random = |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        (0..2000)
            .map(|i| {
                let (head, tail) = (random(2 * i) % 500, random(2 * i + 1) % 500);
                format!("e{},r{},e{}", letters(head), letters(relation(random(i))), letters(tail))
            })
            .collect()
    }

    #[test]
    fn ordinary_lists_without_a_header_are_not_doubted() {
        for relations in [1, 11, 237] {
            let list = triples(|random| random % relations);
            // Any line may come first.
            let doubts = (0..200).filter(|&at| {
                let others = list.iter().enumerate().filter(|(other, _)| *other != at);
                doubted(&list[at], others.map(|(_, line)| line.clone()))
            });
            assert_eq!(doubts.count(), 0, "{relations} relations");
        }
        let every_name_once = |i: u64| format!("a{i},b{i}");
        assert!(!doubted("follower,followed by", (0..2000).map(every_name_once)));
        for (first, line) in [
            ("alice,bob", "bob,carol"),
            ("alice,bob", "carol,dave"),
            ("a,b", "c,d"),
            ("user,item", "item,user"),
            ("drug,treats,disease", "gene,treats,disease"),
            ("/m/027rn,/location/country,/m/06cx9", "/m/01,/film,/m/02"),
            ("dog.n.01,_hypernym,canine.n.02", "cat.n.01,_holonym,feline.n.01"),
        ] {
            assert!(!doubted(first, [line.to_owned()]), "{first}");
        }
    }

    #[test]
    fn words_that_name_columns_are_doubted() {
        for first in ["x,y,z", "compound,effect,side effect", "Entity,Link,Value"] {
            assert!(doubted(first, triples(|random| random % 237)), "{first}");
        }
        for (first, line) in [
            ("follower,followed", "ann,bob"),
            ("user,item", "ann,book"),
            ("user_id,movie_id", "u7,m3"),
            ("drug,interaction,target", "aspirin,inhibits,cox"),
        ] {
            assert!(doubted(first, [line.to_owned()]), "{first}");
        }
        assert!(doubted("a,b", ["ann,book", "bob,pen"].map(str::to_owned)));
    }
}
