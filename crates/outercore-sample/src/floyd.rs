//! Picks distinct in-edges for many nodes at once, one node in each lane of a vector register.
//!
//! No lane branches on its draws, so no branch can be mispredicted. With AVX-512 a pick takes less
//! than 2 ns; node by node it took 12 ns.

use outercore_core::{NodeId, Stream};
use outercore_store::resident::Announcer;
use pulp::{Arch, Simd, WithSimd};

/// The greatest fan-out of this path: the draws of a lane stay in registers or the first-level
/// cache.
pub(crate) const MOST_PICKS: usize = 16;

/// Of this many picks per node, one is announced as soon as it is drawn. Memory could not deliver
/// all of them during drawing; the others are announced later, when there is more work to overlap
/// with.
const PICKS_PER_ANNOUNCED: usize = 3;

/// A multiple of the number of lanes of every register.
const PADDING: usize = 16;

/// Nodes with more in-edges than picks, and the places for their picks. Kept to save allocations.
///
/// All arrays have the reserved length; the first `len` entries are in use.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    low: Vec<u32>,
    high: Vec<u32>,
    degrees: Vec<u32>,
    starts: Vec<u64>,
    places: Vec<usize>,
    len: usize,
}

/// Inputs of the picks of one hop, except for the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub stream: Stream,
    pub batch: u64,
    pub hop: u32,
    /// In-edges to pick per node, at most [`MOST_PICKS`].
    pub count: usize,
}

impl Drawn {
    /// Removes all nodes and makes room for `nodes`.
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

    /// Adds a node if it is `wanted`; its picks plus `start` are written to `place` and the
    /// following places.
    ///
    /// The entry is always written and only counted if wanted. Half of all nodes are wanted, in an
    /// order that no branch predictor can foresee.
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

    /// Writes the picks of all nodes, ascending, into `positions`, and announces some of them.
    pub(crate) fn pick(&self, hop: Hop, positions: &mut [u64], announcer: Announcer<'_>) {
        self.pick_on(Arch::new(), hop, positions, announcer);
    }

    fn pick_on(&self, arch: Arch, hop: Hop, positions: &mut [u64], announcer: Announcer<'_>) {
        if self.len == 0 {
            return;
        }
        macro_rules! dispatch {
            ($($count:literal)*) => {
                match hop.count {
                    0 => (),
                    $($count => {
                        arch.dispatch(PickAll::<$count> { drawn: self, hop, positions, announcer });
                    })*
                    more => unreachable!("{more} picks where MOST_PICKS is {MOST_PICKS}"),
                }
            };
        }
        dispatch!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
    }
}

/// Picks `COUNT` in-edges of each node. `COUNT` is known at compile time, so columns stay in
/// registers and all loops over them are unrolled.
struct PickAll<'a, const COUNT: usize> {
    drawn: &'a Drawn,
    hop: Hop,
    positions: &'a mut [u64],
    announcer: Announcer<'a>,
}

impl<const COUNT: usize> WithSimd for PickAll<'_, COUNT> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { drawn, hop, positions, announcer } = self;
        let padded = drawn.len.next_multiple_of(S::U32_LANES);
        let (low, _) = S::as_simd_u32s(&drawn.low[..padded]);
        let (high, _) = S::as_simd_u32s(&drawn.high[..padded]);
        let (degrees, _) = S::as_simd_u32s(&drawn.degrees[..padded]);
        for group in 0..low.len() {
            let columns: [_; COUNT] = pick(simd, hop, [low[group], high[group]], degrees[group]);
            let picks: &[u32] = bytemuck::cast_slice(&columns);
            let own = group * S::U32_LANES..((group + 1) * S::U32_LANES).min(drawn.len);
            let starts = drawn.starts[own.clone()].iter().zip(&drawn.places[own]);
            for (lane, (&start, &place)) in starts.enumerate() {
                let own = &mut positions[place..place + COUNT];
                for (i, position) in own.iter_mut().enumerate() {
                    *position = start + u64::from(picks[i * S::U32_LANES + lane]);
                }
                for &position in own.iter().step_by(PICKS_PER_ANNOUNCED) {
                    announcer.source(position);
                }
            }
        }
    }
}

