//! The links of a graph as triples, some of them held out. There is one relation, or one for each
//! edge type.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

use outercore_core::{Bytes, Context, Error, Result};
use outercore_format::keys::{EDGE, EDGE_IDS, OFFSETS, SOURCES};
use outercore_format::{DType, Schema};
use outercore_store::dataset::{ArrayRef, DataSet};

use super::held_out::{HeldOut, TriplePart};
use super::progress::{OnProgress, Pass};
use super::source::{OnTriples, TripleReader, Triples};
use super::weights::{LinkWeights, edge_weights};

/// The links of a graph as triples (source, 0, target), in the order of the targets. In an
/// undirected graph every link occurs once, with the lower id first.
///
/// With several edge types: (source, index of the edge type, target), type after type, with global
/// node ids.
#[derive(Clone, Debug)]
pub struct GraphLinks {
    name: String,
    offsets: ArrayRef,
    sources: ArrayRef,
    /// `None` if the edge id of an arc is its position.
    ids: Option<ArrayRef>,
    weights: Option<ArrayRef>,
    undirected: bool,
    schema: Arc<Schema>,
    held_out: HeldOut,
    part: TriplePart,
}

impl GraphLinks {
    /// Opens the links of `part`.
    ///
    /// # Errors
    /// `Invalid`: wrong shares, or weights that are not one number per row of the edge list.
    /// `NotFound`: a data set without a topology.
    pub fn open(data_set: &DataSet, held_out: HeldOut, part: TriplePart) -> Result<Self> {
        held_out.validate()?;
        let edge = data_set.manifest().edge_types.get(EDGE);
        Ok(Self {
            name: format!("links of `{}`", data_set.root().display()),
            offsets: data_set.array(OFFSETS)?,
            sources: data_set.array(SOURCES)?,
            ids: data_set.has_array(EDGE_IDS).then(|| data_set.array(EDGE_IDS)).transpose()?,
            weights: edge_weights(data_set)?,
            undirected: edge.is_some_and(|edge| edge.undirected),
            schema: data_set.schema().clone(),
            held_out,
            part,
        })
    }

    /// Whether links have weights. They do if the graph has edge weights (`edges/edge/weight`) and
    /// a single edge type; a link has the weight of its row in the edge list.
    pub fn weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// Numbers of links for training, validation and test.
    ///
    /// **Cost**: one pass over the graph, if links are held out or the graph is undirected.
    ///
    /// # Errors
    /// Errors of `on_progress`. `Corrupt`; a failed read.
    pub fn counts(&self, on_progress: OnProgress<'_>) -> Result<[u64; 3]> {
        let arcs = self.sources.rows();
        if !self.undirected && !self.held_out.any() {
            return Ok([arcs, 0, 0]);
        }
        let mut pass = Pass::begin("count links", arcs, on_progress)?;
        let mut counts = [0; 3];
        let (mut reader, mut told) = (self.reader()?, 0);
        while let Some([source, target]) = reader.next_link()? {
            counts[self.held_out.part_of(source, target) as usize] += 1;
            if reader.at - told >= Self::CHUNK as u64 {
                pass.add(reader.at - told)?;
                told = reader.at;
            }
        }
        pass.add(arcs - told)?;
        Ok(counts)
    }

    /// A reader that passes over the links once.
    ///
    /// # Errors
    /// Errors of opening the files.
    pub fn reader(&self) -> Result<LinkReader> {
        self.reader_with(None)
    }

    const CHUNK: usize = 2048;

    /// The same, with edge ids from `ids`.
    fn reader_with(&self, ids: Option<&ArrayRef>) -> Result<LinkReader> {
        let mut ends = Words::open(&self.offsets)?;
        let first = ends.next()?;
        if first != 0 {
            return Err(ends.corrupt(format!("begins with {first}, expected 0")));
        }
        Ok(LinkReader {
            ends,
            sources: Words::open(&self.sources)?,
            ids: ids.map(Words::open).transpose()?,
            edge_id: 0,
            schema: self.schema.clone(),
            columns: self.offsets.rows() - 1,
            next_column: 0,
            relation: 0,
            at: 0,
            end: 0,
            undirected: self.undirected,
            held_out: self.held_out,
            part: self.part,
        })
    }
}

/// The links of a graph as triples, with weights if they have some.
///
/// **Memory**: 512 KiB during a pass, and the memory that [`Triples::take_memory`] has taken.
#[derive(Clone, Debug)]
pub struct GraphTriples {
    links: GraphLinks,
    count: u64,
    /// Number of links to pass on at once.
    chunk: usize,
}

impl GraphTriples {
    /// The triples of `links`, whose number is `count` according to [`GraphLinks::counts`].
    pub fn new(links: GraphLinks, count: u64) -> Self {
        Self { links, count, chunk: GraphLinks::CHUNK }
    }
}

impl Triples for GraphTriples {
    fn count(&self) -> u64 {
        self.count
    }

    fn weighted(&self) -> bool {
        self.links.weighted()
    }

    fn take_memory(&mut self, spare: Bytes) -> Bytes {
        if !self.weighted() {
            return Bytes(0);
        }
        let each = (size_of::<[i64; 3]>() + LinkWeights::EACH) as u64;
        let least = GraphLinks::CHUNK as u64;
        let most = self.count.clamp(least, u32::MAX.into());
        let more = (spare.0 / each).min(most - least);
        self.chunk = (least + more) as usize;
        Bytes(more * each)
    }

