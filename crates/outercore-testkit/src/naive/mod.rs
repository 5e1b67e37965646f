//! Graph algorithms straight from their definitions, serial and slow, to compare with.

pub mod centrality;
pub mod communities;
pub mod components;
pub mod cores;
pub mod labels;
pub mod paths;
pub mod ranks;
pub mod strong;
pub mod triangles;
