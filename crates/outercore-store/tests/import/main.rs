//! The edge import against a naive one in memory, under every option, fault and kind of input.

mod faults;
mod input;
mod model;
mod options;
