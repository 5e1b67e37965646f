//! How a run makes its passes.

/// How a run makes its passes.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Threads that compute.
    pub threads: usize,
    /// Whether to read while others compute; without, one segment is read, then computed.
    pub buffering: bool,
    /// Whether to count what passes want.
    pub profile: bool,
    /// The profile of an earlier run, by which to choose what stays in memory.
    pub reads_by_segment: Option<Vec<u32>>,
}

impl StreamOptions {
    /// The defaults, with so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, buffering: true, profile: false, reads_by_segment: None }
    }
}
