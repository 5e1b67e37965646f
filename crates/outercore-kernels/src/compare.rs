//! Prepares the comparisons of a batch's triples: divides the triples into chunks, and draws
//! negatives for each chunk.

use outercore_core::{Error, Result, count_pieces};

use crate::batch::{Chunk, Questions};
use crate::divide::{Askers, divide};
use crate::draw::{Occasion, Population, draw};
use crate::parallel::for_each;

/// The negatives of some anchors, and their weights for each kind of anchor.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// The rows, and the number of rows to draw.
    pub from: Population<'a>,
    /// Added to the score of a row, by the row's range: `[kinds, ranges]`. `None`: nothing is
    /// added, and there is one kind.
    pub logs: Option<&'a [f32]>,
}

/// How the anchors of one side draw, and from which rows.
#[derive(Clone, Debug)]
pub struct Anchors<'a> {
    /// The group and kind of an anchor, by its range.
    pub askers: Askers<'a>,
    /// By group.
    pub shared: Vec<Shared<'a>>,
}

/// The rules for comparisons: the same for all batches of a pool.
#[derive(Clone, Debug)]
pub struct Comparisons<'a> {
    /// For tails, whose anchors are heads, and for heads, whose anchors are tails.
    pub sides: [Anchors<'a>; 2],
    /// Approximate number of triples that share a draw.
    pub chunk: usize,
    /// Uses every row instead of drawing some.
    pub every: bool,
    /// Whether scores are corrected for rows that are drawn more often.
    pub biased: bool,
}

/// Questions for one side of a batch's triples, with owned memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Places of the triples.
    pub places: Vec<i64>,
    /// The chunks, in the order of the triples.
    pub chunks: Vec<Chunk>,
    /// Candidates of all chunks, ascending within each.
    pub candidates: Vec<i64>,
    /// Bias of each chunk, `[kinds, candidates]`.
    pub bias: Option<Vec<f32>>,
    /// The kind of each triple in its chunk; `None`: all have the first kind.
    pub kinds: Option<Vec<i64>>,
}

impl Asked {
    /// The questions, borrowed.
    pub fn questions(&self) -> Questions<'_> {
        Questions {
            places: &self.places,
            chunks: &self.chunks,
            candidates: &self.candidates,
            bias: self.bias.as_deref(),
            kinds: self.kinds.as_deref(),
        }
    }
}

/// Rows of a chunk, and their bias by kind.
type Compared = (Vec<i64>, Option<Vec<f32>>);

/// A chunk that needs rows: its side, group and triples.
struct Wanted {
    side: usize,
    group: usize,
    triples: usize,
}

impl Comparisons<'_> {
    /// Divides the triples at `places` of a pool into chunks and draws for each chunk, first for
    /// tails, then for heads. `occasion` is the occasion of the batch's first draw.
    ///
    /// `triples` are rows of head, relation and tail.
    ///
    /// # Errors
    /// Invalid: as [`divide`] and [`draw`]; a number of logarithms that does not fit the ranges.
    pub fn ask(
        &self,
        triples: &[i64],
        places: &[i64],
        occasion: Occasion,
        threads: usize,
    ) -> Result<[Asked; 2]> {
        let mut asked: [Asked; 2] = Default::default();
        let mut wanted = Vec::new();
        for (side, (anchors, asked)) in self.sides.iter().zip(&mut asked).enumerate() {
            self.divide(triples, places, side, anchors, asked, &mut wanted)?;
        }
        let mut found: Vec<Option<Result<Compared>>> = wanted.iter().map(|_| None).collect();
        let numbered = wanted.iter().zip(occasion.number..).zip(&mut found);
        for_each(numbered.collect(), threads, |((wanted, number), found)| {
            let shared = &self.sides[wanted.side].shared[wanted.group];
            let occasion = Occasion { number, ..occasion };
            *found = Some(self.rows(shared, occasion));
        });
        for (wanted, found) in wanted.iter().zip(found) {
            let (rows, bias) = found.unwrap_or_else(|| Err(Error::internal("no draw")))?;
            let asked = &mut asked[wanted.side];
            let kinds = bias.as_ref().map_or(1, |bias| bias.len() / rows.len().max(1));
            asked.chunks.push(Chunk { triples: wanted.triples, candidates: rows.len(), kinds });
            asked.candidates.extend(rows);
            if let Some(bias) = bias {
                asked.bias.get_or_insert_default().extend(bias);
            }
        }
        Ok(asked)
    }

    /// Computes places and kinds of a side, and its chunks in order.
    fn divide(
        &self,
        triples: &[i64],
        places: &[i64],
        side: usize,
        anchors: &Anchors<'_>,
        asked: &mut Asked,
        wanted: &mut Vec<Wanted>,
    ) -> Result<()> {
        let mut chunks = |group: usize, count: usize| {
            let pieces = if count == 0 { 0 } else { count_pieces(count, self.chunk) };
            wanted.extend((0..pieces).map(|piece| {
                let triples = count / pieces + usize::from(piece < count % pieces);
                Wanted { side, group, triples }
            }));
        };
        let alike = |shared: &Shared<'_>| shared.kinds() == Some(1);
        if let [shared] = &anchors.shared[..]
            && alike(shared)
        {
            chunks(0, places.len());
            asked.places = places.to_vec();
            return Ok(());
        }
        let groups = anchors.shared.len();
        let mut of_triples = Vec::with_capacity(places.len());
        // For predicting tails, a triple's anchor is its head.
        let divided = divide(triples, 2 * side, places, anchors.askers, groups)?;
        for (group, (some, kinds)) in divided.into_iter().enumerate() {
            chunks(group, some.len());
            asked.places.extend(some);
            of_triples.extend(kinds);
        }
        asked.kinds = Some(of_triples);
        Ok(())
    }

    fn rows(&self, shared: &Shared<'_>, occasion: Occasion) -> Result<Compared> {
        let ranges = shared.from.ranges;
        if shared.kinds().is_none() {
            let (found, count) = (shared.logs.map_or(0, <[f32]>::len), ranges.len());
            let text = format!("negatives: {found} logarithms of {count} ranges");
            return Err(Error::invalid(text));
        }
        if !self.every {
            let drawn = draw(shared.from, occasion)?;
            let bias = match shared.logs {
                Some(logs) => Some(drawn.bias_by_kind(logs, ranges.len(), self.biased)?),
                None => self.biased.then_some(drawn.bias),
            };
            return Ok((drawn.rows, bias));
        }
        // Ranges need not be in the order of their rows.
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_unstable_by_key(|&range| ranges[range]);
        let rows = order.iter().flat_map(|&range| ranges[range].0..ranges[range].1).collect();
        let bias = |logs: &[f32]| -> Vec<f32> {
            let of_kind = |logs: &[f32]| -> Vec<f32> {
                let of_range = |&range: &usize| {
                    let (start, stop) = ranges[range];
                    std::iter::repeat_n(logs[range], (stop - start).max(0) as usize)
                };
                order.iter().flat_map(of_range).collect()
            };
            logs.chunks_exact(ranges.len()).flat_map(of_kind).collect()
        };
        Ok((rows, shared.logs.map(bias)))
    }
}

impl Shared<'_> {
    /// Number of kinds of anchors; `None` if the number of logarithms does not fit the ranges.
    fn kinds(&self) -> Option<usize> {
        let (logs, ranges) = (self.logs.map_or(0, <[f32]>::len), self.from.ranges.len());
        match self.logs {
            None => Some(1),
            Some(_) if ranges > 0 && logs > 0 && logs.is_multiple_of(ranges) => Some(logs / ranges),
            Some(_) => None,
        }
    }
}
