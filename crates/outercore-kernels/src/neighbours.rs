//! Sums over the in-neighbours of many nodes, with only some neighbour rows in memory at a time.

use outercore_core::{Error, Result};

use crate::incoming::{Arrival, Arrivals, Block, Id, Incoming, NODES_AT_ONCE};
use crate::parallel::for_each;

/// Softmax over a node's arcs, for each head: the weight of an arc is `exp(s)` divided by the sum
/// of these. `s` is the score of the source plus the score of the node, times `slope` if negative.
pub struct Attention<'a> {
    /// `[all sources, heads]`.
    pub sources: &'a [f32],
    /// `[nodes, heads]`.
    pub nodes: &'a [f32],
    /// `[nodes, 2 heads]`: the largest `s` of each head, then the sums of `exp(s - largest)`.
    pub totals: &'a [f32],
    /// Number of heads, with one softmax per node and head.
    pub heads: usize,
    /// Factor of negative `s`.
    pub slope: f32,
}

/// Adds the rows of a block to the sums of the nodes with an arc from the block's sources.
///
/// # Shapes
/// `sums` `[nodes, width]`.
///
/// # Errors
/// Invalid: slices that do not fit each other. Corrupt: sources that do not ascend.
pub fn add_neighbours<I: Id>(
    incoming: Incoming<'_, I>,
    block: &Block<'_>,
    attention: Option<&Attention<'_>>,
    sums: &mut [f32],
    width: usize,
    threads: usize,
) -> Result<()> {
    let nodes = incoming.next.len();
    incoming.check()?;
    block.check(width)?;
    if sums.len() != nodes * width {
        return Err(Error::invalid(format!(
            "sums over neighbours: {} numbers for {nodes} nodes, expected {width} for each",
            sums.len()
        )));
    }
    if attention.is_some_and(|attention| !attention.fits(nodes, block.nodes.end, width)) {
        return Err(Error::invalid("attention: the numbers of nodes and heads do not fit"));
    }
    if width == 0 {
        return Ok(());
    }
    let sums = sums.chunks_mut(NODES_AT_ONCE * width).enumerate();
    let adding =
        sums.map(|(piece, sums)| Adding { attention, first: piece * NODES_AT_ONCE, sums, width });
    incoming.take_all(block, width, adding, threads)
}

/// Computes [`Attention::totals`] from the remaining arcs of `incoming`.
///
/// # Shapes
/// `totals` `[nodes, 2 heads]`; for a node without arcs, minus infinity and 0.
///
/// # Errors
/// As [`add_neighbours`].
pub fn attention_totals<I: Id>(
    incoming: &Incoming<'_, I>,
    attention: &Attention<'_>,
    totals: &mut [f32],
    threads: usize,
) -> Result<()> {
    let (nodes, heads) = (incoming.next.len(), attention.heads);
    let fits = totals.len() == 2 * nodes * heads && attention.nodes.len() == nodes * heads;
    let sources = attention.sources.len() / heads.max(1);
    incoming.check()?;
    if !fits || heads == 0 {
        return Err(Error::invalid("attention: the numbers of nodes and heads do not fit"));
    }
    let mut ids = incoming.sources.iter().map(|&id| id.into());
    if let Some(wrong) = ids.find(|&id| id >= sources as u64) {
        return Err(beyond(wrong, sources as u64));
    }
    if incoming.loops.is_some_and(|nodes| nodes.iter().any(|&node| node >= sources as u64)) {
        return Err(Error::invalid("attention: a node is beyond the last source"));
    }
    let pieces: Vec<_> = totals.chunks_mut(2 * heads * NODES_AT_ONCE).enumerate().collect();
    for_each(pieces, threads, |(piece, totals)| {
        for (place, totals) in totals.chunks_exact_mut(2 * heads).enumerate() {
            total_of(incoming, attention, piece * NODES_AT_ONCE + place, totals);
        }
    });
    Ok(())
}

fn total_of<I: Id>(
    incoming: &Incoming<'_, I>,
    attention: &Attention<'_>,
    node: usize,
    totals: &mut [f32],
) {
    let own = incoming.loops.map(|nodes| nodes[node]);
    let arcs = &incoming.sources[incoming.next[node] as usize..incoming.ends[node] as usize];
    let others = || arcs.iter().map(|&id| id.into()).filter(|&id| Some(id) != own).chain(own);
    let (most, sums) = totals.split_at_mut(attention.heads);
    most.fill(f32::NEG_INFINITY);
    sums.fill(0.0);
    for source in others() {
        for (head, most) in most.iter_mut().enumerate() {
            *most = most.max(attention.number(source, node, head));
        }
    }
    for source in others() {
        for (head, (most, sum)) in most.iter().zip(sums.iter_mut()).enumerate() {
            *sum += (attention.number(source, node, head) - most).exp();
        }
    }
}

