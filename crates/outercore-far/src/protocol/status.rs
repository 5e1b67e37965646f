//! Status codes of answers, and the encoding of errors as status and text.

use outercore_core::{Error, ErrorKind};

use super::MAX_TEXT;

/// Success; the payload follows.
pub(crate) const OK: u16 = 0;

/// In progress; the answer follows in a later message.
pub(crate) const WORKING: u16 = 1;

/// Status code of an error kind.
fn status_of(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Invalid => 2,
        ErrorKind::NotFound => 3,
        ErrorKind::NoSpace => 4,
        ErrorKind::Version => 6,
        ErrorKind::Unsupported => 7,
        ErrorKind::Internal => 8,
        _ => 5,
    }
}

fn kind_of(status: u16) -> ErrorKind {
    match status {
        2 => ErrorKind::Invalid,
        3 => ErrorKind::NotFound,
        4 => ErrorKind::NoSpace,
        6 => ErrorKind::Version,
        7 => ErrorKind::Unsupported,
        8 => ErrorKind::Internal,
        _ => ErrorKind::Io,
    }
}

const HINT: &str = "\nhint: ";

/// Encodes an error as a status and a text of at most [`MAX_TEXT`] bytes.
pub(crate) fn encode_error(error: &Error) -> (u16, String) {
    let mut text = error.to_string();
    if text.len() > MAX_TEXT {
        let mut end = MAX_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    (status_of(error.kind()), text)
}

/// Decodes an error. Control characters become blanks, so that the text cannot affect a terminal.
pub(crate) fn decode_error(status: u16, text: &[u8]) -> Error {
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]);
    let plain = |text: &str| text.replace(char::is_control, " ");
    match text.split_once(HINT) {
        Some((message, hint)) => Error::new(kind_of(status), plain(message)).hint(plain(hint)),
        None => Error::new(kind_of(status), plain(&text)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_error_text_can_be_printed(status: u16, text in prop::collection::vec(any::<u8>(), 0..3000)) {
            let error = decode_error(status, &text);
            prop_assert!(error.to_string().len() <= 3 * MAX_TEXT + HINT.len());
        }
    }

    #[test]
    fn errors_keep_their_kind_text_and_hint() {
        let sent = Error::new(ErrorKind::NoSpace, "the server is full").hint("ask for less");
        let (status, text) = encode_error(&sent);
        let found = decode_error(status, text.as_bytes());
        assert_eq!((found.kind(), found.to_string()), (sent.kind(), sent.to_string()));
        let long = Error::invalid("ä".repeat(MAX_TEXT));
        assert_eq!(encode_error(&long).1.len(), MAX_TEXT);
    }
}
