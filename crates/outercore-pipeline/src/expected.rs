//! The seconds of an epoch, from its expected reads and the measured cost of each stage. Pure.

use outercore_io::CostModel;
use serde::{Deserialize, Serialize};

use crate::forecast::{EpochForecast, Forecast};
use crate::stages::PINNED_GROUPS;

/// Seconds of a stage without other load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Time of the stage.
    pub wall_s: f64,
    /// Processor time, summed over all cores.
    pub processor_s: f64,
}

/// Measured costs: of a batch, except `fetch`, which is for all batches of the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Sampling a batch.
    pub sample: Cost,
    /// Fetching the rows of the trial.
    pub fetch: Cost,
    /// Read requests of the trial.
    pub requests: u64,
    /// Bytes read by the trial.
    pub bytes: u64,
    /// Assembling a batch.
    pub assemble: Cost,
    /// A training step.
    pub train: Cost,
    /// Cores that the process gets while other programs run.
    pub cores: f64,
}

/// The forecast for one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpectedEpoch {
    /// Time of the epoch.
    pub seconds: f64,
    /// The resource with the longest time.
    pub bottleneck: &'static str,
    /// Share of row accesses that need no read.
    pub hit_ratio: f64,
    /// Feature rows read.
    pub rows_read: u64,
    /// Read requests.
    pub requests: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Sampling, without other load; as the following.
    pub sample_s: f64,
    /// Fetching.
    pub fetch_s: f64,
    /// Assembling.
    pub assemble_s: f64,
    /// Training steps.
    pub train_s: f64,
    /// Processor time of all stages, divided by the cores.
    pub processor_s: f64,
    /// The device.
    pub device_s: f64,
}

/// The forecast for a loader.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// Batches of an epoch.
    pub batches: u64,
    /// Examined batches.
    pub traced_batches: u64,
    /// Nodes of a batch.
    pub nodes_per_batch: f64,
    /// Edges of a batch.
    pub edges_per_batch: f64,
    /// Seconds in which the first epoch fills the constant part.
    pub fill_s: f64,
    /// The first epoch.
    pub first_epoch: ExpectedEpoch,
    /// A later epoch.
    pub later_epochs: ExpectedEpoch,
}

impl Forecast {
    /// The times of epochs, by the measured costs.
    #[must_use]
    pub fn expect(&self, measured: &Measured) -> Expected {
        let device_s = device_seconds(&self.cost, measured.requests as f64, measured.bytes as f64);
        // Fetching for each second that the cost model gives the device.
        let fetch = if device_s > 0.0 {
            let Cost { wall_s, processor_s } = measured.fetch;
            Cost { wall_s: wall_s / device_s, processor_s: processor_s / device_s }
        } else {
            Cost { wall_s: 1.0, processor_s: 0.0 }
        };
        let mut first_epoch = self.epoch(&self.first, measured, fetch);
        let fill_s = self.fill.device_s * fetch.wall_s;
        first_epoch.seconds += fill_s;
        first_epoch.bytes += whole(self.fill.bytes);
        first_epoch.requests += whole(self.fill.requests);
        Expected {
            batches: self.batches,
            traced_batches: self.traced,
            nodes_per_batch: self.nodes_per_batch,
            edges_per_batch: self.edges_per_batch,
            fill_s,
            first_epoch,
            later_epochs: self.epoch(&self.later, measured, fetch),
        }
    }

    fn epoch(&self, epoch: &EpochForecast, measured: &Measured, fetch: Cost) -> ExpectedEpoch {
        let (batches, rows) = (self.batches as f64, &epoch.rows);
        let Measured { sample, assemble, train, cores, .. } = *measured;
        let sample_s = batches * sample.wall_s;
        let fetch_s = rows.device_s * fetch.wall_s;
        let (assemble_s, train_s) = (batches * assemble.wall_s, batches * train.wall_s);
        let of_batch = sample.processor_s + assemble.processor_s + train.processor_s;
        let processor_s = (batches * of_batch + rows.device_s * fetch.processor_s) / cores;
        let groups = self.batches.div_ceil(u64::from(self.group.max(1))).max(1);
        let of_group = |seconds: f64| seconds / groups as f64;
        let stages = [of_group(sample_s), of_group(fetch_s), of_group(assemble_s + train_s)];
        let waiting = pipeline_seconds(groups as usize, stages, self.look_ahead as usize);
        // A topology on disk is read from the same device as the features.
        let topology_s = device_seconds(&self.cost, epoch.topology_requests, epoch.topology_bytes);
        let device_s = fetch_s + topology_s.min(sample_s);
        let mut longest = ("sampling", sample_s);
        for resource in [
            ("device", device_s),
            ("assembling", assemble_s),
            ("model", train_s),
            ("processor", processor_s),
        ] {
            if resource.1 > longest.1 {
                longest = resource;
            }
        }
        ExpectedEpoch {
            seconds: waiting.max(processor_s).max(device_s),
            bottleneck: longest.0,
            hit_ratio: epoch.hit_ratio,
            rows_read: whole(rows.misses),
            requests: whole(rows.requests + epoch.topology_requests),
            bytes: whole(rows.bytes + epoch.topology_bytes),
            sample_s,
            fetch_s,
            assemble_s,
            train_s,
            processor_s,
            device_s,
        }
    }
}

