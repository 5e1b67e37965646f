//! Orders of rows: which nodes' rows stand next to each other.

use serde::{Deserialize, Serialize};

/// How rows are ordered, with what decides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "lowercase", deny_unknown_fields)]
pub enum Order {
    /// By node id.
    #[default]
    None,
}
