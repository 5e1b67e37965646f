//! Parses the JSON of clients without a tree of values, so that decoding takes only the memory that
//! the result needs.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::element::Element;
use crate::refusal::{Refusal, cut};

/// Deepest nesting of lists and objects.
const MOST_DEPTH: usize = 32;

/// Most bytes of a number or a string.
const MOST_CHARACTERS: usize = 1024;

/// Some clients write this for a value that they leave out.
pub const NULL: &str = "null";

/// Most tensors, outputs, dimensions or parameters in a list.
const MOST_ITEMS: usize = 64;

/// Checks the sizes that decide how much memory a parser takes: the length of strings and numbers,
/// and the depth of nesting. Does not check that the text is JSON.
///
/// # Errors
/// One of them is too large.
pub fn check_sizes(text: &[u8]) -> Result<(), Refusal> {
    let (mut depth, mut rest) = (0usize, text);
    loop {
        // Most bytes belong to numbers, so they are skipped without further checks.
        let end = rest.iter().position(|&byte| ENDS_A_NUMBER[usize::from(byte)]);
        check_length(end.unwrap_or(rest.len()))?;
        let Some(end) = end else { return Ok(()) };
        let (byte, behind) = (rest[end], &rest[end + 1..]);
        rest = behind;
        match byte {
            b'"' => {
                let length = string_length(rest);
                check_length(length)?;
                rest = rest.get(length + 1..).unwrap_or_default();
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_DEPTH {
            let text = format!("lists and objects lie deeper than {MOST_DEPTH} in each other");
            return Err(Refusal::wrong(text));
        }
    }
}

/// For each byte: whether it separates numbers, or begins a string, a list or an object.
const ENDS_A_NUMBER: [bool; 256] = {
    let (mut table, mut at) = ([false; 256], 0);
    let ends = b"\"[]{},: \t\r\n";
    while at < ends.len() {
        table[ends[at] as usize] = true;
        at += 1;
    }
    table
};

fn check_length(length: usize) -> Result<(), Refusal> {
    if length <= MOST_CHARACTERS {
        return Ok(());
    }
    let text = format!("a string or number has more than {MOST_CHARACTERS} bytes");
    Err(Refusal::wrong(text))
}

/// Bytes before the quotation mark that ends a string; all bytes if there is none.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().position(|&byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = !is_escaped && byte == b'\\';
        is_end
    });
    end.unwrap_or(text.len())
}

/// Reads a short list, for `deserialize_with`. `null` gives an empty list, because some clients
/// write it for a list that they leave out.
///
/// # Errors
/// Errors of the items; a list of more than [`MOST_ITEMS`] items.
pub fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;

        fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(text, "a list of up to {MOST_ITEMS}")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = all.next_element()? {
                if items.len() == MOST_ITEMS {
                    return Err(Error::invalid_length(MOST_ITEMS + 1, &self));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    from.deserialize_any(Few(std::marker::PhantomData))
}

/// Parameters by name, each as its JSON.
#[derive(Debug, Default)]
pub struct Parameters<'a>(pub Vec<(String, Cow<'a, str>)>);

impl Parameters<'_> {
    /// The JSON of a parameter; `None` also for `null`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value).filter(|&value| value != NULL)
    }

    /// Removes a parameter and returns it.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(place).1.into_owned())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Parameters<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Parameters<'de>;

            fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(text, "an object of up to {MOST_ITEMS} parameters")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Parameters::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(String, Cow<'de, str>)> = Vec::new();
                while let Some((name, value)) = all.next_entry::<String, &'de RawValue>()? {
                    if members.iter().any(|(known, _)| *known == name) {
                        return Err(Error::custom(format!("parameter `{}` twice", cut(&name))));
                    }
                    if members.len() == MOST_ITEMS {
                        return Err(Error::invalid_length(MOST_ITEMS + 1, &self));
                    }
                    members.push((name, Cow::Borrowed(value.get())));
                }
                Ok(Parameters(members))
            }
        }

        from.deserialize_any(Members)
    }
}

