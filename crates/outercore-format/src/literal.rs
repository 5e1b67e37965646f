//! The dictionary in a `.npy` header: the few Python literals that NumPy writes there.

use outercore_core::{Error, Result};

/// The three entries of the dictionary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dictionary {
    pub descr: String,
    pub fortran_order: bool,
    pub shape: Vec<u64>,
}

/// Parses the text between the header's length field and its data.
pub(crate) fn parse(text: &[u8]) -> Result<Dictionary> {
    let mut scanner = Scanner { text, at: 0 };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    scanner.expect(b'{')?;
    while !scanner.take(b'}') {
        let key = scanner.string()?;
        scanner.expect(b':')?;
        let twice = match key.as_str() {
            "descr" => descr.replace(scanner.descr()?).is_some(),
            "fortran_order" => fortran_order.replace(scanner.boolean()?).is_some(),
            "shape" => shape.replace(scanner.tuple()?).is_some(),
            _ => return Err(scanner.error("has an unknown key")),
        };
        if twice {
            return Err(scanner.error("has a key twice"));
        }
        if !scanner.take(b',') {
            scanner.expect(b'}')?;
            break;
        }
    }
    if scanner.peek().is_some() {
        return Err(scanner.error("goes on after its dictionary"));
    }
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => {
            Ok(Dictionary { descr, fortran_order, shape })
        }
        _ => Err(scanner.error("lacks one of `descr`, `fortran_order`, `shape`")),
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// The next byte that is not blank; it is not consumed.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.take(byte) {
            return Ok(());
        }
        Err(self.error(&format!("lacks a `{}`", char::from(byte))))
    }

    fn string(&mut self) -> Result<String> {
        let quote = self.peek();
        if !matches!(quote, Some(b'\'' | b'"')) {
            return Err(self.error("lacks a string"));
        }
        let start = self.at + 1;
        let rest = &self.text[start..];
        let Some(len) = rest.iter().position(|byte| Some(*byte) == quote || *byte == b'\\') else {
            return Err(self.error("has a string without an end"));
        };
        if rest[len] == b'\\' {
            return Err(self.error("has an escape in a string"));
        }
        self.at = start + len + 1;
        String::from_utf8(rest[..len].to_vec()).map_err(|_| self.error("is not text"))
    }

    fn descr(&mut self) -> Result<String> {
        if matches!(self.peek(), Some(b'[' | b'(')) {
            return Err(Error::invalid("structured type, expected a number type")
                .hint("save each field as an array of its own"));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("lacks True or False"))
    }

    fn tuple(&mut self) -> Result<Vec<u64>> {
        self.expect(b'(')?;
        let mut numbers = Vec::new();
        while !self.take(b')') {
            numbers.push(self.number()?);
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(numbers)
    }

    fn number(&mut self) -> Result<u64> {
        self.peek();
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.text[self.at..self.at + digits]).unwrap_or_default();
        let number = text.parse().map_err(|_| self.error("has a bad number in its shape"))?;
        self.at += digits;
        // Python 2 wrote long integers as `3L`.
        self.take(b'L');
        Ok(number)
    }

    fn error(&self, what: &str) -> Error {
        Error::invalid(format!(".npy header {what} (at byte {} of its text)", self.at))
            .hint("save the array again with np.save")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_numpy_writes_parses() {
        for text in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n",
            "{\"shape\":(3L,4L),\"fortran_order\":False,\"descr\":\"<f4\"}",
            "  { 'shape' : ( 3 , 4 ) , 'descr' : '<f4' , 'fortran_order' : False }",
        ] {
            let expected =
                Dictionary { descr: "<f4".into(), fortran_order: false, shape: vec![3, 4] };
            assert_eq!(parse(text.as_bytes()).unwrap(), expected, "{text}");
        }
        let scalar = parse(b"{'descr': '<f4', 'fortran_order': True, 'shape': (), }").unwrap();
        assert_eq!((scalar.fortran_order, scalar.shape), (true, vec![]));
    }

    #[test]
    fn what_numpy_never_writes_is_refused() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } + 1",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
            "{'descr': '<f4', 'fortran_order': 1, 'shape': (3,), }",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f\\x34', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f4, 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<f4', 'fortran_order': False, 'shape': [3], }",
        ] {
            parse(text.as_bytes()).unwrap_err();
        }
    }
}
