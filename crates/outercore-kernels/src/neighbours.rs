//! Sums over the in-neighbours of many nodes, of whose rows some are in memory at a time.
//!
//! A node's arcs ascend by source, and blocks of sources come in this order. Each arc is added to
//! its node's sum in turn: the bits of a sum depend on neither the blocks nor the threads.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::parallel::for_each;

/// Nodes that a thread takes at a time.
const NODES_AT_ONCE: usize = 128;

/// A node id as topologies store it.
pub trait Id: Copy + Sync {
    /// As an index.
    fn index(self) -> u64;
}

impl Id for u32 {
    #[inline(always)]
    fn index(self) -> u64 {
        u64::from(self)
    }
}

impl Id for u64 {
    #[inline(always)]
    fn index(self) -> u64 {
        self
    }
}

/// The arcs into some nodes, and how far each node has come.
pub struct Incoming<'a, I> {
    /// Sources of the arcs into a node, ascending, one node after the other.
    pub sources: &'a [I],
    /// Where the next arc of each node stands in `sources`; moves on.
    pub next: &'a mut [u64],
    /// Where its arcs end.
    pub ends: &'a [u64],
    /// The nodes themselves, for exactly one arc from each node to itself, in place of those in
    /// `sources`.
    pub loops: Option<&'a [u64]>,
}

/// The rows of consecutive sources.
#[derive(Clone)]
pub struct Block<'a> {
    /// Which sources.
    pub nodes: Range<u64>,
    /// `[rows, width]`.
    pub rows: &'a [f32],
    /// The row of each source; without it, source `nodes.start + i` has row `i`.
    pub places: Option<&'a [u32]>,
}

/// Softmax over a node's arcs, for each head: an arc weighs `exp(s)` by the sum of these, where `s`
/// is the number of its source and that of its node together, below 0 times `slope`.
pub struct Attention<'a> {
    /// `[all sources, heads]`.
    pub sources: &'a [f32],
    /// `[nodes, heads]`.
    pub nodes: &'a [f32],
    /// `[nodes, 2 heads]`: the largest `s` of each head, then the sums of `exp(s - largest)`.
    pub totals: &'a [f32],
    /// How many softmaxes there are for each node.
    pub heads: usize,
    /// What `s` is multiplied by where it is negative.
    pub slope: f32,
}