/// Calls `take` with each item of a list.
///
/// # Errors
/// Errors of `take`; JSON that is not a list of such items.
pub fn each_item<'a, T: Deserialize<'a>>(
    what: &str,
    json: &'a RawValue,
    take: impl FnMut(T) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    struct Items<T, F>(F, Option<Refusal>, std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>, F> Visitor<'de> for &mut Items<T, F>
    where
        F: FnMut(T) -> Result<(), Refusal>,
    {
        type Value = ();

        fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
            text.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
            while let Some(item) = all.next_element()? {
                (self.0)(item).map_err(|refused| keep(&mut self.1, refused))?;
            }
            Ok(())
        }
    }

    let mut items = Items(take, None, std::marker::PhantomData);
    let mut from = serde_json::Deserializer::from_str(json.get());
    let done = from.deserialize_seq(&mut items);
    outcome(what, done, items.1)
}

/// Calls `take` with each member of an object.
///
/// # Errors
/// Errors of `take`; JSON that is not an object.
pub fn each_member<'a>(
    what: &str,
    json: &'a RawValue,
    take: impl FnMut(&str, &'a RawValue) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    struct Members<F>(F, Option<Refusal>);

    impl<'de, F> Visitor<'de> for &mut Members<F>
    where
        F: FnMut(&str, &'de RawValue) -> Result<(), Refusal>,
    {
        type Value = ();

        fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
            text.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
            while let Some((name, value)) = all.next_entry::<Cow<'de, str>, _>()? {
                (self.0)(&name, value).map_err(|refused| keep(&mut self.1, refused))?;
            }
            Ok(())
        }
    }

    let mut members = Members(take, None);
    let mut from = serde_json::Deserializer::from_str(json.get());
    let done = from.deserialize_map(&mut members);
    outcome(what, done, members.1)
}

/// Stores `refused` in `kept`, and returns a parser error in its place.
fn keep<E: Error>(kept: &mut Option<Refusal>, refused: Refusal) -> E {
    *kept = Some(refused);
    E::custom("refused")
}

fn outcome(
    what: &str,
    done: serde_json::Result<()>,
    refused: Option<Refusal>,
) -> Result<(), Refusal> {
    match (done, refused) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(refused)) => Err(refused),
        (Err(error), None) => Err(Refusal::wrong(format!("{what}: {error}"))),
    }
}

/// Calls `take` with each number of the tensor `name`, in row-major order. A tensor may be flat, or
/// nested lists that match `shape`. For a flat tensor, the caller checks the number of values.
///
/// # Errors
/// Errors of `take`; lists that do not match `shape`; JSON that is not a list of numbers.
pub fn each(
    name: &str,
    json: &str,
    shape: &[i64],
    take: impl FnMut(Element<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut reader = Reader { name, shape, form: None, refused: None, take };
    let mut from = serde_json::Deserializer::from_str(json);
    let done = At { reader: &mut reader, depth: 0 }.deserialize(&mut from);
    outcome(&cut(name), done, reader.refused)
}

/// Layout of a tensor in JSON.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Flat,
    Nested,
}

struct Reader<'a, F> {
    name: &'a str,
    shape: &'a [i64],
    /// `None` until the first item of the outermost list is read.
    form: Option<Form>,
    /// The refusal, if something other than the JSON is wrong.
    refused: Option<Refusal>,
    take: F,
}

