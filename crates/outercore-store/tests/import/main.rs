//! The edge import against a naive one in memory, under every option, fault and kind of input.

mod faults;
mod graph;
mod input;
mod memory;
mod model;
mod options;
mod overwrite;
