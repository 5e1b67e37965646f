//! Distinct picks for many nodes side by side, one node in each lane of a vector register.
//!
//! A lane never branches on its draws, so that no prediction can fail. With AVX-512 a pick takes
//! 2 ns, where one node after the other took 12.

use outercore_core::{NodeId, Stream};
use pulp::{Arch, Simd, WithSimd};

/// The greatest fan-out: the draws of a lane stay in registers or the nearest cache.
pub(crate) const MOST_PICKS: usize = 16;

/// Picks of a node to each that is announced as soon as it is drawn. Memory could not deliver all of
/// them while others are drawn; the rest is announced where there is more to do.
const PICKS_PER_ANNOUNCED: usize = 3;

/// Widths of all registers divide this.
const PADDING: usize = 16;

/// Nodes with more in-edges than are picked, and where their picks go; kept to spare allocations.
///
/// All arrays are as long as the room that was reserved, `len` entries of them are in use.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    low: Vec<u32>,
    high: Vec<u32>,
    degrees: Vec<u32>,
    starts: Vec<u64>,
    places: Vec<usize>,
    len: usize,
}

/// What the picks of one hop depend on beside the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub stream: Stream,
    pub batch: u64,
    pub hop: u32,
    /// In-edges to pick of each node, at most [`MOST_PICKS`].
    pub count: usize,
}

impl Drawn {
    /// Forgets all nodes and makes room for `nodes`.
    pub(crate) fn reset(&mut self, nodes: usize) {
        self.len = 0;
        let room = (nodes + 1).next_multiple_of(PADDING);
        if self.low.len() < room {
            for halves in [&mut self.low, &mut self.high, &mut self.degrees] {
                halves.resize(room, 0);
            }
            self.starts.resize(room, 0);
            self.places.resize(room, 0);
        }
    }

    /// Enters a node if it is `wanted`; its picks, moved up by `start`, go to `place` and after.
    ///
    /// It is always written and only counted if wanted: half of all nodes are, in no order that a
    /// branch could foresee.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        node: NodeId,
        (start, degree): (u64, u32),
        place: usize,
        wanted: bool,
    ) {
        let at = self.len;
        self.low[at] = node as u32;
        self.high[at] = (node >> 32) as u32;
        self.degrees[at] = degree;
        self.starts[at] = start;
        self.places[at] = place;
        self.len += usize::from(wanted);
    }

    /// Writes the picks of all nodes, ascending, into `positions`; calls `announce` with some.
    pub(crate) fn pick(&self, hop: Hop, positions: &mut [u64], announce: impl Fn(u64)) {
        self.pick_on(Arch::new(), hop, positions, announce);
    }

    fn pick_on(&self, arch: Arch, hop: Hop, positions: &mut [u64], announce: impl Fn(u64)) {
        if hop.count > 0 && self.len > 0 {
            arch.dispatch(PickAll { drawn: self, hop, positions, announce });
        }
    }
}

struct PickAll<'a, F> {
    drawn: &'a Drawn,
    hop: Hop,
    positions: &'a mut [u64],
    announce: F,
}

impl<F: Fn(u64)> WithSimd for PickAll<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { drawn, hop, positions, announce } = self;
        let padded = drawn.len.next_multiple_of(S::U32_LANES);
        let (low, _) = S::as_simd_u32s(&drawn.low[..padded]);
        let (high, _) = S::as_simd_u32s(&drawn.high[..padded]);
        let (degrees, _) = S::as_simd_u32s(&drawn.degrees[..padded]);
        let mut columns = [simd.splat_u32s(0); MOST_PICKS];
        // The columns turned: the picks of each node together.
        let mut picks = [[0u32; MOST_PICKS]; PADDING];
        for group in 0..low.len() {
            pick(simd, hop, [low[group], high[group]], degrees[group], &mut columns);
            for (i, column) in columns[..hop.count].iter().enumerate() {
                let lanes: &[u32] = bytemuck::cast_slice(std::slice::from_ref(column));
                for (picks, &lane) in picks.iter_mut().zip(lanes) {
                    picks[i] = lane;
                }
            }
            let own = group * S::U32_LANES..((group + 1) * S::U32_LANES).min(drawn.len);
            let starts = drawn.starts[own.clone()].iter().zip(&drawn.places[own]);
            for ((&start, &place), picks) in starts.zip(&picks) {
                let own = &mut positions[place..place + hop.count];
                for (position, &pick) in own.iter_mut().zip(picks) {
                    *position = start + u64::from(pick);
                }
                for &position in own.iter().step_by(PICKS_PER_ANNOUNCED) {
                    announce(position);
                }
            }
        }
    }
}

