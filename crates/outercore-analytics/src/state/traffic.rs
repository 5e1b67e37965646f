//! The state of a partition that a step reads and writes.

/// The parts of a partition's state that a step uses. Other parts are not read from scratch files;
/// they are then blank values, with zeros in their columns (`shown`, `own`) or without columns
/// (`fixed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The partition's shown state, when it is opened.
    pub open_shown: bool,
    /// Its fixed state, when it is opened.
    pub open_fixed: bool,
    /// Its own state. If `false`, a sweep creates it anew.
    pub open_own: bool,
    /// The partition's previous shown state, when it is closed.
    pub close_shown: bool,
    /// Its fixed state, when it is closed.
    pub close_fixed: bool,
}
