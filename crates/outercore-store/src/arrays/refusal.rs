//! Errors for refused values of an array.

use outercore_core::{Error, Hint};

pub(super) struct Refusal {
    pub what: String,
    pub hint: Hint,
}

impl Refusal {
    pub fn error(&self) -> Error {
        Error::invalid(self.what.as_str()).hint(self.hint.clone())
    }
}