/// Fills the first `hop.count` columns with the picks of each lane, ascending.
///
/// # Source
/// Robert Floyd's sampling algorithm, in Bentley, "Programming pearls: a sample of brilliance",
/// Communications of the ACM 30(9), 1987.
#[inline(always)]
fn pick<S: Simd>(
    simd: S,
    hop: Hop,
    nodes: [S::u32s; 2],
    degrees: S::u32s,
    columns: &mut [S::u32s; MOST_PICKS],
) {
    let count = hop.count.min(MOST_PICKS);
    let first_last = simd.sub_u32s(degrees, simd.splat_u32s(count as u32));
    for pair in 0..count.div_ceil(2) {
        let bits = hop.stream.pair(simd, hop.batch, hop.hop, nodes, pair as u32);
        for (i, bits) in (2 * pair..).zip(bits) {
            let bound = simd.add_u32s(first_last, simd.splat_u32s(i as u32 + 1));
            columns[i] = bits.below(simd, bound);
        }
    }
    // A number that is taken already gives way to the greatest one that could have been drawn.
    for i in 1..count {
        let (drawn, last) = (columns[i], simd.add_u32s(first_last, simd.splat_u32s(i as u32)));
        let mut settled = drawn;
        for earlier in &columns[..i] {
            settled = simd.select_u32s(simd.equal_u32s(drawn, *earlier), last, settled);
        }
        columns[i] = settled;
    }
    sort(simd, &mut columns[..count]);
}

/// Sorts every lane by Batcher's odd-even merge sort.
///
/// # Source
/// Batcher, "Sorting networks and their applications", AFIPS 1968; as merge exchange (algorithm M)
/// in Knuth, "The art of computer programming", volume 3, section 5.2.2.
#[inline(always)]
fn sort<S: Simd>(simd: S, columns: &mut [S::u32s]) {
    let len = columns.len();
    let top = len.next_power_of_two() / 2;
    let mut p = top;
    while p > 0 {
        let (mut q, mut r, mut d) = (top, 0, p);
        loop {
            for i in 0..len.saturating_sub(d) {
                if i & p == r {
                    let (a, b) = (columns[i], columns[i + d]);
                    let less = simd.less_than_u32s(a, b);
                    columns[i] = simd.select_u32s(less, a, b);
                    columns[i + d] = simd.select_u32s(less, b, a);
                }
            }
            if q == p {
                break;
            }
            (d, q, r) = (q - p, q / 2, p);
        }
        p /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Floyd's rule as it is told: draw below `last + 1`; what is taken already gives way to `last`.
    fn naive(hop: Hop, node: NodeId, (start, degree): (u64, u32)) -> Vec<u64> {
        let mut draws = hop.stream.uniform(hop.batch, hop.hop, node);
        let mut picks = Vec::new();
        for last in u64::from(degree) - hop.count as u64..u64::from(degree) {
            let drawn = start + draws.below(last + 1);
            picks.push(if picks.contains(&drawn) { start + last } else { drawn });
        }
        picks.sort_unstable();
        picks
    }

    proptest! {
        #[test]
        fn lanes_pick_what_floyds_rule_picks(
            count in 0usize..=MOST_PICKS,
            spare in proptest::collection::vec((any::<u64>(), 1u32..40, any::<bool>()), 0..60),
            seed in any::<u64>(),
        ) {
            let hop = Hop { stream: Stream::new(seed, 1), batch: seed >> 7, hop: 2, count };
            let (mut drawn, mut expected) = (Drawn::default(), Vec::new());
            // A second round works on what the first left behind.
            for _ in 0..2 {
                drawn.reset(spare.len());
                expected.clear();
                for (i, &(node, spare, wanted)) in spare.iter().enumerate() {
                    let degree = if i % 9 == 8 { u32::MAX } else { count as u32 + spare };
                    drawn.enter(node, (i as u64 * 1000, degree), expected.len(), wanted);
                    if wanted {
                        expected.extend(naive(hop, node, (i as u64 * 1000, degree)));
                    }
                }
            }
            // The registers of this processor, and none.
            for arch in [Arch::new(), Arch::Scalar] {
                let mut found = vec![0; expected.len()];
                drawn.pick_on(arch, hop, &mut found, |_| ());
                prop_assert_eq!(&found, &expected);
            }
        }
    }

    #[test]
    fn the_network_sorts_every_number_of_columns() {
        struct Sort(Vec<u32>);
        impl WithSimd for Sort {
            type Output = Vec<u32>;
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) -> Vec<u32> {
                let mut columns: Vec<_> = self.0.iter().map(|&x| simd.splat_u32s(x)).collect();
                sort(simd, &mut columns);
                columns.iter().map(|column| bytemuck::cast_slice::<_, u32>(&[*column])[0]).collect()
            }
        }
        for len in 0..=MOST_PICKS {
            // A network that sorts all zeros and ones sorts everything.
            for bits in 0..1u32 << len {
                let numbers: Vec<u32> = (0..len).map(|i| bits >> i & 1).collect();
                assert!(Arch::new().dispatch(Sort(numbers)).is_sorted(), "{bits:b} of {len}");
            }
        }
    }
}
