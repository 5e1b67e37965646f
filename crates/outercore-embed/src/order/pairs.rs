/// Pairs of partitions that have been in memory together.
#[derive(Clone, Debug)]
pub struct Pairs {
    partitions: usize,
    covered: Vec<bool>,
    /// For each partition, the number of partitions that it has not yet met.
    missing: Vec<usize>,
    /// Number of pairs that have not yet met.
    left: usize,
}

impl Pairs {
    /// No pair has met.
    pub fn new(partitions: usize) -> Self {
        Self {
            partitions,
            covered: vec![false; partitions * partitions],
            missing: vec![partitions - 1; partitions],
            left: partitions * (partitions - 1) / 2,
        }
    }

    /// Whether two different partitions have not yet met; false for a partition and itself.
    pub fn missing(&self, a: usize, b: usize) -> bool {
        a != b && !self.covered[a * self.partitions + b]
    }

    /// Records that two different partitions meet; returns whether it is the first time.
    pub fn cover(&mut self, a: usize, b: usize) -> bool {
        let first = self.missing(a, b);
        if first {
            self.set(a, b, true);
            self.missing[a] -= 1;
            self.missing[b] -= 1;
            self.left -= 1;
        }
        first
    }

    /// Reverts a first meeting.
    pub fn uncover(&mut self, a: usize, b: usize) {
        debug_assert!(!self.missing(a, b), "partitions {a} and {b} have not met");
        self.set(a, b, false);
        self.missing[a] += 1;
        self.missing[b] += 1;
        self.left += 1;
    }

    /// Records that all of these partitions meet.
    pub fn cover_all(&mut self, together: &[usize]) {
        for (place, &a) in together.iter().enumerate() {
            for &b in &together[..place] {
                self.cover(a, b);
            }
        }
    }

    /// Number of partitions that `partition` has not yet met.
    pub fn missing_of(&self, partition: usize) -> usize {
        self.missing[partition]
    }

    /// Number of pairs that have not yet met.
    pub fn left(&self) -> usize {
        self.left
    }

    fn set(&mut self, a: usize, b: usize, covered: bool) {
        self.covered[a * self.partitions + b] = covered;
        self.covered[b * self.partitions + a] = covered;
    }
}
