//! Splits lines into fields according to the dialect of their text.

use outercore_core::Result;

use crate::dialect::{Dialect, Format};
use crate::fields::Fields;
use crate::ntriples;

impl Fields {
    /// Finds the fields of a line without its line end; returns their number. Blanks around a field
    /// are removed.
    ///
    /// # Errors
    /// `Invalid`: an unclosed quote, or a line that is not an N-Triples statement.
    pub fn cut(&mut self, line: &[u8], dialect: &Dialect) -> Result<usize> {
        match dialect.format {
            Format::Delimited | Format::MatrixMarket(_) => {
                self.split(line, dialect.separator, dialect.quotes)
            }
            Format::Dimacs(dimacs) => {
                self.split(line, dialect.separator, dialect.quotes)?;
                if dimacs.has_letter(self.places.first().map(|at| &line[at.start..at.end])) {
                    self.places.remove(0);
                }
                Ok(self.places.len())
            }
            Format::NTriples => {
                self.clear();
                ntriples::cut(line, self)?;
                Ok(self.places.len())
            }
        }
    }
}
