//! Text files as rows of fields.
//!
//! One reader for all text input: edge lists, node tables, triples, labels and splits. [`detect()`]
//! examines a sample of at least 1,000 lines and returns the format, or refuses a file with an
//! ambiguous format. Edges ([`read_edges`]) and tables ([`Table`]) are then read in this
//! [`Dialect`]. A line that does not fit it is an error with the number of the line.
#![forbid(unsafe_code)]

mod cut;
mod detect;
mod dialect;
mod dimacs;
mod edges;
mod fields;
mod header;
mod kind;
mod layout;
mod market;
mod notation;
mod ntriples;
mod parse;
mod sample;
mod separator;
mod shown;
mod stated;
mod stream;
mod table;
mod words;

pub use detect::{Convention, Purpose, TextOptions, detect};
pub use dialect::{Dialect, Format, Gaps, Position};
pub use dimacs::Dimacs;
pub use edges::{EdgeBlock, EdgeSettings, read_edges};
pub use fields::Fields;
pub use kind::Kind;
pub use layout::EdgeLayout;
pub use market::Market;
pub use notation::{Mirror, Quotes, Separator};
pub use parse::out_of_range;
pub use shown::shown;
pub use stated::Stated;
pub use stream::{ByteStream, LineBlocks};
pub use table::{Cells, Column, Rows, Table, Texts, is_changed};

/// Ids of nodes are below this, because positions of nodes have 63 bits everywhere.
pub const MAX_NODES: u64 = (1 << 63) - 1;
