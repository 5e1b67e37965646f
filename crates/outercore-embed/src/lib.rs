//! Embedding a graph whose vectors do not fit in memory: partitions of nodes, the order in which
//! they come into memory, and what that order costs.
//!
//! Layer 5. Orders and plans are pure: they say what is in memory when, and move no bytes.
#![forbid(unsafe_code)]

pub mod order;
pub mod plan;

pub use order::{
    Bucket, MAX_PARTITIONS, Order, OrderConfig, OrderFacts, OrderKind, State, Swap, SwapMode,
    check, iteration_order, lower_bound, partition_order,
};
pub use plan::{BucketEdges, Hiding, OrderPlan, PlanInput, plan_order};
