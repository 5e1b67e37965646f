//! The links of a plain graph as triples of one relation, some of them held out.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

use outercore_core::{Context, Error, Result, Stream};
use outercore_format::DType;
use outercore_format::keys::{EDGE, OFFSETS, SOURCES};
use outercore_store::dataset::{ArrayRef, DataSet};
use serde::{Deserialize, Serialize};

use super::source::{OnTriples, Triples};

/// Which links of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkPart {
    /// Those to train on.
    Train,
    /// Held out to choose by.
    Valid,
    /// Held out for the final figures.
    Test,
}

/// How links are held out: a function of the unordered pair of nodes, so that nothing is stored and
/// both directions of a link fall together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// Share of the links for validation.
    pub valid: f64,
    /// Share of the links for the test.
    pub test: f64,
    /// Of the draw.
    pub seed: u64,
}

impl HeldOut {
    /// Tells these draws from others of the same seed.
    const STREAM: u64 = u64::from_be_bytes(*b"held out");

    /// Checks the shares.
    ///
    /// # Errors
    /// `Invalid`: not between 0 and 1, or nothing is left to train on.
    pub fn validate(&self) -> Result<()> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        if share(self.valid) && share(self.test) && self.valid + self.test < 1.0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "held-out links: shares {} and {}, expected 0 or more and together less than 1",
            self.valid, self.test
        )))
    }

    /// The part that a link belongs to.
    ///
    /// # Example
    /// ```
    /// use outercore_embed::{HeldOut, LinkPart};
    /// let held_out = HeldOut { valid: 0.0, test: 0.2, seed: 1 };
    /// assert_eq!(held_out.part_of(3, 8), held_out.part_of(8, 3));
    /// let tests = (0..1000).filter(|&node| held_out.part_of(node, 1) == LinkPart::Test);
    /// assert!((150..250).contains(&tests.count()));
    /// ```
    pub fn part_of(&self, source: u64, target: u64) -> LinkPart {
        if self.valid + self.test <= 0.0 {
            return LinkPart::Train;
        }
        let (low, high) = (source.min(target), source.max(target));
        let draw = Stream::new(self.seed, Self::STREAM).uniform(low, 0, high).unit();
        if draw < self.test {
            LinkPart::Test
        } else if draw < self.test + self.valid {
            LinkPart::Valid
        } else {
            LinkPart::Train
        }
    }
}

/// The links of a homogeneous graph: (source, 0, target) in the order of the targets. Of an
/// undirected graph every link once, with the lower number first.
///
/// **Memory**: 640 KiB while they are gone through.
#[derive(Clone, Debug)]
pub struct GraphTriples {
    name: String,
    offsets: ArrayRef,
    sources: ArrayRef,
    undirected: bool,
    held_out: HeldOut,
    part: LinkPart,
    count: u64,
}

impl GraphTriples {
    /// Links of `part`.
    ///
    /// **Cost**: one pass over the graph, to count them.
    ///
    /// # Errors
    /// `Invalid`: shares that are none. `NotFound`: a data set without a topology. `Corrupt`.
    pub fn open(data_set: &DataSet, held_out: HeldOut, part: LinkPart) -> Result<Self> {
        held_out.validate()?;
        let edge = data_set.manifest().edge_types.get(EDGE);
        let mut links = Self {
            name: format!("links of `{}`", data_set.root().display()),
            offsets: data_set.array(OFFSETS)?,
            sources: data_set.array(SOURCES)?,
            undirected: edge.is_some_and(|edge| edge.undirected),
            held_out,
            part,
            count: 0,
        };
        let mut count = 0;
        let mut reader = links.reader()?;
        while reader.next()?.is_some() {
            count += 1;
        }
        links.count = count;
        Ok(links)
    }

    /// Goes through them once.
    ///
    /// # Errors
    /// Those of opening files.
    pub fn reader(&self) -> Result<LinkReader> {
        let mut ends = Words::open(&self.offsets)?;
        let first = ends.next()?;
        if first != 0 {
            return Err(ends.corrupt(format!("begins with {first}, expected 0")));
        }
        Ok(LinkReader {
            ends,
            sources: Words::open(&self.sources)?,
            nodes: self.offsets.rows() - 1,
            next_target: 0,
            at: 0,
            end: 0,
            undirected: self.undirected,
            held_out: self.held_out,
            part: self.part,
        })
    }
}

impl Triples for GraphTriples {
    fn count(&self) -> u64 {
        self.count
    }

    fn weighted(&self) -> bool {
        false
    }

    fn for_each(&mut self, take: OnTriples<'_>) -> Result<()> {
        const CHUNK: usize = 4096;
        let mut reader = self.reader()?;
        let (mut first, mut triples) = (0, Vec::with_capacity(CHUNK));
        loop {
            let next = reader.next()?;
            triples.extend(next);
            if triples.len() == CHUNK || (next.is_none() && !triples.is_empty()) {
                take(first, &triples, &[])?;
                first += triples.len() as u64;
                triples.clear();
            }
            if next.is_none() {
                return Ok(());
            }
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// Goes through the links of a graph.
pub struct LinkReader {
    ends: Words,
    sources: Words,
    nodes: u64,
    /// The target after the one whose sources are gone through.
    next_target: u64,
    at: u64,
    end: u64,
    undirected: bool,
    held_out: HeldOut,
    part: LinkPart,
}

impl LinkReader {
    /// The next link, `None` after the last one.
    ///
    /// # Errors
    /// `Corrupt`: offsets that decrease, or a source that there is not. A failed read.
    #[allow(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<[i64; 3]>> {
        loop {
            while self.at == self.end {
                if self.next_target == self.nodes {
                    return Ok(None);
                }
                self.end = self.ends.next()?;
                self.next_target += 1;
                if self.end < self.at {
                    let text =
                        format!("{} after {} at node {}", self.end, self.at, self.next_target);
                    return Err(self.ends.corrupt(text));
                }
            }
            let (source, target) = (self.sources.next()?, self.next_target - 1);
            self.at += 1;
            if source >= self.nodes {
                let text = format!("source {source}, expected 0 to {}", self.nodes - 1);
                return Err(self.sources.corrupt(text));
            }
            let once = !self.undirected || source <= target;
            if once && self.held_out.part_of(source, target) == self.part {
                return Ok(Some([source as i64, 0, target as i64]));
            }
        }
    }
}

/// Unsigned integers of an array, one after the other.
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
        Ok(Self { key: array.key.clone(), wide, file: BufReader::with_capacity(256 << 10, file) })
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
