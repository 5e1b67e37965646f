use outercore_core::{Bytes, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::arc::{Arc, Narrow, Wide};
use super::histogram::Histogram;
use super::options::Tuning;

/// The arcs into a range of nodes; the range begins at the end of the previous bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bucket {
    /// The first node of the next bucket: a multiple of the granule, or the number of nodes.
    pub end: u64,
    /// The exact number of arcs that the partition phase writes to this bucket.
    pub arcs: u64,
}

/// The division of arcs into buckets. It is recorded in the journal, so that a resumed run with
/// another budget uses the same buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub num_nodes: u64,
    pub input_edges: u64,
    /// Number of self-loops in the input.
    pub loops: u64,
    /// Number of arcs before duplicates are dropped and self-loops are added.
    pub arcs: u64,
    /// Whether ids need more than 32 bits.
    pub wide: bool,
    /// log2 of the number of nodes in a granule.
    pub shift: u32,
    pub buckets: Vec<Bucket>,
}

impl Plan {
    /// Divides the nodes so that each bucket stays within `limits`, according to the histogram.
    pub fn new(
        histogram: &Histogram,
        num_nodes: u64,
        input_edges: u64,
        wide: bool,
        limits: BucketLimits,
    ) -> Self {
        let shift = histogram.shift();
        let mut buckets = Vec::new();
        let (mut start, mut arcs) = (0, 0);
        for (granule, &count) in histogram.granules(num_nodes).iter().enumerate() {
            let begin = (granule as u64) << shift;
            let end = (begin + (1 << shift)).min(num_nodes);
            let full = arcs + count > limits.arcs || end - start > limits.nodes;
            if full && begin > start {
                buckets.push(Bucket { end: begin, arcs });
                (start, arcs) = (begin, 0);
            }
            arcs += count;
        }
        buckets.push(Bucket { end: num_nodes, arcs });
        let loops = histogram.loops();
        let arcs = histogram.arcs();
        Self { num_nodes, input_edges, loops, arcs, wide, shift, buckets }
    }

    /// Bytes of an arc in the bucket file.
    pub fn arc_size(&self) -> u64 {
        (if self.wide { size_of::<Wide>() } else { size_of::<Narrow>() }) as u64
    }

    /// First node of bucket `index`.
    pub fn first_node(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |before| self.buckets[before].end)
    }

    /// First arc of each bucket.
    pub fn starts(&self) -> Vec<u64> {
        let ends = self.buckets.iter().scan(0, |sum, bucket| {
            *sum += bucket.arcs;
            Some(*sum)
        });
        std::iter::once(0).chain(ends).take(self.buckets.len()).collect()
    }

    /// The bucket of every granule.
    pub fn bucket_of_granule(&self) -> Vec<u32> {
        let granules = self.num_nodes.div_ceil(1 << self.shift);
        let mut bucket = 0;
        (0..granules)
            .map(|granule| {
                while self.buckets[bucket].end <= granule << self.shift {
                    bucket += 1;
                }
                bucket as u32
            })
            .collect()
    }

    /// Number of arcs in a write-combining buffer. There is one buffer per bucket, and
    /// [`SPARE_BUFFERS`] more.
    ///
    /// # Errors
    /// `Budget`: so little memory for so many buckets that every write would be tiny.
    pub fn buffer_arcs(&self, tuning: &Tuning, memory: Bytes) -> Result<usize> {
        let buffers = self.buckets.len() + SPARE_BUFFERS;
        let bytes = (tuning.combining / buffers).min(LARGEST_BUFFER);
        if bytes < tuning.smallest_buffer {
            // More memory gives larger and thus fewer buckets, so the buffer size grows with the
            // square of the memory. Hence the square root.
            let factor = (tuning.smallest_buffer as f64 / bytes.max(1) as f64).sqrt() * 1.1;
            let least = Bytes((memory.0 as f64 * factor) as u64);
            return Err(Error::new(
                ErrorKind::Budget,
                format!(
                    "import of {} arcs needs about {least} of memory to sort them in two passes, \
                     found {memory}",
                    self.arcs
                ),
            )
            .hint(super::options::least_memory((least.0 >> 20) + 1)));
        }
        Ok((bytes / self.arc_size() as usize).max(1))
    }
}