/// The picks of each lane, ascending, one in each column.
///
/// # Source
/// Robert Floyd's sampling algorithm, in Bentley, "Programming pearls: a sample of brilliance",
/// Communications of the ACM 30(9), 1987.
#[inline(always)]
fn pick<S: Simd, const COUNT: usize>(
    simd: S,
    hop: Hop,
    nodes: [S::u32s; 2],
    degrees: S::u32s,
) -> [S::u32s; COUNT] {
    let first_last = simd.sub_u32s(degrees, simd.splat_u32s(COUNT as u32));
    let mut draws = [first_last; MOST_PICKS];
    for pair in 0..COUNT.div_ceil(2) {
        let bits = hop.stream.pair(simd, hop.batch, hop.hop, nodes, pair as u32);
        for (i, bits) in (2 * pair..).zip(bits) {
            let bound = simd.add_u32s(first_last, simd.splat_u32s(i as u32 + 1));
            draws[i] = bits.below(simd, bound);
        }
    }
    let mut columns = [first_last; COUNT];
    // A number that is already taken is replaced by the greatest number that could have been drawn.
    macro_rules! settle {
        ($($i:literal)*) => {
            $(if $i < COUNT {
                let last = simd.add_u32s(first_last, simd.splat_u32s($i));
                let mut settled = draws[$i];
                for earlier in &columns[..$i] {
                    settled = simd.select_u32s(simd.equal_u32s(draws[$i], *earlier), last, settled);
                }
                columns[$i] = settled;
            })*
        };
    }
    settle!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    sort(simd, &mut columns);
    columns
}

/// Sorts every lane by Batcher's odd-even merge sort.
///
/// The network for [`MOST_PICKS`] columns, without the comparisons that involve columns from
/// `COUNT` on, which would hold the greatest values.
///
/// # Source
/// Batcher, "Sorting networks and their applications", AFIPS 1968; as merge exchange (algorithm M)
/// in Knuth, "The art of computer programming", volume 3, section 5.2.2. The numbers of each step
/// are the `p`, `r` and `d` of that section.
#[inline(always)]
fn sort<S: Simd, const COUNT: usize>(simd: S, columns: &mut [S::u32s; COUNT]) {
    const { assert!(COUNT <= MOST_PICKS && MOST_PICKS == 16) };
    macro_rules! merge_exchange {
        ($($p:literal $r:literal $d:literal),*) => {
            $(for i in 0..COUNT.saturating_sub($d) {
                if i & $p == $r {
                    let (a, b) = (columns[i], columns[i + $d]);
                    let less = simd.less_than_u32s(a, b);
                    columns[i] = simd.select_u32s(less, a, b);
                    columns[i + $d] = simd.select_u32s(less, b, a);
                }
            })*
        };
    }
    merge_exchange!(8 0 8, 4 0 4, 4 4 4, 2 0 2, 2 2 6, 2 2 2, 1 0 1, 1 1 7, 1 1 3, 1 1 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Floyd's rule as published: draw below `last + 1`; a number that is already taken becomes
    /// `last`.
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
            // The second round works on the memory of the first.
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
            // The vector registers of this processor, and scalar code.
            for arch in [Arch::new(), Arch::Scalar] {
                let mut found = vec![0; expected.len()];
                drawn.pick_on(arch, hop, &mut found, Announcer::default());
                prop_assert_eq!(&found, &expected);
            }
        }
    }

    #[test]
    fn the_network_sorts_every_number_of_columns() {
        struct Sort<const COUNT: usize>([u32; COUNT]);
        impl<const COUNT: usize> WithSimd for Sort<COUNT> {
            type Output = [u32; COUNT];
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) -> [u32; COUNT] {
                let mut columns = self.0.map(|x| simd.splat_u32s(x));
                sort(simd, &mut columns);
                columns.map(|column| bytemuck::cast_slice::<_, u32>(&[column])[0])
            }
        }
        fn sorts<const COUNT: usize>() {
            // A network that sorts all sequences of zeros and ones sorts everything.
            for bits in 0..1u32 << COUNT {
                let numbers = std::array::from_fn::<_, COUNT, _>(|i| bits >> i & 1);
                let sorted = Arch::new().dispatch(Sort(numbers));
                assert!(sorted.is_sorted(), "{bits:b} of {COUNT}");
                assert_eq!(sorted.iter().sum::<u32>(), bits.count_ones());
            }
        }
        macro_rules! sorts {
            ($($count:literal)*) => { $(sorts::<$count>();)* };
        }
        sorts!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
    }
}
