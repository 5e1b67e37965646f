//! Sums over in-neighbours, each weighted by the similarity of its key and the node's query.

use outercore_core::{Error, Result};

use crate::incoming::{Arrival, Arrivals, Block, Id, Incoming, NODES_AT_ONCE};

/// Independent partial sums of a dot product.
const LANES: usize = 8;

/// Softmax over a node's arcs, for each head: the weight of an arc is `exp(s)`, where `s` is the
/// inner product of the node's query and the source's key.
///
/// The largest `s` is not known in advance. Sums therefore use `exp(s - most)` with the largest
/// value so far, and are rescaled when a larger value arrives. Arcs of several kinds may be added
/// one after the other.
///
/// **Source** Milakov and Gimelshein, 2018, algorithm 3.
pub struct Likeness<'a> {
    /// `[nodes, width]`.
    pub queries: &'a [f32],
    /// `[nodes, heads]`: the largest `s` so far; minus infinity before the first arc.
    pub most: &'a mut [f32],
    /// `[nodes, heads]`: the sum of `exp(s - most)` so far.
    pub totals: &'a mut [f32],
    /// Number of heads, with one softmax per node and head.
    pub heads: usize,
}

/// Adds the values of a block to the sums of the nodes with an arc from the block's sources.
///
/// A row of the block has a key, then a value.
///
/// # Shapes
/// `sums` `[nodes, width]`, not yet divided by the totals; the rows of `block` `[2 width]`.
///
/// # Errors
/// Invalid: slices that do not fit each other. Corrupt: sources that do not ascend.
pub fn add_alike<I: Id>(
    incoming: Incoming<'_, I>,
    block: &Block<'_>,
    likeness: Likeness<'_>,
    sums: &mut [f32],
    width: usize,
    threads: usize,
) -> Result<()> {
    let (nodes, heads) = (incoming.next.len(), likeness.heads);
    incoming.check()?;
    block.check(2 * width)?;
    let fits = heads > 0
        && width > 0
        && width.is_multiple_of(heads)
        && likeness.queries.len() == nodes * width
        && likeness.most.len() == nodes * heads
        && likeness.totals.len() == nodes * heads
        && sums.len() == nodes * width;
    if !fits {
        return Err(Error::invalid("attention: the numbers of nodes and heads do not fit"));
    }
    let numbers = (likeness.queries.chunks(NODES_AT_ONCE * width))
        .zip(sums.chunks_mut(NODES_AT_ONCE * width));
    let softmaxes = (likeness.most.chunks_mut(NODES_AT_ONCE * heads))
        .zip(likeness.totals.chunks_mut(NODES_AT_ONCE * heads));
    let arrivals = numbers.zip(softmaxes).map(|((queries, sums), (most, totals))| Comparing {
        queries,
        most,
        totals,
        sums,
        heads,
        width,
    });
    incoming.take_all(block, 2 * width, arrivals, threads)
}

struct Comparing<'a> {
    queries: &'a [f32],
    most: &'a mut [f32],
    totals: &'a mut [f32],
    sums: &'a mut [f32],
    heads: usize,
    width: usize,
}

impl Arrivals for Comparing<'_> {
    #[inline(always)]
    fn at(&mut self, place: usize) -> impl Arrival {
        let numbers = place * self.width..(place + 1) * self.width;
        let softmaxes = place * self.heads..(place + 1) * self.heads;
        Softmaxes {
            query: &self.queries[numbers.clone()],
            sum: &mut self.sums[numbers],
            most: &mut self.most[softmaxes.clone()],
            totals: &mut self.totals[softmaxes],
            channels: self.width / self.heads,
        }
    }
}

struct Softmaxes<'a> {
    query: &'a [f32],
    sum: &'a mut [f32],
    most: &'a mut [f32],
    totals: &'a mut [f32],
    channels: usize,
}

impl Arrival for Softmaxes<'_> {
    #[inline(always)]
    fn take(&mut self, _: u64, row: &[f32]) {
        let (key, value) = row.split_at(self.query.len());
        let numbers = (self.query.chunks_exact(self.channels))
            .zip(key.chunks_exact(self.channels))
            .zip(value.chunks_exact(self.channels))
            .zip(self.sum.chunks_exact_mut(self.channels));
        let softmaxes = self.most.iter_mut().zip(self.totals.iter_mut());
        for ((((query, key), value), sum), (most, total)) in numbers.zip(softmaxes) {
            let number = product(query, key);
            if number > *most {
                let scale = (*most - number).exp();
                *total = *total * scale + 1.0;
                for (sum, value) in sum.iter_mut().zip(value) {
                    *sum = *sum * scale + value;
                }
                *most = number;
            } else {
                let weight = (number - *most).exp();
                *total += weight;
                for (sum, value) in sum.iter_mut().zip(value) {
                    *sum += weight * value;
                }
            }
        }
    }
}

