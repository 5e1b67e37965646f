//! Import of triples: compared with a naive model, at every crash point, with any amount of memory.

#[path = "../altered/mod.rs"]
mod altered;
mod damage;
mod faults;
mod memory;
mod model;
mod numbering;
mod rules;
