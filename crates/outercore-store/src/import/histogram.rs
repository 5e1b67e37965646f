use super::options::SelfLoops;

/// In-degrees of the future graph, summed over granules of `2^shift` nodes. The granules widen as
/// larger ids occur, so the number of counters is fixed.
///
/// Self-loops that will be dropped are not counted. Duplicates are counted, and self-loops that
/// will be added are not.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    shift: u32,
    undirected: bool,
    drop_loops: bool,
    arcs: u64,
    loops: u64,
    /// The largest id plus one.
    end: u64,
}

impl Histogram {
    /// An empty histogram; `slots` is a power of two above 1.
    pub fn new(slots: usize, undirected: bool, self_loops: SelfLoops) -> Self {
        let drop_loops = self_loops == SelfLoops::Drop;
        Self { counts: vec![0; slots], shift: 0, undirected, drop_loops, arcs: 0, loops: 0, end: 0 }
    }

    /// Counts the arcs of input edges.
    pub fn add(&mut self, edges: &[[u64; 2]]) {
        let Some(largest) = edges.iter().map(|[u, v]| *u.max(v)).max() else { return };
        self.end = self.end.max(largest + 1);
        while largest >> self.shift >= self.counts.len() as u64 {
            self.halve();
        }
        let mut arcs = 0;
        for &[source, target] in edges {
            let is_loop = source == target;
            self.loops += u64::from(is_loop);
            if !(is_loop && self.drop_loops) {
                self.counts[(target >> self.shift) as usize] += 1;
                arcs += 1;
            }
            if self.undirected && !is_loop {
                self.counts[(source >> self.shift) as usize] += 1;
                arcs += 1;
            }
        }
        self.arcs += arcs;
    }

    fn halve(&mut self) {
        let half = self.counts.len() / 2;
        for slot in 0..half {
            self.counts[slot] = self.counts[2 * slot] + self.counts[2 * slot + 1];
        }
        self.counts[half..].fill(0);
        self.shift += 1;
    }

    /// Number of arcs.
    pub fn arcs(&self) -> u64 {
        self.arcs
    }

    /// Number of self-loops in the input.
    pub fn loops(&self) -> u64 {
        self.loops
    }

    /// The largest id plus one; 0 without edges.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Widens the granules until they cover `num_nodes`.
    pub fn cover(&mut self, num_nodes: u64) {
        while num_nodes.saturating_sub(1) >> self.shift >= self.counts.len() as u64 {
            self.halve();
        }
    }

    /// log2 of the number of nodes in a granule.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Arcs of each granule, up to `num_nodes` nodes.
    pub fn granules(&self, num_nodes: u64) -> &[u64] {
        let granules = num_nodes.div_ceil(1 << self.shift);
        &self.counts[..granules as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_widen_as_larger_ids_turn_up_and_lose_nothing() {
        let mut histogram = Histogram::new(4, false, SelfLoops::Keep);
        histogram.add(&[[0, 0], [0, 1], [5, 3]]);
        assert_eq!(histogram.granules(4), [2, 1]);
        histogram.add(&[[0, 1 << 33]]);
        assert_eq!((histogram.arcs(), histogram.end()), (4, (1 << 33) + 1));
        assert_eq!(histogram.granules(histogram.end()).iter().sum::<u64>(), 4);
        histogram.cover(1 << 40);
        assert_eq!(histogram.granules(1 << 40), [4, 0, 0, 0]);
    }

    #[test]
    fn reverse_arcs_and_dropped_loops_are_counted_as_they_will_be_written() {
        let edges = [[0, 1], [2, 2], [3, 1]];
        for (undirected, self_loops, expected) in [
            (false, SelfLoops::Keep, [0, 2, 1, 0]),
            (false, SelfLoops::Drop, [0, 2, 0, 0]),
            (true, SelfLoops::Keep, [1, 2, 1, 1]),
            (true, SelfLoops::Drop, [1, 2, 0, 1]),
        ] {
            let mut histogram = Histogram::new(4, undirected, self_loops);
            histogram.add(&edges);
            assert_eq!(histogram.granules(4), expected);
            assert_eq!(histogram.arcs(), expected.iter().sum::<u64>());
        }
    }
}