/// Adds the rows of a block to the sums of the nodes that have an arc from there.
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
    check(&incoming, block, attention, sums.len(), width)?;
    if width == 0 {
        return Ok(());
    }
    let failed = Mutex::new(None);
    let pieces: Vec<_> = incoming
        .next
        .chunks_mut(NODES_AT_ONCE)
        .zip(sums.chunks_mut(NODES_AT_ONCE * width))
        .enumerate()
        .collect();
    for_each(pieces, threads, |(piece, (next, sums))| {
        let first = piece * NODES_AT_ONCE;
        let found = dispatch(Adding {
            sources: incoming.sources,
            ends: &incoming.ends[first..first + next.len()],
            loops: incoming.loops.map(|nodes| &nodes[first..first + next.len()]),
            next,
            block,
            attention,
            first,
            sums,
            width,
        });
        if let Err(error) = found {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What [`Attention::totals`] has, of the arcs that `incoming` still has.
///
/// # Shapes
/// `totals` `[nodes, 2 heads]`; those of a node without an arc are minus infinity and 0.
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
    check_arcs(incoming)?;
    if !fits || heads == 0 {
        return Err(Error::invalid("attention: the numbers of nodes and heads do not fit"));
    }
    if let Some(wrong) = incoming.sources.iter().find(|id| id.index() >= sources as u64) {
        return Err(beyond(wrong.index(), sources as u64));
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
    let others = || arcs.iter().map(|id| id.index()).filter(|&id| Some(id) != own).chain(own);
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

struct Adding<'a, I> {
    sources: &'a [I],
    ends: &'a [u64],
    loops: Option<&'a [u64]>,
    next: &'a mut [u64],
    block: &'a Block<'a>,
    attention: Option<&'a Attention<'a>>,
    /// The place of the first node among all.
    first: usize,
    sums: &'a mut [f32],
    width: usize,
}

impl<I: Id> Kernel for Adding<'_, I> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> Result<()> {
        let nodes = &self.block.nodes;
        let sums = self.sums.chunks_exact_mut(self.width);
        for (place, (next, sum)) in self.next.iter_mut().zip(sums).enumerate() {
            let own = self.loops.map(|nodes| nodes[place]);
            // The arc to itself stands where it is in the order of sources.
            let mut waits = own.filter(|node| nodes.contains(node));
            let node = self.first + place;
            while *next < self.ends[place] {
                let source = self.sources[*next as usize].index();
                if source >= nodes.end {
                    break;
                }
                if source < nodes.start {
                    return Err(Error::corrupt(format!(
                        "sources of a node do not ascend: {source} is before {}",
                        nodes.start
                    ))
                    .hint("run `outercore check` on the data set"));
                }
                *next += 1;
                if Some(source) == own {
                    continue;
                }
                if let Some(itself) = waits.filter(|&itself| itself < source) {
                    add(self.block, self.attention, itself, node, sum)?;
                    waits = None;
                }
                add(self.block, self.attention, source, node, sum)?;
            }
            if let Some(itself) = waits {
                add(self.block, self.attention, itself, node, sum)?;
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn add(
    block: &Block<'_>,
    attention: Option<&Attention<'_>>,
    source: u64,
    node: usize,
    sum: &mut [f32],
) -> Result<()> {
    let offset = (source - block.nodes.start) as usize;
    let place = block.places.map_or(offset, |places| places[offset] as usize);
    let width = sum.len();
    let Some(row) = block.rows.get(place * width..(place + 1) * width) else {
        return Err(Error::corrupt(format!("source {source} has no row in its block"))
            .hint("run `outercore check` on the data set"));
    };
    let Some(attention) = attention else {
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum += value;
        }
        return Ok(());
    };
    let channels = width / attention.heads;
    let heads = sum.chunks_exact_mut(channels).zip(row.chunks_exact(channels));
    for (head, (sum, row)) in heads.enumerate() {
        let weight = attention.weight(source, node, head);
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum += weight * value;
        }
    }
    Ok(())
}

fn check<I: Id>(
    incoming: &Incoming<'_, I>,
    block: &Block<'_>,
    attention: Option<&Attention<'_>>,
    sums: usize,
    width: usize,
) -> Result<()> {
    let (nodes, count) = (incoming.next.len(), block.nodes.end.saturating_sub(block.nodes.start));
    check_arcs(incoming)?;
    let rows = block.rows.len() / width.max(1);
    let placed = block.places.is_none_or(|places| places.len() as u64 == count);
    if sums != nodes * width || block.rows.len() != rows * width || !placed {
        return Err(Error::invalid(format!(
            "sums over neighbours: {sums} numbers for {nodes} nodes, {} for a block of {count}, \
             expected rows of {width}",
            block.rows.len()
        )));
    }
    let Some(attention) = attention else {
        return Ok(());
    };
    let heads = attention.heads;
    let fits = heads > 0
        && width.is_multiple_of(heads)
        && attention.nodes.len() == nodes * heads
        && attention.totals.len() == 2 * nodes * heads
        && attention.sources.len() as u64 >= block.nodes.end * heads as u64;
    if fits {
        return Ok(());
    }
    Err(Error::invalid("attention: the numbers of nodes and heads do not fit"))
}

fn check_arcs<I: Id>(incoming: &Incoming<'_, I>) -> Result<()> {
    let nodes = incoming.next.len();
    let loops = incoming.loops.is_none_or(|ids| ids.len() == nodes);
    let arcs = incoming.sources.len() as u64;
    let within = |(next, end): (&u64, &u64)| next <= end && *end <= arcs;
    if incoming.ends.len() == nodes && loops && incoming.next.iter().zip(incoming.ends).all(within)
    {
        return Ok(());
    }
    Err(Error::invalid(format!("arcs into {nodes} nodes: bounds do not fit {arcs} sources")))
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

    /// Sums in the order of sources, each arc in turn, as they are defined.
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

    /// Sums over blocks of `step` sources, of which every block has its used rows alone.
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
