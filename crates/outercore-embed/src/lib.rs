//! Trains embeddings of graphs whose tables do not fit in memory: partitions of nodes, the order in
//! which they are loaded, the cost of an order, and the executor that follows it.
//!
//! Layer 5. Orders and plans are pure: they compute what is in memory and when, and move no data.
#![forbid(unsafe_code)]

mod answers;
pub mod buckets;
pub mod executor;
mod initial;
mod journal;
pub mod layout;
pub mod order;
mod partition;
pub mod placement;
pub mod plan;
mod step;
pub mod walk;

pub use answers::{Asked, KnownAnswers};
pub use buckets::{
    ArrayTripleReader, ArrayTriples, BucketCounts, Buckets, GraphLinks, GraphTriples, HeldOut,
    LinkReader, MemoryTriples, OnProgress, PartTriples, Pass, PoolReader, Pools, TriplePart,
    TriplePool, TripleReader, Triples, build_buckets,
};
pub use executor::{Executor, ExecutorCounters, ExecutorMemory, SlotViews, plan_memory};
pub use initial::{Spread, initial_rows};
pub use journal::Position;
pub use layout::{Dealer, Partitioning, Place, TableLayout};
pub use order::{
    Bucket, MAX_PARTITIONS, Order, OrderConfig, OrderFacts, OrderKind, State, Swap, SwapMode,
    check, iteration_order, lower_bound, partition_order,
};
pub use partition::Fill;
pub use plan::{BucketEdges, Hiding, OrderPlan, PlanInput, plan_order};
pub use step::{Resident, Step};
pub use walk::{EpochVisits, MAX_SWEEPS, Share, Visit, Visits, Walk, WalkConfig, WalkState, Walks};
