//! In-degrees of all nodes, for models that weight neighbours by degree.

use outercore_core::{Context, Error, Result};
use outercore_format::DType;
use outercore_format::keys::{OFFSETS, SOURCES};
use outercore_io::{Engine, FileId};
use outercore_store::dataset::{ArrayRef, DataSet};

/// Elements processed together.
const CHUNK: u64 = 64 << 10;

/// The number of arcs into each node, with or without self-loops.
///
/// **Shapes** one value per node.
///
/// **Cost** one sequential read of the offsets; without self-loops also one of the sources.
///
/// # Errors
/// Failed reads; inconsistent offsets.
pub fn in_degrees(dataset: &DataSet, engine: &mut Engine, with_loops: bool) -> Result<Vec<f32>> {
    dataset.require_one_type("a table of in-degrees")?;
    let nodes = dataset.num_nodes();
    let mut offsets = Column::open(dataset.array(OFFSETS)?, engine)?;
    let mut sources = Column::open(dataset.array(SOURCES)?, engine)?;
    let mut degrees = Vec::with_capacity(nodes as usize);
    let mut first = 0;
    while first < nodes {
        let last = (first + CHUNK).min(nodes);
        let bounds = offsets.read(engine, first, last + 1)?;
        for (node, pair) in (first..).zip(bounds.windows(2)) {
            let degree = pair[1].checked_sub(pair[0]).ok_or_else(|| {
                Error::corrupt(format!(
                    "array `{OFFSETS}`: node {node}: its edges end before they begin"
                ))
                .hint("run `outercore check`")
            })?;
            degrees.push(degree as f32);
        }
        if !with_loops {
            let mut node = 0;
            let (mut at, end) = (bounds[0], bounds[bounds.len() - 1]);
            while at < end {
                let until = (at + CHUNK).min(end);
                for (position, source) in (at..).zip(sources.read(engine, at, until)?) {
                    while bounds[node + 1] <= position {
                        node += 1;
                    }
                    if source == first + node as u64 {
                        degrees[first as usize + node] -= 1.0;
                    }
                }
                at = until;
            }
        }
        first = last;
    }
    Ok(degrees)
}

/// An array of ids of 32 or 64 bits, read piece by piece.
struct Column {
    array: ArrayRef,
    file: FileId,
    bytes: Vec<u8>,
}

impl Column {
    fn open(array: ArrayRef, engine: &mut Engine) -> Result<Self> {
        if !matches!(array.dtype, DType::U32 | DType::U64) {
            return Err(Error::corrupt(format!("array `{}`: type {}", array.key, array.dtype)));
        }
        let file = engine.register(&array.path)?;
        Ok(Self { array, file, bytes: Vec::new() })
    }

    fn read(&mut self, engine: &mut Engine, start: u64, stop: u64) -> Result<Vec<u64>> {
        let size = self.array.dtype.size() as u64;
        self.bytes.resize(((stop - start) * size) as usize, 0);
        let at = self.array.data_offset + start * size;
        engine
            .read_into(self.file, at, &mut self.bytes)
            .with_context(|| format!("array `{}`", self.array.key))?;
        Ok(match self.array.dtype {
            DType::U32 => bytemuck::pod_collect_to_vec::<u8, u32>(&self.bytes)
                .into_iter()
                .map(u64::from)
                .collect(),
            _ => bytemuck::pod_collect_to_vec(&self.bytes),
        })
    }
}