/// Buffers that are on their way to the writer and back.
pub(crate) const SPARE_BUFFERS: usize = 4;
const LARGEST_BUFFER: usize = 1 << 20;

/// Largest size of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketLimits {
    pub arcs: u64,
    pub nodes: u64,
}

impl BucketLimits {
    /// The largest bucket that fits in memory with the other buckets in progress. Each thread holds
    /// the arcs that it read, the entries that it sorts, and entries that wait to be written. One
    /// more bucket is being written.
    pub fn of_memory<A: Arc>(tuning: &Tuning, threads: usize) -> Self {
        let (arc, entry) = (size_of::<A>(), size_of::<A::Entry>());
        let an_arc = threads * (arc + 2 * entry) + entry;
        let a_node = (2 * threads + 1) * size_of::<u32>();
        // Three quarters for the arcs, one quarter for the nodes.
        Self {
            arcs: (tuning.sorting * 3 / 4 / an_arc).min(u32::MAX as usize) as u64,
            nodes: (tuning.sorting / 4 / a_node) as u64,
        }
    }

    /// The preferred size: small buckets fit the processor's caches, but their number is limited.
    pub fn preferred(self, tuning: &Tuning, arcs: u64) -> Self {
        const ENOUGH: u64 = 256;
        Self { arcs: self.arcs.min(tuning.bucket_arcs.max(arcs / ENOUGH)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::SelfLoops;
    use super::*;

    fn plan(edges: &[[u64; 2]], num_nodes: u64, limits: BucketLimits) -> Plan {
        let mut histogram = Histogram::new(8, false, SelfLoops::Keep);
        histogram.add(edges);
        histogram.cover(num_nodes);
        Plan::new(&histogram, num_nodes, edges.len() as u64, false, limits)
    }

    #[test]
    fn buckets_cover_all_nodes_and_every_granule_finds_its_own() {
        let edges: Vec<[u64; 2]> = (0..60).map(|i| [0, i * i % 29]).collect();
        for (arcs, nodes) in [(1, 1), (10, 100), (100, 100), (7, 8), (1000, 4)] {
            let plan = plan(&edges, 30, BucketLimits { arcs, nodes });
            assert_eq!(plan.buckets.last().unwrap().end, 30);
            assert_eq!(plan.buckets.iter().map(|b| b.arcs).sum::<u64>(), 60);
            let of_granule = plan.bucket_of_granule();
            for (index, bucket) in plan.buckets.iter().enumerate() {
                let range = plan.first_node(index)..bucket.end;
                assert!(!range.is_empty());
                let inside = |v: u64| of_granule[(v >> plan.shift) as usize] == index as u32;
                assert!(range.clone().all(inside));
                let arcs = edges.iter().filter(|e| range.contains(&e[1])).count();
                assert_eq!(arcs as u64, bucket.arcs);
            }
        }
    }

    #[test]
    fn a_graph_without_nodes_has_one_empty_bucket() {
        let plan = plan(&[], 0, BucketLimits { arcs: 1, nodes: 1 });
        assert_eq!(plan.buckets, [Bucket { end: 0, arcs: 0 }]);
        assert_eq!((plan.starts(), plan.bucket_of_granule()), (vec![0], vec![]));
    }

    #[test]
    fn too_many_buckets_for_the_memory_are_refused_with_the_least() {
        let edges: Vec<[u64; 2]> = (0..8).map(|i| [0, i]).collect();
        let plan = plan(&edges, 8, BucketLimits { arcs: 1, nodes: 1 });
        let tuning = Tuning { combining: 10 << 10, ..Tuning::of(Bytes::mib(16), 2) };
        let error = plan.buffer_arcs(&tuning, Bytes::mib(16)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert!(error.to_string().contains("`memory=39MiB`"), "{error}");
    }
}