    fn for_each(&mut self, take: OnTriples<'_>) -> Result<()> {
        let open = |array| LinkWeights::open(array, self.chunk);
        let GraphLinks { weights, ids, .. } = &self.links;
        let mut gathered = weights.as_ref().map(open).transpose()?;
        let mut reader = self.links.reader_with(gathered.as_ref().and(ids.as_ref()))?;
        let (mut first, mut triples) = (0, Vec::with_capacity(self.chunk));
        loop {
            let next = reader.next()?;
            triples.extend(next);
            if let (Some(gathered), Some(_)) = (&mut gathered, next) {
                gathered.want(reader.edge_id);
            }
            if triples.len() == self.chunk || (next.is_none() && !triples.is_empty()) {
                let weights = gathered.as_mut().map(LinkWeights::read).transpose()?;
                take(first, &triples, weights.unwrap_or_default())?;
                first += triples.len() as u64;
                triples.clear();
            }
            if next.is_none() {
                return Ok(());
            }
        }
    }

    fn name(&self) -> String {
        self.links.name.clone()
    }
}

/// Reads the links of a graph, one after the other.
pub struct LinkReader {
    ends: Words,
    sources: Words,
    ids: Option<Words>,
    /// Edge id of the last link, or its position if there are no ids.
    edge_id: u64,
    schema: Arc<Schema>,
    columns: u64,
    /// The column after the current one.
    next_column: u64,
    /// Index of the current column's edge type.
    relation: usize,
    at: u64,
    end: u64,
    undirected: bool,
    held_out: HeldOut,
    part: TriplePart,
}

impl LinkReader {
    /// The next link; `None` after the last one.
    ///
    /// # Errors
    /// `Corrupt`: offsets that decrease, or an unknown source. A failed read.
    #[allow(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<[i64; 3]>> {
        while let Some([source, target]) = self.next_link()? {
            if self.held_out.part_of(source, target) == self.part {
                return Ok(Some([source as i64, self.relation as i64, target as i64]));
            }
        }
        Ok(None)
    }

    /// The next link of any part.
    fn next_link(&mut self) -> Result<Option<[u64; 2]>> {
        loop {
            while self.at == self.end {
                if self.next_column == self.columns {
                    return Ok(None);
                }
                self.end = self.ends.next()?;
                self.next_column += 1;
                if self.end < self.at {
                    let text =
                        format!("{} after {} at row {}", self.end, self.at, self.next_column);
                    return Err(self.ends.corrupt(text));
                }
            }
            let source = self.sources.next()?;
            self.edge_id = self.ids.as_mut().map_or(Ok(self.at), Words::next)?;
            self.at += 1;
            let target = self.target_of(source)?;
            if !self.undirected || source <= target {
                return Ok(Some([source, target]));
            }
        }
    }

    /// The target of the current column, for an arc from `source`.
    ///
    /// # Errors
    /// `Corrupt`: a column without an edge type, or a source outside the source type of its edge
    /// type.
    fn target_of(&mut self, source: u64) -> Result<u64> {
        let (types, column) = (self.schema.edge_types(), self.next_column - 1);
        while types.get(self.relation).is_some_and(|range| range.columns.end <= column) {
            self.relation += 1;
        }
        let Some(edge_type) = types.get(self.relation) else {
            let columns = self.schema.num_columns();
            return Err(self.ends.corrupt(format!("{} columns, expected {columns}", self.columns)));
        };
        let node_types = self.schema.node_types();
        let expected = &node_types[edge_type.source].nodes;
        if !expected.contains(&source) {
            let last = expected.end.saturating_sub(1);
            let text = format!("source {source}, expected {} to {last}", expected.start);
            return Err(self.sources.corrupt(text));
        }
        Ok(node_types[edge_type.target].nodes.start + (column - edge_type.columns.start))
    }
}

impl TripleReader for LinkReader {
    fn next_triples(&mut self, most: usize) -> Result<Vec<[i64; 3]>> {
        let mut found = Vec::new();
        while found.len() < most {
            let Some(link) = self.next()? else { break };
            found.push(link);
        }
        Ok(found)
    }
}

/// Buffer size for each array.
const BUFFER: usize = 96 << 10;

/// Reads the unsigned integers of an array, one after the other.
struct Words {
    key: String,
    wide: bool,
    file: BufReader<File>,
}

impl Words {
    fn open(array: &ArrayRef) -> Result<Self> {
        let describe = || format!("array `{}`", array.key);
        let wide = match array.dtype {
            DType::U32 => false,
            DType::U64 => true,
            other => return Err(Error::corrupt(format!("{}: of type {other}", describe()))),
        };
        let mut file = File::open(&array.path).with_context(describe)?;
        file.seek(SeekFrom::Start(array.data_offset)).with_context(describe)?;
        Ok(Self { key: array.key.clone(), wide, file: BufReader::with_capacity(BUFFER, file) })
    }

    fn next(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        let width = if self.wide { 8 } else { 4 };
        self.file
            .read_exact(&mut bytes[..width])
            .with_context(|| format!("array `{}`", self.key))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn corrupt(&self, text: String) -> Error {
        Error::corrupt(format!("array `{}`: {text}", self.key)).hint("run `outercore check`")
    }
}
