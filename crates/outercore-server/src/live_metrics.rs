//! Metrics of updates.

use std::time::Duration;

use outercore_live::{Commit, LiveStatus, Watch};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::gauges::{Level, counts, seconds};

/// Metrics of a graph that takes updates; all clones share the counts.
#[derive(Clone)]
pub struct LiveMetrics {
    updates: Counter,
    update: Histogram,
    commit: Histogram,
    commit_records: Histogram,
    commit_bytes: Counter,
    commit_failures: Counter,
    compaction: Histogram,
    compaction_failures: Counter,
    compacted_lsn: Level,
    memory: Level,
    log: Level,
    writes_fail: Level,
}

impl Default for LiveMetrics {
    fn default() -> Self {
        Self {
            updates: Counter::default(),
            update: seconds(),
            commit: seconds(),
            commit_records: counts(),
            commit_bytes: Counter::default(),
            commit_failures: Counter::default(),
            compaction: seconds(),
            compaction_failures: Counter::default(),
            compacted_lsn: Level::default(),
            memory: Level::default(),
            log: Level::default(),
            writes_fail: Level::default(),
        }
    }
}

impl LiveMetrics {
    /// Registers the metrics in `all`.
    pub fn register(&self, all: &mut Registry) {
        all.register("updates", "Durable updates", self.updates.clone());
        let text = "From an update request to its acknowledgement";
        all.register_with_unit("update", text, Unit::Seconds, self.update.clone());
        let text = "One write and one sync of the log";
        all.register_with_unit("commit", text, Unit::Seconds, self.commit.clone());
        let text = "Records that one sync made durable";
        all.register("commit_records", text, self.commit_records.clone());
        let text = "Bytes written to the log";
        all.register_with_unit("commit", text, Unit::Bytes, self.commit_bytes.clone());
        let text = "Commits that failed";
        all.register("commit_failures", text, self.commit_failures.clone());
        let text = "Compactions: the log into new arrays";
        all.register_with_unit("compaction", text, Unit::Seconds, self.compaction.clone());
        let text = "Compactions that failed";
        all.register("compaction_failures", text, self.compaction_failures.clone());
        let text = "Number of the last update in the arrays";
        all.register("graph_compacted_lsn", text, self.compacted_lsn.clone());
        let text = "Memory for changes that is taken";
        all.register_with_unit("graph_changes", text, Unit::Bytes, self.memory.clone());
        let text = "Last segment of the log";
        all.register_with_unit("graph_log", text, Unit::Bytes, self.log.clone());
        let text = "1 while updates fail, else 0";
        all.register("graph_writes_fail", text, self.writes_fail.clone());
    }

    /// Counts an acknowledged update request.
    pub fn acknowledged(&self, took: Duration) {
        self.update.observe(took.as_secs_f64());
    }

    /// Sets the gauges from the status of the graph.
    pub fn note(&self, status: &LiveStatus) {
        self.compacted_lsn.set(status.folded);
        self.memory.set(status.memory.0);
        self.log.set(status.log.0);
        self.writes_fail.set(u64::from(status.failure.is_some()));
    }
}

impl Watch for LiveMetrics {
    fn committed(&self, commit: &Commit) {
        if commit.failed {
            self.commit_failures.inc();
        } else if commit.records > 0 {
            self.updates.inc_by(commit.updates);
            self.commit.observe(commit.took.as_secs_f64());
            self.commit_records.observe(commit.records as f64);
            self.commit_bytes.inc_by(commit.bytes.0);
        }
    }

    fn folded(&self, took: Duration, failed: bool) {
        match failed {
            true => drop(self.compaction_failures.inc()),
            false => self.compaction.observe(took.as_secs_f64()),
        }
    }
}