fn device_seconds(cost: &CostModel, requests: f64, bytes: f64) -> f64 {
    requests * cost.seconds_per_request + bytes * cost.seconds_per_byte
}

fn whole(count: f64) -> u64 {
    count.round_ties_even() as u64
}

/// Seconds of an epoch of `groups` groups, from the seconds of a group in each stage: sampling,
/// fetching, consuming.
///
/// The fetch of a group starts when three conditions hold: the previous group is fetched,
/// `look_ahead` further groups are sampled, and at most one other group is being consumed. Groups
/// are consumed in order.
fn pipeline_seconds(groups: usize, stages: [f64; 3], look_ahead: usize) -> f64 {
    let [sample_s, fetch_s, consume_s] = stages;
    let (mut fetched, mut consumed) = (0.0f64, vec![0.0f64; groups]);
    for group in 0..groups {
        let sampled = sample_s * (group + 1 + look_ahead).min(groups) as f64;
        let held = group.checked_sub(PINNED_GROUPS).map_or(0.0, |held| consumed[held]);
        let before = group.checked_sub(1).map_or(0.0, |before| consumed[before]);
        fetched = sampled.max(fetched).max(held) + fetch_s;
        consumed[group] = fetched.max(before) + consume_s;
    }
    consumed.last().copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::RowReads;

    #[test]
    fn a_pipeline_is_as_slow_as_its_slowest_stage() {
        // Two groups are sampled, then one after the other fetched, then the last one consumed.
        assert_eq!(pipeline_seconds(4, [1.0, 2.0, 0.5], 1), 2.0 + 4.0 * 2.0 + 0.5);
        // The fourth group is sampled after 4 s, fetched and consumed.
        assert_eq!(pipeline_seconds(4, [1.0, 0.25, 0.5], 0), 4.0 + 0.25 + 0.5);
        // The consumer begins after 1.25 s and never waits.
        assert_eq!(pipeline_seconds(4, [1.0, 0.25, 3.0], 0), 1.25 + 4.0 * 3.0);
        assert_eq!(pipeline_seconds(1, [1.0, 2.0, 4.0], 3), 7.0);
    }

    /// An epoch of 10 batches in groups of one, whose features take the device 4 s. In the trial,
    /// fetching took half as long again as the cost model says.
    fn epoch(topology_requests: f64, costs: Measured) -> ExpectedEpoch {
        let rows = RowReads {
            device_s: 4.0,
            misses: 1000.0,
            requests: 500.0,
            bytes: 4e6,
            accesses: 4000.0,
            ..RowReads::default()
        };
        let later =
            EpochForecast { rows, hit_ratio: 0.75, topology_requests, ..EpochForecast::default() };
        let cost =
            CostModel { seconds_per_request: 0.01, seconds_per_byte: 0.0, ..CostModel::default() };
        let forecast = Forecast { batches: 10, group: 1, cost, later, ..Forecast::default() };
        let fetch = Cost { wall_s: 1.5, processor_s: 0.5 };
        forecast.expect(&Measured { fetch, requests: 100, cores: 2.0, ..costs }).later_epochs
    }

    fn cost(wall_s: f64, processor_s: f64) -> Cost {
        Cost { wall_s, processor_s }
    }

    #[test]
    fn an_epoch_waits_for_the_device_the_model_or_the_processor() {
        let near = |seconds: f64, expected: f64| (seconds - expected).abs() < 1e-9;
        let alone = epoch(0.0, Measured::default());
        assert!(near(alone.seconds, 6.0), "{alone:?}");
        assert_eq!((alone.bottleneck, alone.hit_ratio, alone.rows_read), ("device", 0.75, 1000));

        // The first batch is fetched in 0.6 s; then ten steps of a second.
        let model = epoch(0.0, Measured { train: cost(1.0, 1.0), ..Measured::default() });
        assert!(near(model.seconds, 10.6) && model.bottleneck == "model", "{model:?}");

        // 10 x 2.8 s and 2 s for fetching, on two cores.
        let (sample, train) = (cost(0.5, 1.0), cost(0.9, 1.8));
        let both = epoch(0.0, Measured { sample, train, ..Measured::default() });
        assert!(near(both.seconds, 15.0) && both.bottleneck == "processor", "{both:?}");

        // 3 s of the device by the cost model, but no more than sampling took.
        let paged = epoch(300.0, Measured { sample: cost(0.2, 0.01), ..Measured::default() });
        assert!(near(paged.seconds, 8.0) && paged.bottleneck == "device", "{paged:?}");
        assert_eq!(paged.requests, 800);
    }
}
