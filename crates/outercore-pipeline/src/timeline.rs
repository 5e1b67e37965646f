//! Records when each stage worked on which item, for the timeline of the report.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Most spans kept per epoch; later ones are only counted.
const MAX_SPANS: usize = 4096;

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Neighbour sampling and grouping.
    Sample,
    /// Reading rows.
    Fetch,
    /// Gathering rows into a batch.
    Assemble,
}

/// An interval of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The stage that worked.
    pub stage: Stage,
    /// Number of the group (or, for `Assemble`, of the batch).
    pub item: u64,
    /// Seconds since the loader was opened.
    pub start_s: f64,
    /// Seconds since the loader was opened.
    pub end_s: f64,
}

/// A bounded list of spans on one clock.
#[derive(Clone, Debug)]
pub struct Timeline {
    origin: Instant,
    spans: Vec<Span>,
    dropped: u64,
}

impl Timeline {
    /// An empty timeline; its clock starts immediately.
    pub fn start() -> Self {
        Self { origin: Instant::now(), spans: Vec::new(), dropped: 0 }
    }

    /// Seconds since the start.
    pub fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    /// Adds a span that ends at this moment; after a few thousand spans, only counts it.
    pub fn record(&mut self, stage: Stage, item: u64, start_s: f64) {
        if self.spans.len() == MAX_SPANS {
            self.dropped += 1;
            return;
        }
        let end_s = self.now();
        self.spans.push(Span { stage, item, start_s, end_s });
    }

    /// Takes the spans recorded since the last call, and the number of dropped spans.
    pub fn take(&mut self) -> (Vec<Span>, u64) {
        (std::mem::take(&mut self.spans), std::mem::take(&mut self.dropped))
    }
}
