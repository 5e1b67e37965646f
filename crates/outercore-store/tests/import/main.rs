//! Compares the edge import with a naive import in memory, under all options, faults and kinds of
//! input.

mod faults;
mod graph;
mod input;
mod memory;
mod model;
mod options;
mod overwrite;
