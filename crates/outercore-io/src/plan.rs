//! The read planner: turns a list of rows into cheap reads. Pure.

use std::ops::Range;

use outercore_core::Bytes;
use serde::{Deserialize, Serialize};

/// A range of a file for one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlannedRead {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

impl PlannedRead {
    /// Offset after the last byte.
    pub const fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

/// Position of an array's rows in its file: row `i` is `stride` bytes at `base + i * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Offset of row 0 in bytes.
    pub base: u64,
    /// Bytes per row, not zero; rows follow each other without gaps.
    pub stride: u64,
    /// Length of the file in bytes.
    pub file_len: u64,
}

/// Cost of reads on a busy device: a cost per request plus a cost per byte.
///
/// Made from a measured [`DeviceProfile`](crate::DeviceProfile); the default is a virtual SSD with
/// 70,000 reads of 4 KiB or 1.1 GB a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// Device seconds per request, without its bytes.
    pub seconds_per_request: f64,
    /// Device seconds per byte.
    pub seconds_per_byte: f64,
    /// Bytes are read in multiples of this; a power of two.
    pub granule: u32,
}

impl Default for CostModel {
    fn default() -> Self {
        let seconds_per_byte = 1.0 / 1.1e9;
        let seconds_per_request = 1.0 / 70e3 - 4096.0 * seconds_per_byte;
        Self { seconds_per_request, seconds_per_byte, granule: 4096 }
    }
}

impl CostModel {
    /// Device seconds of `requests` reads that bring `bytes` in total.
    pub fn seconds(&self, requests: u64, bytes: Bytes) -> f64 {
        requests as f64 * self.seconds_per_request + bytes.0 as f64 * self.seconds_per_byte
    }

    /// Device bytes of a read: whole granules, up to the end of the file.
    pub fn device_bytes(&self, read: &PlannedRead, file_len: u64) -> Bytes {
        let (start, end) = self.granules(read.offset, read.end(), file_len);
        Bytes(end - start)
    }

    /// Device seconds of a list of reads.
    pub fn seconds_of(&self, reads: &[PlannedRead], file_len: u64) -> f64 {
        let bytes = reads.iter().map(|read| self.device_bytes(read, file_len).0).sum();
        self.seconds(reads.len() as u64, Bytes(bytes))
    }

    /// The longest gap, in bytes, that is cheaper to read than to skip with another request.
    pub fn worthwhile_gap(&self) -> Bytes {
        // The conversion saturates: if bytes cost nothing, every gap is worth reading.
        Bytes((self.seconds_per_request / self.seconds_per_byte) as u64)
    }

    fn granules(&self, start: u64, end: u64, file_len: u64) -> (u64, u64) {
        let mask = u64::from(self.granule) - 1;
        (start & !mask, ((end + mask) & !mask).min(file_len).max(end))
    }
}

/// The reads that bring a list of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowPlan {
    /// In file order, without overlap. Each read covers the first byte of its first row to the last
    /// byte of its last row.
    pub reads: Vec<PlannedRead>,
    /// `rows[rows_of[i]]` lie in `reads[i]`; together the ranges cover all rows, in order.
    pub rows_of: Vec<Range<u32>>,
    /// Bytes of the rows, without gaps and alignment.
    pub useful_bytes: u64,
}

