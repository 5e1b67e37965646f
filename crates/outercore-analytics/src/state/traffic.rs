//! What a step reads and writes of a partition's state.

/// What of a partition's state a step looks at. The rest is not read from scratch files; it is then
/// a blank value, whose columns are zeros (`shown`, `own`) or which holds nothing at all (`fixed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// What the partition shows, when it is opened.
    pub open_shown: bool,
    /// What is fixed, when it is opened.
    pub open_fixed: bool,
    /// What is its own. Without, a sweep makes it anew.
    pub open_own: bool,
    /// What the partition has shown so far, when it is closed.
    pub close_shown: bool,
    /// What is fixed, when it is closed.
    pub close_fixed: bool,
}
