//! A graph that changes while it is used: a log of updates, snapshots in memory, and folding of the
//! log into new arrays.
//!
//! Layer 5. `docs/format.md`, section 11, specifies the bytes; `docs/design/0022-live-graph.md`
//! gives the reasons.
#![forbid(unsafe_code)]

mod answers;
mod committer;
mod fold;
mod graph;
mod layouts;
mod log;
mod open;
mod replay;
mod watch;

pub use answers::Ack;
pub use committer::{Committer, NEW_NODE, REPLAY_MEMORY, Snapshot, Write, fold_snapshot, resolve};
pub use fold::KeepGoing;
pub use graph::{LiveConfig, LiveGraph, LiveStatus};
pub use open::{WRITER_MEMORY, answer, open, open_on, refuse, requests, verify};
pub use watch::{Commit, Unwatched, Watch};
