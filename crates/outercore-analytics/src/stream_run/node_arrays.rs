//! Arrays by node, read between passes: degrees and node ids, by partition.

use std::ops::Range;

use outercore_core::{Error, Result, command};
use outercore_grid::{GridShape, Order};
use outercore_io::{Engine, Kept};

use super::layout::{File, Layout, PartSlots};
use crate::program::Degree;

/// Bytes of a node array per read.
const CHUNK: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeArray {
    Order,
    Degrees(Degree),
}

/// Node arrays of consecutive partitions, so that a file in rank order is not read for each
/// partition.
///
/// They use the memory of the slots, which are free while nothing is read ahead.
pub(super) struct Dealt {
    what: NodeArray,
    first: usize,
    /// By partition, starting with `first`.
    lens: Vec<usize>,
    stride: usize,
    memory: Vec<Memory>,
    /// Values in each piece of memory.
    each: usize,
}

enum Memory {
    Slot(Kept),
    Own(Vec<u32>),
}

impl Memory {
    fn values(&self) -> &[u32] {
        match self {
            Self::Slot(bytes) => bytemuck::cast_slice(bytes),
            Self::Own(values) => values,
        }
    }

    fn values_mut(&mut self) -> &mut [u32] {
        match self {
            Self::Slot(bytes) => bytemuck::cast_slice_mut(bytes),
            Self::Own(values) => values,
        }
    }
}

impl Dealt {
    /// Memory for as many partitions as possible, starting with `first`; at least one.
    fn new(what: NodeArray, first: usize, shape: &GridShape, slots: &PartSlots) -> Self {
        let stride = shape.partition_len(0);
        let mut memory: Vec<_> = slots.take_free().into_iter().map(Memory::Slot).collect();
        let mut each = memory.iter().map(|slot| slot.values().len()).min().unwrap_or(0);
        if each * memory.len() < stride {
            memory = vec![Memory::Own(vec![0; stride])];
            each = stride;
        }
        let end = (first + each * memory.len() / stride.max(1)).min(shape.partitions());
        let lens = (first..end).map(|part| shape.partition_len(part)).collect();
        Self { what, first, lens, stride, memory, each }
    }

    fn has(&self, what: NodeArray, partition: usize) -> bool {
        self.what == what && (self.first..self.first + self.lens.len()).contains(&partition)
    }

    fn put(&mut self, partition: usize, local: usize, value: u32) {
        let at = (partition - self.first) * self.stride + local;
        self.memory[at / self.each].values_mut()[at % self.each] = value;
    }

    fn partition(&self, partition: usize) -> Vec<u32> {
        let start = (partition - self.first) * self.stride;
        let end = start + self.lens[partition - self.first];
        let mut values = Vec::with_capacity(end - start);
        let mut at = start;
        while at < end {
            let from = at % self.each;
            let to = self.each.min(from + end - at);
            values.extend_from_slice(&self.memory[at / self.each].values()[from..to]);
            at += to - from;
        }
        values
    }
}

impl Layout {
    /// The part of a node array that belongs to a partition; `dealt` has the partitions read by
    /// earlier calls.
    pub fn node_array(
        &self,
        engine: &mut Engine,
        dealt: &mut Option<Dealt>,
        what: NodeArray,
        partition: usize,
    ) -> Result<Vec<u32>> {
        let shape = *self.grid.shape();
        let len = shape.partition_len(partition);
        let Some(file) = self.file_of(what) else {
            return Ok((0..len).map(|local| shape.rank(partition, local) as u32).collect());
        };
        if shape.order == Order::Natural || shape.partitions() == 1 {
            let start = shape.rank(partition, 0);
            let mut values = vec![0u32; len];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
            engine.read_into(file.id, file.data + 4 * start, bytes)?;
            return checked(what, &shape, values);
        }
        // Freed before the next partitions are read.
        let held = dealt.take().filter(|dealt| dealt.has(what, partition));
        let held = match held {
            Some(held) => held,
            None => self.deal(engine, what, file, partition)?,
        };
        let values = checked(what, &shape, held.partition(partition))?;
        *dealt = Some(held);
        Ok(values)
    }

    /// Reads a node array once for several partitions, starting with `first`.
    fn deal(
        &self,
        engine: &mut Engine,
        what: NodeArray,
        file: File,
        first: usize,
    ) -> Result<Dealt> {
        let shape = *self.grid.shape();
        let partitions = shape.partitions();
        let mut dealt = Dealt::new(what, first, &shape, &self.slots);
        let wanted = first..first + dealt.lens.len();
        let (mut part, mut local) = (0, 0);
        each_chunk(engine, file, 0..shape.connected, &mut |values| {
            for &value in values {
                if wanted.contains(&part) {
                    dealt.put(part, local, value);
                }
                part += 1;
                if part == partitions {
                    (part, local) = (0, local + 1);
                }
            }
            Ok(())
        })?;
        Ok(dealt)
    }