impl Attention<'_> {
    fn fits(&self, nodes: usize, sources: u64, width: usize) -> bool {
        self.heads > 0
            && width.is_multiple_of(self.heads)
            && self.nodes.len() == nodes * self.heads
            && self.totals.len() == 2 * nodes * self.heads
            && self.sources.len() as u64 >= sources * self.heads as u64
    }

    #[inline(always)]
    fn number(&self, source: u64, node: usize, head: usize) -> f32 {
        let number = self.sources[source as usize * self.heads + head]
            + self.nodes[node * self.heads + head];
        if number < 0.0 { number * self.slope } else { number }
    }

    #[inline(always)]
    fn weight(&self, source: u64, node: usize, head: usize) -> f32 {
        let totals = &self.totals[2 * node * self.heads..];
        (self.number(source, node, head) - totals[head]).exp() / totals[self.heads + head]
    }
}

struct Adding<'a> {
    attention: Option<&'a Attention<'a>>,
    /// Index of the first node among all nodes.
    first: usize,
    sums: &'a mut [f32],
    width: usize,
}

impl Arrivals for Adding<'_> {
    #[inline(always)]
    fn at(&mut self, place: usize) -> impl Arrival {
        let sum = &mut self.sums[place * self.width..(place + 1) * self.width];
        Sum { attention: self.attention, node: self.first + place, sum }
    }
}

struct Sum<'a> {
    attention: Option<&'a Attention<'a>>,
    node: usize,
    sum: &'a mut [f32],
}

impl Arrival for Sum<'_> {
    #[inline(always)]
    fn take(&mut self, source: u64, row: &[f32]) {
        let Some(attention) = self.attention else {
            for (sum, value) in self.sum.iter_mut().zip(row) {
                *sum += value;
            }
            return;
        };
        let channels = row.len() / attention.heads;
        let heads = self.sum.chunks_exact_mut(channels).zip(row.chunks_exact(channels));
        for (head, (sum, row)) in heads.enumerate() {
            let weight = attention.weight(source, self.node, head);
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += weight * value;
            }
        }
    }
}

