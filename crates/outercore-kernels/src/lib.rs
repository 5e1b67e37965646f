//! Arithmetic for embeddings and for sums over neighbours on a CPU: operations that are not matrix
//! products, or that would otherwise need several passes over memory.
//!
//! Layer 1. Pure functions of slices, without files, tables or models. Vector instructions are
//! selected at run time. A result depends on its input and on the machine's instructions, never on
//! the number of threads.
#![forbid(unsafe_code)]

mod alike;
mod batch;
mod compare;
mod distance;
mod divide;
mod draw;
mod euclidean;
mod incoming;
mod known;
mod lanes;
mod likeness;
mod loss;
mod model;
mod neighbours;
mod parallel;
mod product;
mod rows;
mod scalar;
mod uses;

pub use alike::{Alike, Groups, alike};
pub use batch::{Batch, Chunk, Objective, Questions, Table, Workspace, train_batch};
pub use compare::{Anchors, Asked, Comparisons, Shared};
pub use distance::{Distance, distance_scores};
pub use divide::{Askers, divide};
pub use draw::{Drawn, Occasion, Population, draw};
pub use incoming::{Block, Id, Incoming};
pub use known::Known;
pub use likeness::{Likeness, add_alike};
pub use loss::Loss;
pub use model::{Model, Norm, Size};
pub use neighbours::{Attention, add_neighbours, attention_totals};
pub use parallel::in_pool;
pub use rows::{Step, step_rows};