impl<F: FnMut(Element<'_>) -> Result<(), Refusal>> Reader<'_, F> {
    /// Error: the lists do not match the shape.
    fn is_uneven<E: Error>(&mut self, found: &str) -> E {
        let (name, shape) = (cut(self.name), cut(&format!("{:?}", self.shape)));
        let text = format!("{name}: {found}, expected numbers nested as the shape {shape}");
        keep(&mut self.refused, Refusal::wrong(text))
    }
}

/// The place of a value: the number of lists around it.
struct At<'r, 'a, F> {
    reader: &'r mut Reader<'a, F>,
    depth: usize,
}

impl<F: FnMut(Element<'_>) -> Result<(), Refusal>> At<'_, '_, F> {
    fn number<E: Error>(self, element: Element<'_>) -> Result<(), E> {
        let Self { reader, depth } = self;
        let form = *reader.form.get_or_insert(match reader.shape.len() {
            0 | 1 => Form::Flat,
            _ if depth <= 1 => Form::Flat,
            _ => Form::Nested,
        });
        let expected = if form == Form::Flat { 1 } else { reader.shape.len() };
        if depth != expected && depth > 0 {
            return Err(reader.is_uneven(&format!("a number in {depth} lists")));
        }
        (reader.take)(element).map_err(|refused| keep(&mut reader.refused, refused))
    }
}

impl<'de, F: FnMut(Element<'_>) -> Result<(), Refusal>> DeserializeSeed<'de> for At<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Element<'_>) -> Result<(), Refusal>> Visitor<'de> for At<'_, '_, F> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("numbers, or lists of them")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.number(Element::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.number(Element::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.number(Element::Whole(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.number(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.number(Element::Real(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.number(Element::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { reader, depth } = self;
        let depth = depth + 1;
        if depth > 1 {
            let form = *reader.form.get_or_insert(Form::Nested);
            if form == Form::Flat || depth > reader.shape.len() {
                return Err(reader.is_uneven(&format!("a list in {} lists", depth - 1)));
            }
        }
        let mut count = 0;
        while items.next_element_seed(At { reader: &mut *reader, depth })?.is_some() {
            count += 1;
        }
        let is_nested = reader.form == Some(Form::Nested);
        if is_nested && reader.shape.get(depth - 1) != Some(&count) {
            return Err(reader.is_uneven(&format!("a list of {count}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(json: &str, shape: &[i64]) -> Result<Vec<f64>, String> {
        let mut found = Vec::new();
        let read = each("x", json, shape, |element| {
            found.push(element.as_f64().ok_or_else(|| Refusal::wrong(element.to_string()))?);
            Ok(())
        });
        read.map(|()| found).map_err(|refused| format!("{refused:?}"))
    }

    #[test]
    fn a_tensor_is_written_flat_or_nested_as_its_shape() {
        for (json, shape) in [
            ("[1, 2, 3, 4]", &[4][..]),
            ("[1, 2, 3, 4]", &[2, 2]),
            ("[[1, 2], [3, 4]]", &[2, 2]),
            ("[[1], [2], [3], [4]]", &[4, 1]),
            ("[[[1, 2]], [[3, 4]]]", &[2, 1, 2]),
        ] {
            assert_eq!(numbers(json, shape), Ok(vec![1.0, 2.0, 3.0, 4.0]), "{json} {shape:?}");
        }
        for (json, shape) in
            [("[]", &[0][..]), ("[]", &[0, 2]), ("[[], []]", &[2, 0]), ("[]", &[2, 2])]
        {
            assert_eq!(numbers(json, shape), Ok(vec![]), "{json} {shape:?}");
        }
    }

    #[test]
    fn every_other_nesting_is_refused() {
        for (json, shape) in [
            ("[[1, 2], [3, 4], [5, 6], [7, 8]]", &[2, 4][..]),
            ("[[1, 2, 3], [4, 5, 6]]", &[3, 2]),
            ("[[1, 2, 3], [4]]", &[2, 2]),
            ("[[1, 2], 3, 4]", &[2, 2]),
            ("[1, 2, [3, 4]]", &[2, 2]),
            ("[[1, 2], [3, 4], []]", &[2, 2]),
            ("[[[1, 2], [3, 4]]]", &[2, 2]),
            ("[[1, 2, 3, 4]]", &[4]),
            ("[[1], [2]]", &[2]),
            ("[[1, 2], [3, 4]]", &[2, 2, 1]),
            ("[[]]", &[2, 0]),
            ("[[1]]", &[]),
        ] {
            let refused = numbers(json, shape).unwrap_err();
            assert!(refused.contains("expected numbers nested as the shape"), "{json}: {refused}");
        }
    }

    #[test]
    fn what_is_no_number_is_named() {
        for (json, text) in [
            ("[1, null]", "null"),
            ("[\"a\"]", "a"),
            ("[true]", "true"),
            ("[{}]", "expected numbers, or lists of them"),
            ("[1", "EOF"),
        ] {
            let refused = numbers(json, &[2]).unwrap_err();
            assert!(refused.contains(text), "{json}: {refused}");
        }
    }

    #[test]
    fn sizes_that_take_memory_are_bounded() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let long = |length: usize| "1".repeat(length);
        let quoted = |length: usize| format!("\"{}\"", "\\\"".repeat(length / 2));
        for text in [deep(32), long(1024), quoted(1000), "[]".repeat(100), "1,".repeat(5000)] {
            assert_eq!(check_sizes(text.as_bytes()), Ok(()), "{}", cut(&text));
        }
        for text in [deep(33), long(1025), quoted(2000), format!("[1, {}]", long(2000))] {
            assert!(check_sizes(text.as_bytes()).is_err(), "{}", cut(&text));
        }
    }
}