/// Plans the reads that bring `rows` (sorted, each once) under a cost model.
///
/// Two neighbouring rows share a read if reading the gap between them costs less than another
/// request; gaps within a granule cost nothing. Scattered rows therefore become page reads, and
/// dense rows become a stream of reads of `max_read`. A read grows to at most `max_read`, alignment
/// included; only a single longer row makes a longer read.
///
/// With `stride` 4 or 8 this plans the elements of an index array.
///
/// **Cost**: linear in the rows, a few nanoseconds each; memory only for the reads.
///
/// # Panics
/// If the granule is not a power of two, or a row has no bytes or 2 GiB or more, or there are 2^32
/// rows or more.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_io::{CostModel, RowLayout, plan_rows};
/// let layout = RowLayout { base: 4096, stride: 512, file_len: 4096 + 512 * 100_000 };
/// let plan = plan_rows(&[1, 3, 90_000], layout, &CostModel::default(), Bytes::mib(1));
/// assert_eq!(plan.rows_of, [0..2, 2..3]);
/// assert_eq!((plan.reads[0].offset, plan.reads[0].len), (4096 + 512, 3 * 512));
/// ```
///
/// **Source**: the caches of the papers (GIDS, section 3.4; Helios, section 4) read single pages.
/// Merging reads by a linear cost is our extension.
pub fn plan_rows(rows: &[u64], layout: RowLayout, cost: &CostModel, max_read: Bytes) -> RowPlan {
    let RowLayout { base, stride, file_len } = layout;
    assert!(cost.granule.is_power_of_two(), "granule {} is no power of two", cost.granule);
    assert!((1..1 << 31).contains(&stride), "rows of {stride} bytes");
    assert!(rows.len() < u32::MAX as usize, "{} rows in one plan", rows.len());
    debug_assert!(rows.is_sorted(), "rows are sorted");
    let max_read = max_read.0.min(1 << 31);
    let gap = cost.worthwhile_gap().0;
    let mut plan = RowPlan { useful_bytes: rows.len() as u64 * stride, ..RowPlan::default() };
    let Some(&first) = rows.first() else { return plan };

    let bytes_of = |row: u64| (base + row * stride, base + (row + 1) * stride);
    let mut first_place = 0;
    let (mut start, mut end) = bytes_of(first);
    let (mut device_start, mut device_end) = cost.granules(start, end, file_len);
    for (place, &row) in rows.iter().enumerate().skip(1) {
        let (row_start, row_end) = bytes_of(row);
        let (row_device_start, row_device_end) = cost.granules(row_start, row_end, file_len);
        let near = row_device_start.saturating_sub(device_end) <= gap;
        if near && row_device_end - device_start <= max_read {
            (end, device_end) = (row_end, row_device_end);
            continue;
        }
        plan.reads.push(PlannedRead { offset: start, len: (end - start) as u32 });
        plan.rows_of.push(first_place as u32..place as u32);
        (first_place, start, end) = (place, row_start, row_end);
        (device_start, device_end) = (row_device_start, row_device_end);
    }
    plan.reads.push(PlannedRead { offset: start, len: (end - start) as u32 });
    plan.rows_of.push(first_place as u32..rows.len() as u32);
    plan
}