    fn file_of(&self, what: NodeArray) -> Option<File> {
        match what {
            NodeArray::Order => self.files.order,
            NodeArray::Degrees(Degree::In) => Some(self.files.in_degrees),
            NodeArray::Degrees(Degree::Out) => Some(self.files.out_degrees),
        }
    }

    /// Passes a whole node array to `each(partition, local id, value)`, in storage order.
    pub fn scan(
        &self,
        engine: &mut Engine,
        what: NodeArray,
        each: &mut dyn FnMut(usize, usize, u32),
    ) -> Result<()> {
        let shape = *self.grid.shape();
        let partitions = shape.partitions();
        let (mut partition, mut local) = (0, 0);
        let mut next = |value| {
            each(partition, local, value);
            // Like `GridShape::place`, but without divisions.
            match shape.order {
                Order::Degree => partition += 1,
                Order::Natural => local += 1,
            }
            if partition == partitions {
                (partition, local) = (0, local + 1);
            } else if local == 1 << shape.partition_log2 {
                (partition, local) = (partition + 1, 0);
            }
        };
        let Some(file) = self.file_of(what) else {
            (0..shape.connected).for_each(|rank| next(rank as u32));
            return Ok(());
        };
        each_chunk(engine, file, 0..shape.connected, &mut |values| {
            for &value in values {
                if what == NodeArray::Order && u64::from(value) >= shape.nodes {
                    return Err(no_node(value, &shape));
                }
                next(value);
            }
            Ok(())
        })
    }

    /// Passes the ids of the nodes without arcs to `each`, in runs.
    pub fn isolated(&self, engine: &mut Engine, each: &mut dyn FnMut(&[u32])) -> Result<()> {
        let shape = *self.grid.shape();
        let Some(order) = self.files.order else {
            let mut ranks = shape.connected..shape.nodes;
            loop {
                let run: Vec<u32> =
                    ranks.by_ref().take(CHUNK / 4).map(|rank| rank as u32).collect();
                if run.is_empty() {
                    return Ok(());
                }
                each(&run);
            }
        };
        each_chunk(engine, order, shape.connected..shape.nodes, &mut |nodes| {
            if let Some(wrong) = nodes.iter().find(|&&node| u64::from(node) >= shape.nodes) {
                return Err(no_node(*wrong, &shape));
            }
            each(nodes);
            Ok(())
        })
    }

    /// Partition and local id of some nodes.
    pub fn place(&self, engine: &mut Engine, nodes: &[u64]) -> Result<Vec<Option<(usize, usize)>>> {
        let shape = *self.grid.shape();
        let Some(order) = self.files.order else {
            let place = |&node: &u64| (node < shape.connected).then(|| shape.place(node));
            return Ok(nodes.iter().map(place).collect());
        };
        let mut wanted: Vec<(u64, usize)> = nodes.iter().copied().zip(0..).collect();
        wanted.sort_unstable();
        let mut places = vec![None; nodes.len()];
        let mut rank = 0;
        each_chunk(engine, order, 0..shape.connected, &mut |found| {
            for &node in found {
                let node = u64::from(node);
                let first = wanted.partition_point(|&(wanted, _)| wanted < node);
                for &(_, at) in wanted[first..].iter().take_while(|wanted| wanted.0 == node) {
                    places[at] = Some(shape.place(rank));
                }
                rank += 1;
            }
            Ok(())
        })?;
        Ok(places)
    }
}

/// Passes the elements of a `u32` array to `each`, one chunk at a time.
fn each_chunk(
    engine: &mut Engine,
    file: File,
    elements: Range<u64>,
    each: &mut dyn FnMut(&[u32]) -> Result<()>,
) -> Result<()> {
    let mut chunk = vec![0u32; CHUNK / 4];
    let mut at = elements.start;
    while at < elements.end {
        let len = ((elements.end - at) as usize).min(chunk.len());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut chunk[..len]);
        engine.read_into(file.id, file.data + 4 * at, bytes)?;
        each(&chunk[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Checks that node ids are below the number of nodes.
fn checked(what: NodeArray, shape: &GridShape, values: Vec<u32>) -> Result<Vec<u32>> {
    if what == NodeArray::Order
        && let Some(wrong) = values.iter().find(|&&node| u64::from(node) >= shape.nodes)
    {
        return Err(no_node(*wrong, shape));
    }
    Ok(values)
}

fn no_node(found: u32, shape: &GridShape) -> Error {
    Error::corrupt(format!("grid `grid/edge/order`: node {found} of {} nodes", shape.nodes)).hint(
        format!(
            "run `outercore check DATASET`; `{}` mends it",
            command("grid DATASET", &[("overwrite", "")])
        ),
    )
}
