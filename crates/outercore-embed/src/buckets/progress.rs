//! Progress of a pass over triples.

use outercore_core::Result;

/// Progress callback: name of the pass, triples done, total triples. An error stops the work.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64) -> Result<()>;

/// A pass that reports its progress from time to time.
pub struct Pass<'a> {
    told: OnProgress<'a>,
    what: &'static str,
    done: u64,
    total: u64,
    /// Number of triples at which the next report is due.
    next: u64,
}

impl<'a> Pass<'a> {
    /// Triples between two reports, because the callback may be slow.
    const EVERY: u64 = 1 << 18;

    /// Starts a pass over `total` triples.
    ///
    /// # Errors
    /// Errors of `told`.
    pub fn begin(what: &'static str, total: u64, told: OnProgress<'a>) -> Result<Self> {
        let mut pass = Self { told, what, done: 0, total, next: 0 };
        pass.add(0)?;
        Ok(pass)
    }

    /// Counts `count` more triples as done.
    ///
    /// # Errors
    /// Errors of `told`.
    pub fn add(&mut self, count: u64) -> Result<()> {
        self.done += count;
        if self.done < self.next {
            return Ok(());
        }
        self.next = (self.done + Self::EVERY).min(self.total.max(self.done + 1));
        (self.told)(self.what, self.done, self.total)
    }
}
