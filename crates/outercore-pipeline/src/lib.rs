//! Delivers mini-batches from a data set under a memory budget: the memory plan, the run-ahead
//! pipeline (sample, fetch, assemble) and its counters.
//!
//! Layer 5. The unit of I/O is the **group**: consecutive batches that are sampled together hop by
//! hop, with one sorted read plan for all their rows. The unit of delivery is the batch. The
//! content of a batch never depends on the grouping, the budget or the number of threads.
#![forbid(unsafe_code)]

mod arrays;
mod config;
mod counters;
mod degrees;
mod expected;
mod far;
mod features;
mod fetch;
mod forecast;
mod group;
mod hot;
mod loader;
mod plan;
mod prepare;
mod requests;
mod room;
mod row_cache;
mod row_space;
mod rows;
mod rules;
mod sampling;
mod seed_list;
mod share;
mod spare;
mod spare_rows;
mod stages;
mod timeline;
mod trial;

pub use arrays::ArraysPlan;
pub use config::{FeatureChoice, Hotness, LoaderConfig, TopologyMode};
pub use counters::Counters;
pub use expected::{Cost, Expected, ExpectedEpoch, Measured};
pub use features::RowSource;
pub use forecast::{EpochForecast, Forecast, RowReads};
pub use loader::{Advance, Batch, Epoch, Loader};
pub use outercore_layout::Precision;
pub use outercore_sample::rules::Method;
pub use plan::{FarPlan, MemoryPlan, PlanInput, Split};
pub use requests::{
    Ask, Degrees, Features, Neighbourhood, RequestConfig, RequestCounters, Requests, Sharing,
};
pub use rows::RowArena;
pub use seed_list::SeedList;
pub use spare::SpareIds;
pub use spare_rows::{RowMemory, SpareRows};
pub use timeline::{Span, Stage, Timeline};
