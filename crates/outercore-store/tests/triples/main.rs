//! Import of triples: against a naive model, over every crash point, in any memory.

#[path = "../altered/mod.rs"]
mod altered;
mod damage;
mod faults;
mod memory;
mod model;
mod rules;