/// Cuts one long range into reads of at most `max_read`, at multiples of the granule.
pub fn plan_range(range: Range<u64>, cost: &CostModel, max_read: Bytes) -> Vec<PlannedRead> {
    let granule = u64::from(cost.granule);
    let step = (max_read.0.min(1 << 31) / granule).max(1) * granule;
    let mut reads =
        Vec::with_capacity(((range.end.saturating_sub(range.start)) / step + 2) as usize);
    let mut offset = range.start;
    while offset < range.end {
        let end = (offset - offset % granule + step).min(range.end);
        reads.push(PlannedRead { offset, len: (end - offset) as u32 });
        offset = end;
    }
    reads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Device seconds of a read from `start` to `end`.
    fn seconds(cost: &CostModel, start: u64, end: u64, file_len: u64) -> f64 {
        let read = PlannedRead { offset: start, len: (end - start) as u32 };
        cost.seconds_of(&[read], file_len)
    }

    #[derive(Clone, Debug)]
    struct Case {
        rows: Vec<u64>,
        layout: RowLayout,
        cost: CostModel,
        max_read: Bytes,
    }

    fn cases() -> impl Strategy<Value = Case> {
        let shape = (
            prop::sample::select(vec![4u64, 8, 12, 400, 512, 3000, 4096, 10_000]),
            prop::sample::select(vec![0u64, 128, 4096]),
            1u64..20_000,
            0.001f64..1.0,
        );
        let device = (
            prop::sample::select(vec![0.0, 1e-6, 1e-5, 1e-3]),
            prop::sample::select(vec![1u32, 512, 4096]),
            prop::sample::select(vec![4096u64, 20_000, 1 << 20]),
        );
        (shape, device, any::<u64>()).prop_map(
            |((stride, base, count, density), (seconds_per_request, granule, max_read), seed)| {
                let draws = outercore_core::Stream::new(seed, 0);
                let rows =
                    (0..count).filter(|&row| draws.uniform(0, 0, row).unit() < density).collect();
                let layout = RowLayout { base, stride, file_len: base + count * stride };
                let cost = CostModel { seconds_per_request, seconds_per_byte: 1e-9, granule };
                Case { rows, layout, cost, max_read: Bytes(max_read) }
            },
        )
    }

    proptest! {
        #[test]
        fn every_row_lies_in_its_read_and_reads_never_overlap(case in cases()) {
            let Case { rows, layout, cost, max_read } = case;
            let plan = plan_rows(&rows, layout, &cost, max_read);
            prop_assert_eq!(plan.reads.len(), plan.rows_of.len());
            let mut next_row = 0;
            let mut last_end = 0;
            for (read, range) in plan.reads.iter().zip(&plan.rows_of) {
                prop_assert_eq!(range.start, next_row);
                prop_assert!(range.end > range.start);
                next_row = range.end;
                prop_assert!(read.offset >= last_end, "sorted and apart");
                last_end = read.end();
                let covered = &rows[range.start as usize..range.end as usize];
                let (first, last) = (covered[0], covered[covered.len() - 1]);
                prop_assert_eq!(read.offset, layout.base + first * layout.stride);
                prop_assert_eq!(read.end(), layout.base + (last + 1) * layout.stride);
                prop_assert!(read.end() <= layout.file_len);
                let device = cost.device_bytes(read, layout.file_len);
                prop_assert!(device <= max_read || covered.len() == 1, "{device} in a read");
            }
            prop_assert_eq!(next_row as usize, rows.len());
            prop_assert_eq!(plan.useful_bytes, rows.len() as u64 * layout.stride);
        }

        #[test]
        fn no_plan_costs_more_than_one_read_per_row(case in cases()) {
            let Case { rows, layout, cost, max_read } = case;
            let plan = plan_rows(&rows, layout, &cost, max_read);
            let each: f64 = rows
                .iter()
                .map(|row| layout.base + row * layout.stride)
                .map(|start| seconds(&cost, start, start + layout.stride, layout.file_len))
                .sum();
            let planned = cost.seconds_of(&plan.reads, layout.file_len);
            prop_assert!(planned <= each * (1.0 + 1e-9), "{planned} > {each}");
        }

        #[test]
        fn no_plan_costs_more_than_a_stream_of_all(case in cases()) {
            let Case { rows, layout, cost, max_read } = case;
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
            let plan = plan_rows(&rows, layout, &cost, max_read);
            let all: Vec<u64> = (*first..=*last).collect();
            let stream = CostModel { seconds_per_byte: 0.0, ..cost };
            let stream = plan_rows(&all, layout, &stream, max_read);
            let streamed = cost.seconds_of(&stream.reads, layout.file_len);
            let planned = cost.seconds_of(&plan.reads, layout.file_len);
            // If rows straddle granules, the plan may cut at other rows than the stream does. It
            // then reads the granules at its cuts twice.
            let straddling = u64::from(cost.granule) % layout.stride != 0
                && layout.stride % u64::from(cost.granule) != 0
                || layout.base % u64::from(cost.granule) != 0;
            let cuts = if straddling { plan.reads.len() as f64 } else { 0.0 };
            let slack = cuts * f64::from(cost.granule) * cost.seconds_per_byte;
            prop_assert!(planned <= streamed * (1.0 + 1e-9) + slack, "{planned} > {streamed}");
        }

        #[test]
        fn a_range_is_cut_without_gaps(
            start in 0u64..100_000, len in 0u64..1_000_000, max_read in 1u64..200_000,
        ) {
            let reads = plan_range(start..start + len, &CostModel::default(), Bytes(max_read));
            let mut next = start;
            for read in &reads {
                prop_assert_eq!(read.offset, next);
                prop_assert!(read.len > 0 && u64::from(read.len) <= max_read.max(4096));
                next = read.end();
            }
            prop_assert_eq!(next, start + len);
        }
    }

    #[test]
    fn scattered_rows_are_page_reads_and_dense_ones_a_stream() {
        let layout = RowLayout { base: 4096, stride: 512, file_len: 4096 + (512 << 20) };
        let cost = CostModel::default();
        let scattered: Vec<u64> = (0..1000).map(|row| row * 1000).collect();
        assert_eq!(plan_rows(&scattered, layout, &cost, Bytes::mib(1)).reads.len(), 1000);
        let dense: Vec<u64> = (0..16_384).map(|row| row * 4).collect();
        let plan = plan_rows(&dense, layout, &cost, Bytes::mib(1));
        assert_eq!(plan.reads.len(), 32, "32 MiB in reads of 1 MiB");
    }

    #[test]
    fn no_rows_need_no_reads() {
        let layout = RowLayout { base: 0, stride: 4, file_len: 0 };
        assert_eq!(plan_rows(&[], layout, &CostModel::default(), Bytes(4096)), RowPlan::default());
    }
}
