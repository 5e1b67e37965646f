//! Arithmetic of embeddings and of sums over neighbours on a CPU: what a matrix product cannot do,
//! and what would otherwise pass over memory several times.
//!
//! Layer 1. Pure functions of slices: no file, no table, no model. Vector instructions are chosen
//! at run time. A result depends on its input and on the instructions of the machine, never on the
//! number of threads.
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
