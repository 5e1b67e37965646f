//! Graph algorithms written directly from their definitions, serial and slow, for comparison.

pub mod centrality;
pub mod communities;
pub mod components;
pub mod cores;
pub mod labels;
pub mod paths;
pub mod ranks;
pub mod strong;
pub mod triangles;
