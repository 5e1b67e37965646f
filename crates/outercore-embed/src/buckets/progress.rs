//! Telling how far a pass over triples has come.

use outercore_core::Result;

/// Told what is done to triples, to how many it is done already, and how many there are; an error
/// ends the work.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64) -> Result<()>;

/// A pass that tells of itself now and then.
pub struct Pass<'a> {
    told: OnProgress<'a>,
    what: &'static str,
    done: u64,
    total: u64,
    /// When it tells again.
    next: u64,
}

impl<'a> Pass<'a> {
    /// Triples between two calls: whoever listens may be slow.
    const EVERY: u64 = 1 << 18;

    /// A pass over `total` triples.
    ///
    /// # Errors
    /// Those of `told`.
    pub fn begin(what: &'static str, total: u64, told: OnProgress<'a>) -> Result<Self> {
        let mut pass = Self { told, what, done: 0, total, next: 0 };
        pass.add(0)?;
        Ok(pass)
    }

    /// So many triples more are done.
    ///
    /// # Errors
    /// Those of `told`.
    pub fn add(&mut self, count: u64) -> Result<()> {
        self.done += count;
        if self.done < self.next {
            return Ok(());
        }
        self.next = (self.done + Self::EVERY).min(self.total.max(self.done + 1));
        (self.told)(self.what, self.done, self.total)
    }
}