#[inline(always)]
fn product(a: &[f32], b: &[f32]) -> f32 {
    let (wide, rest) = a.as_chunks::<LANES>();
    let (other, other_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in wide.iter().zip(other) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = rest.iter().zip(other_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODES: usize = 40;
    const HEADS: usize = 2;

    fn rows(count: usize, width: usize, by: usize) -> Vec<f32> {
        (0..count * width).map(|at| ((at * by % 101) as f32 - 50.0) / 17.0).collect()
    }

    /// Computes the sums over arcs of two kinds, each in blocks of `step` sources.
    fn in_blocks(
        kinds: &[Vec<Vec<u32>>],
        keys_and_values: &[Vec<f32>],
        queries: &[f32],
        width: usize,
        (step, threads): (usize, usize),
    ) -> Vec<f32> {
        let mut sums = vec![0.0; NODES * width];
        let mut most = vec![f32::NEG_INFINITY; NODES * HEADS];
        let mut totals = vec![0.0; NODES * HEADS];
        for (columns, rows) in kinds.iter().zip(keys_and_values) {
            let sources = columns.concat();
            let mut bounds = vec![0];
            for column in columns {
                bounds.push(bounds.last().unwrap() + column.len() as u64);
            }
            let mut next = bounds[..NODES].to_vec();
            for start in (0..NODES).step_by(step) {
                let end = (start + step).min(NODES);
                let block = Block {
                    nodes: start as u64..end as u64,
                    rows: &rows[2 * width * start..2 * width * end],
                    places: None,
                };
                let incoming = Incoming {
                    sources: &sources,
                    next: &mut next,
                    ends: &bounds[1..],
                    loops: None,
                };
                let likeness =
                    Likeness { queries, most: &mut most, totals: &mut totals, heads: HEADS };
                add_alike(incoming, &block, likeness, &mut sums, width, threads).unwrap();
            }
        }
        let channels = width / HEADS;
        for (place, sum) in sums.iter_mut().enumerate() {
            let total = totals[place / width * HEADS + place % width / channels];
            *sum /= total.max(f32::MIN_POSITIVE);
        }
        sums
    }

    fn columns() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let column = prop::collection::vec(0..NODES as u32, 0..9);
        prop::collection::vec(column, NODES).prop_map(|mut columns| {
            columns.iter_mut().for_each(|column| column.sort_unstable());
            columns
        })
    }

    proptest! {
        #[test]
        fn each_head_has_one_softmax_over_the_arcs_of_all_kinds(
            first in columns(), second in columns(), step in 1_usize..50,
            width in prop::sample::select(vec![6_usize, 36])
        ) {
            let kinds = [first, second];
            let queries = rows(NODES, width, 29);
            let keys_and_values = [rows(NODES, 2 * width, 37), rows(NODES, 2 * width, 53)];
            let found = in_blocks(&kinds, &keys_and_values, &queries, width, (step, 1));
            let whole = in_blocks(&kinds, &keys_and_values, &queries, width, (NODES, 3));
            prop_assert_eq!(&found, &whole);
            let channels = width / HEADS;
            for node in 0..NODES {
                for column in 0..width {
                    let own = column / channels * channels;
                    let (mut sum, mut total) = (0.0, 0.0);
                    for (columns, rows) in kinds.iter().zip(&keys_and_values) {
                        for &source in &columns[node] {
                            let row = &rows[2 * width * source as usize..][..2 * width];
                            let number: f64 = (own..own + channels)
                                .map(|at| f64::from(queries[node * width + at] * row[at]))
                                .sum();
                            sum += number.exp() * f64::from(row[width + column]);
                            total += number.exp();
                        }
                    }
                    let expected = if total == 0.0 { 0.0 } else { sum / total };
                    let found = f64::from(found[node * width + column]);
                    prop_assert!((found - expected).abs() < 1e-4, "{found} {expected}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let block = Block { nodes: 0..1, rows: &[1.0; 4], places: None };
        for (queries, message) in [(&[1.0; 3][..], "do not fit"), (&[1.0; 2][..], "")] {
            let (mut next, mut most, mut totals) = ([0], [0.0], [0.0]);
            let incoming = Incoming { sources: &[0_u32], next: &mut next, ends: &[1], loops: None };
            let likeness = Likeness { queries, most: &mut most, totals: &mut totals, heads: 1 };
            let found = add_alike(incoming, &block, likeness, &mut [0.0; 2], 2, 1);
            assert_eq!(found.is_ok(), message.is_empty());
            assert!(found.err().is_none_or(|error| error.to_string().contains(message)));
        }
    }
}
