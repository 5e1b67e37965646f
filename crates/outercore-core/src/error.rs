use std::fmt;
use std::io;

use crate::{Bytes, Hint};

/// The result type of every fallible function in Outercore.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Category of an error, coarse enough for a caller to act on.
///
/// Python mirrors each kind as an exception class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or input file is wrong; the user can correct it.
    Invalid,
    /// A file, array, split or named thing does not exist.
    NotFound,
    /// Bytes on disk contradict the manifest or a checksum, or a file is short.
    Corrupt,
    /// The data set was written by a newer format version.
    Version,
    /// The memory budget is below the required minimum.
    Budget,
    /// The operating system refused a read or a write.
    Io,
    /// The device is full.
    NoSpace,
    /// A write failed, and it is unknown whether it took effect.
    Unknown,
    /// The user asked to stop.
    Interrupted,
    /// This build or kernel lacks a requested feature.
    Unsupported,
    /// A bug in Outercore.
    Internal,
}

/// An error: a kind, a message that names the thing, the context it happened in, and a next step.
///
/// Printed as outermost context, cause, and hint. The hint has a separate line.
///
/// # Example
/// ```
/// use outercore_core::{Context, Error, ErrorKind, Result};
/// let failed: Result<()> = Err(Error::new(ErrorKind::Corrupt, "file has 12 bytes, expected 4096"));
/// let error = failed.context("feature array `nodes/x.npy`").unwrap_err().hint("run `outercore check DATASET`");
/// assert_eq!(
///     error.to_string(),
///     "feature array `nodes/x.npy`: file has 12 bytes, expected 4096\nhint: run `outercore check DATASET`",
/// );
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    /// Innermost first.
    context: Vec<String>,
    hint: Option<Hint>,
    needed: Option<Bytes>,
    source: Option<io::Error>,
}

impl Error {
    /// Creates an error of `kind`. The message names the thing, the expected and the found state.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            context: Vec::new(),
            hint: None,
            needed: None,
            source: None,
        }))
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Shorthand for [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Shorthand for [`ErrorKind::Internal`]: a condition that our own code should have excluded.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// The kind of the error, for a caller that acts on it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operating system's error number, if the operating system caused the error.
    pub fn os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// The memory that would suffice, if a budget was too small and the need is known.
    pub fn needed(&self) -> Option<Bytes> {
        self.0.needed
    }

    /// Records the memory that would suffice. A caller can then offer more, or ask for it in
    /// another wording.
    #[must_use]
    pub fn needs(mut self, memory: Bytes) -> Self {
        self.0.needed = Some(memory);
        self
    }

    /// The context, outermost first, and the cause, without the hint.
    pub fn message(&self) -> String {
        let mut text = String::new();
        for context in self.0.context.iter().rev() {
            text.push_str(context);
            text.push_str(": ");
        }
        text.push_str(&self.0.message);
        text
    }

    /// The next step that the user can take, if known.
    pub fn next_step(&self) -> Option<&Hint> {
        self.0.hint.as_ref()
    }

    /// Message and hint on one line, for protocols that allow only one line.
    pub fn one_line(&self) -> String {
        match self.next_step() {
            Some(hint) => format!("{}; {hint}", self.message()),
            None => self.message(),
        }
    }

    /// Adds the next step that the user can take; an inner hint wins.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Adds the larger task in which the error happened.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context.push(context.into());
        self
    }
}

impl Clone for Error {
    /// Copies the error, so that several callers can receive it. The operating system's error keeps
    /// its number, or else its kind and text.
    fn clone(&self) -> Self {
        let Inner { kind, message, context, hint, needed, source } = &*self.0;
        let source = source.as_ref().map(|source| match source.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(source.kind(), source.to_string()),
        });
        Self(Box::new(Inner {
            kind: *kind,
            message: message.clone(),
            context: context.clone(),
            hint: hint.clone(),
            needed: *needed,
            source,
        }))
    }
}

impl From<io::Error> for Error {
    /// Classifies an operating-system error: a full device, a missing file, an interrupt, or I/O.
    fn from(source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::Interrupted => ErrorKind::Interrupted,
            io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        const EMFILE: i32 = 24;
        let mut error = Self::new(kind, source.to_string());
        if kind == ErrorKind::NoSpace {
            error = error.hint("free space on the device, then run the same command again");
        } else if source.raw_os_error() == Some(EMFILE) {
            error = error.hint("allow more open files by `ulimit -n 4096`, then run it again");
        }
        error.0.source = Some(source);
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        match self.next_step() {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?}] {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

/// Adds context to the error of a `Result`, whether the error is [`Error`] or [`io::Error`].
pub trait Context<T> {
    /// Adds the larger task in which the error happened.
    fn context(self, context: impl Into<String>) -> Result<T>;

    /// Like [`Context::context`], building the text only when there is an error.
    fn with_context<C: Into<String>>(self, context: impl FnOnce() -> C) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, context: impl Into<String>) -> Result<T> {
        self.map_err(|error| error.into().context(context))
    }

    fn with_context<C: Into<String>>(self, context: impl FnOnce() -> C) -> Result<T> {
        self.map_err(|error| error.into().context(context()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_reads_from_the_outside_in_and_the_hint_comes_last() {
        let error = Error::corrupt("3 bytes left")
            .context("row 7")
            .context("array `x`")
            .hint("import it again");
        assert_eq!(error.to_string(), "array `x`: row 7: 3 bytes left\nhint: import it again");
    }

    #[test]
    fn a_copy_says_and_knows_the_same() {
        let error = Error::from(io::Error::from_raw_os_error(28)).context("array `x`");
        let error = error.needs(Bytes::mib(3));
        let copy = error.clone();
        assert_eq!(format!("{copy:?}"), format!("{error:?}"));
        assert_eq!((copy.os_error(), copy.needed()), (Some(28), Some(Bytes::mib(3))));
        let own = Error::from(io::Error::new(io::ErrorKind::UnexpectedEof, "3 bytes left"));
        assert_eq!(format!("{:?}", own.clone()), format!("{own:?}"));
    }

    #[test]
    fn message_and_hint_can_be_had_apart_or_on_one_line() {
        let error = Error::corrupt("3 bytes left").context("row 7");
        assert_eq!((error.one_line(), error.next_step()), (error.message(), None));
        let error = error.hint("import it again");
        assert_eq!(
            (&*error.message(), error.next_step()),
            ("row 7: 3 bytes left", Some(&Hint::from("import it again")))
        );
        assert_eq!(error.one_line(), "row 7: 3 bytes left; import it again");
    }

    #[test]
    fn a_full_device_is_its_own_kind() {
        let error = Error::from(io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(error.os_error(), Some(28));
    }

    #[test]
    fn too_few_file_handles_come_with_the_command_that_allows_more() {
        let error = Error::from(io::Error::from_raw_os_error(24));
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }
}
