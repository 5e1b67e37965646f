//! Options for the passes of a run.

/// Options for the passes of a run.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Number of computing threads.
    pub threads: usize,
    /// Whether to read while other threads compute; otherwise each segment is read, then computed.
    pub buffering: bool,
    /// Whether to count how often passes need each segment.
    pub profile: bool,
    /// The profile of an earlier run, for choosing the segments that stay in memory.
    pub reads_by_segment: Option<Vec<u32>>,
}

impl StreamOptions {
    /// The defaults, with this number of threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, buffering: true, profile: false, reads_by_segment: None }
    }
}
