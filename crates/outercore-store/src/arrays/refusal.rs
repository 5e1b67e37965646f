//! Why an array's values are refused.

use outercore_core::Error;

pub(super) struct Refusal {
    pub what: String,
    pub hint: &'static str,
}

impl Refusal {
    pub fn error(&self) -> Error {
        Error::invalid(self.what.as_str()).hint(self.hint)
    }
}