fn beyond(source: u64, sources: u64) -> Error {
    Error::corrupt(format!("source {source}, expected less than {sources}"))
        .hint("run `outercore check` on the data set")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Arcs {
        sources: Vec<u32>,
        bounds: Vec<u64>,
    }

    fn arcs(nodes: usize) -> impl Strategy<Value = Arcs> {
        let column = prop::collection::vec(0..nodes as u32, 0..9);
        prop::collection::vec(column, nodes).prop_map(|mut columns| {
            let mut bounds = vec![0];
            for column in &mut columns {
                column.sort_unstable();
                bounds.push(bounds.last().unwrap() + column.len() as u64);
            }
            Arcs { sources: columns.concat(), bounds }
        })
    }

    fn rows(nodes: usize, width: usize) -> Vec<f32> {
        (0..nodes * width).map(|at| ((at * 37 % 101) as f32 - 50.0) / 17.0).collect()
    }

    /// Sums in the order of sources, arc by arc, as in the definition.
    fn defined(
        arcs: &Arcs,
        rows: &[f32],
        width: usize,
        loops: bool,
        weight: impl Fn(u64, usize, usize) -> f32,
    ) -> Vec<f32> {
        let nodes = arcs.bounds.len() - 1;
        let mut sums = vec![0.0; nodes * width];
        for node in 0..nodes {
            for source in incoming_of(arcs, node, loops) {
                for column in 0..width {
                    sums[node * width + column] +=
                        weight(source, node, column) * rows[source as usize * width + column];
                }
            }
        }
        sums
    }

    fn incoming_of(arcs: &Arcs, node: usize, loops: bool) -> Vec<u64> {
        let column = arcs.bounds[node] as usize..arcs.bounds[node + 1] as usize;
        let mut sources: Vec<u64> = arcs.sources[column].iter().map(|&id| u64::from(id)).collect();
        if loops {
            sources.retain(|&source| source != node as u64);
            sources.push(node as u64);
            sources.sort_unstable();
        }
        sources
    }

    /// Sums over blocks of `step` sources; every block has only its used rows.
    fn in_blocks(
        arcs: &Arcs,
        rows: &[f32],
        width: usize,
        loops: bool,
        (step, threads): (usize, usize),
        attention: Option<&Attention<'_>>,
    ) -> Vec<f32> {
        let nodes = arcs.bounds.len() - 1;
        let ids: Vec<u64> = (0..nodes as u64).collect();
        let mut next = arcs.bounds[..nodes].to_vec();
        let mut sums = vec![0.0; nodes * width];
        for start in (0..nodes).step_by(step) {
            let end = (start + step).min(nodes);
            let mut places = Vec::new();
            let mut kept = Vec::new();
            for source in start..end {
                places.push((kept.len() / width) as u32);
                if loops || arcs.sources.contains(&(source as u32)) {
                    kept.extend_from_slice(&rows[source * width..(source + 1) * width]);
                }
            }
            let block =
                Block { nodes: start as u64..end as u64, rows: &kept, places: Some(&places) };
            let incoming = Incoming {
                sources: &arcs.sources,
                next: &mut next,
                ends: &arcs.bounds[1..],
                loops: loops.then_some(&ids),
            };
            add_neighbours(incoming, &block, attention, &mut sums, width, threads).unwrap();
        }
        assert_eq!(next, arcs.bounds[1..]);
        sums
    }

    proptest! {
        #[test]
        fn sums_have_the_bits_of_their_definition_whatever_the_blocks(
            arcs in arcs(150), loops: bool, step in 1_usize..160, threads in 1_usize..4
        ) {
            let rows = rows(150, 5);
            let expected = defined(&arcs, &rows, 5, loops, |_, _, _| 1.0);
            let found = in_blocks(&arcs, &rows, 5, loops, (step, threads), None);
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn attention_weighs_each_head_by_its_softmax(
            arcs in arcs(40), loops: bool, step in 1_usize..50
        ) {
            let (nodes, heads, width) = (40, 2, 6);
            let (rows, to, from) = (rows(nodes, width), rows(nodes, heads), rows(nodes + 1, heads));
            let mut attention = Attention {
                sources: &from[..nodes * heads], nodes: &to, totals: &[], heads, slope: 0.2,
            };
            let ids: Vec<u64> = (0..nodes as u64).collect();
            let mut next = arcs.bounds[..nodes].to_vec();
            let incoming = Incoming {
                sources: &arcs.sources, next: &mut next, ends: &arcs.bounds[1..],
                loops: loops.then_some(&ids),
            };
            let mut totals = vec![0.0; 2 * nodes * heads];
            attention_totals(&incoming, &attention, &mut totals, 2).unwrap();
            attention.totals = &totals;
            let number = |source: u64, node: usize, head: usize| {
                let sum = from[source as usize * heads + head] + to[node * heads + head];
                f64::from(if sum < 0.0 { sum * 0.2 } else { sum })
            };
            let softmax = |source, node, column: usize| {
                let head = column / (width / heads);
                let all: f64 = incoming_of(&arcs, node, loops).iter()
                    .map(|&other| number(other, node, head).exp()).sum();
                (number(source, node, head).exp() / all) as f32
            };
            let expected = defined(&arcs, &rows, width, loops, softmax);
            let found = in_blocks(&arcs, &rows, width, loops, (step, 1), Some(&attention));
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert!((found - expected).abs() < 1e-4, "{found} {expected}");
            }
            let whole = in_blocks(&arcs, &rows, width, loops, (nodes, 3), Some(&attention));
            prop_assert_eq!(found, whole);
        }
    }

    #[test]
    fn sources_that_do_not_ascend_and_blocks_without_a_row_are_told() {
        let rows = [1.0, 2.0];
        let mut sums = [0.0];
        for (sources, nodes, message) in
            [(&[3_u32, 1], 2..4, "do not ascend"), (&[3, 3], 1..4, "no row in its block")]
        {
            let block = Block { nodes, rows: &rows, places: None };
            let mut next = [0];
            let incoming = Incoming { sources, next: &mut next, ends: &[2], loops: None };
            let error = add_neighbours(incoming, &block, None, &mut sums, 1, 1).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
        let block = Block { nodes: 0..2, rows: &rows, places: None };
        let mut next = [0];
        let incoming = Incoming { sources: &[0_u32], next: &mut next, ends: &[2], loops: None };
        assert!(add_neighbours(incoming, &block, None, &mut sums, 1, 1).is_err());
    }
}
