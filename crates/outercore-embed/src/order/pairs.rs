/// Which two partitions have been in memory together.
#[derive(Clone, Debug)]
pub struct Pairs {
    partitions: usize,
    covered: Vec<bool>,
    /// Of each partition, how many others it has yet to meet.
    missing: Vec<usize>,
    /// Pairs that have yet to meet.
    left: usize,
}

impl Pairs {
    /// Nobody has met.
    pub fn new(partitions: usize) -> Self {
        Self {
            partitions,
            covered: vec![false; partitions * partitions],
            missing: vec![partitions - 1; partitions],
            left: partitions * (partitions - 1) / 2,
        }
    }

    /// Whether two different partitions have yet to meet; one and the same never has to.
    pub fn missing(&self, a: usize, b: usize) -> bool {
        a != b && !self.covered[a * self.partitions + b]
    }

    /// Lets two different partitions meet; whether it is the first time.
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

    /// Takes back a first meeting.
    pub fn uncover(&mut self, a: usize, b: usize) {
        debug_assert!(!self.missing(a, b), "partitions {a} and {b} have not met");
        self.set(a, b, false);
        self.missing[a] += 1;
        self.missing[b] += 1;
        self.left += 1;
    }

    /// Lets all of these meet.
    pub fn cover_all(&mut self, together: &[usize]) {
        for (place, &a) in together.iter().enumerate() {
            for &b in &together[..place] {
                self.cover(a, b);
            }
        }
    }

    /// How many others a partition has yet to meet.
    pub fn missing_of(&self, partition: usize) -> usize {
        self.missing[partition]
    }

    /// How many pairs have yet to meet.
    pub fn left(&self) -> usize {
        self.left
    }

    fn set(&mut self, a: usize, b: usize, covered: bool) {
        self.covered[a * self.partitions + b] = covered;
        self.covered[b * self.partitions + a] = covered;
    }
}
