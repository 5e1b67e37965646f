//! Content of an imported array: checked and converted in chunks, judged at the end.

use outercore_core::{Error, Result, hint};
use outercore_format::DType;

use super::labels::Labels;
use super::number::{Number, convert, float, has_non_finite, number};
use super::refusal::Refusal;
use super::{ArraySummary, Duplicates, NonFinite};
use crate::npy::grouped;

/// The check of one kind of array, with its state between chunks.
pub(crate) enum Content {
    Matrix(Matrix),
    Labels(Labels),
    Split(Split),
}

impl Content {
    /// Checks the next whole elements and returns them in their stored form.
    pub fn take<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Matrix(matrix) => matrix.take(bytes),
            Self::Labels(labels) => labels.take(bytes),
            Self::Split(split) => split.take(bytes),
        }
    }

    /// Whether the array is already refused, so that no more of it has to be stored.
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Matrix(matrix) => matrix.refusal().is_some(),
            Self::Labels(labels) => labels.is_refused(),
            Self::Split(split) => split.refusal().is_some(),
        }
    }

    /// Judges all elements and fills in `summary`.
    ///
    /// # Errors
    /// `Invalid`, with the number of wrong values and the place of the first one.
    pub fn judge(&self, summary: &mut ArraySummary) -> Result<()> {
        let refusal = match self {
            Self::Matrix(matrix) => {
                (summary.nan, summary.infinite) = (matrix.nan, matrix.infinite);
                matrix.refusal()
            }
            Self::Labels(labels) => {
                summary.unlabelled = labels.unlabelled();
                summary.classes = labels.classes();
                summary.task = Some(labels.task());
                labels.refusal()
            }
            Self::Split(split) => {
                summary.duplicates = split.duplicates;
                split.refusal()
            }
        };
        refusal.map_or(Ok(()), Err)
    }
}

/// Rows of numbers: features, multi-label targets, any node array.
pub(crate) struct Matrix {
    from: DType,
    to: DType,
    columns: u64,
    non_finite: NonFinite,
    /// Elements so far.
    seen: u64,
    nan: u64,
    infinite: u64,
    first: Option<u64>,
    /// The first finite value that became infinite.
    overflow: Option<(u64, f64)>,
    /// The first integer that the conversion changed, or nonzero number that became 0.
    changed: Option<(u64, Number)>,
    converted: Vec<u8>,
}

impl Matrix {
    /// `to` must be `from` or a float type.
    pub fn new(from: DType, to: DType, columns: u64, non_finite: NonFinite) -> Self {
        let converted = Vec::new();
        Self {
            from,
            to,
            columns,
            non_finite,
            seen: 0,
            nan: 0,
            infinite: 0,
            first: None,
            overflow: None,
            changed: None,
            converted,
        }
    }

    fn take<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.from != self.to {
            self.converted.clear();
            convert(self.from, self.to, bytes, &mut self.converted);
            if self.changed.is_none() {
                let place = first_changed(self.from, self.to, bytes, &self.converted);
                self.changed = place.map(|(place, value)| (self.seen + place, value));
            }
        }
        let stored = if self.from == self.to { bytes } else { &self.converted };
        if has_non_finite(self.to, stored) {
            let (from, to) = (self.from.size(), self.to.size());
            let pairs = bytes.chunks_exact(from).zip(stored.chunks_exact(to));
            for (place, (before, after)) in (self.seen..).zip(pairs) {
                if float(self.to, after).is_finite() {
                    continue;
                }
                match float(self.from, before) {
                    value if value.is_finite() => {
                        self.overflow.get_or_insert((place, value));
                        continue;
                    }
                    value if value.is_nan() => self.nan += 1,
                    _ => self.infinite += 1,
                }
                self.first.get_or_insert(place);
            }
        }
        self.seen += (bytes.len() / self.from.size()) as u64;
        stored
    }

    fn refusal(&self) -> Option<Error> {
        if let Some((place, value)) = self.overflow {
            return Some(
                Error::invalid(format!(
                    "{}: {value:?} does not fit {}",
                    self.place(place),
                    self.to
                ))
                .hint("store them as bfloat16 or float32"),
            );
        }
        if let Some((place, value)) = self.changed {
            let value = match value {
                Number::Int(value) => value.to_string(),
                Number::Float(value) => format!("{value:?}"),
            };
            return Some(
                Error::invalid(format!(
                    "{}: {value} would change as {}",
                    self.place(place),
                    self.to
                ))
                .hint(hint!(
                    "store features by " {feature_dtype = "float64"} ", arrays in a type that "
                    "holds them; or scale the values before"
                )),
            );
        }
        let first = self.first.filter(|_| self.non_finite == NonFinite::Refuse)?;
        Some(
            Error::invalid(format!(
                "{} NaN and {} infinite values among {}, the first at {}",
                grouped(self.nan),
                grouped(self.infinite),
                grouped(self.seen),
                self.place(first)
            ))
            .hint(hint!(
                "give missing values a number (" {fill = "VALUE"} "), or allow them ("
                {fill = "nan"} ")"
            )),
        )
    }

    fn place(&self, element: u64) -> String {
        format!("row {}, column {}", element / self.columns, element % self.columns)
    }
}

/// 2^53: `float64` represents all integers below this exactly.
const ALL_WHOLE: f64 = 9_007_199_254_740_992.0;

/// The place of the first integer that the conversion changed, or of the first nonzero number that
/// became 0.
///
/// A float counts as an integer if its value is one and below 2^53. Beyond 2^53 every float is an
/// integer, so larger floats may be rounded like fractions.
fn first_changed(from: DType, to: DType, bytes: &[u8], stored: &[u8]) -> Option<(u64, Number)> {
    let pairs = bytes.chunks_exact(from.size()).zip(stored.chunks_exact(to.size()));
    for (place, (before, after)) in (0..).zip(pairs) {
        let (before, after) = (number(from, before), float(to, after));
        let changed = match before {
            Number::Int(value) => after.is_finite() && after as i128 != value,
            Number::Float(value) => {
                let is_whole = value.abs() < ALL_WHOLE && (value as i64) as f64 == value;
                value != 0.0 && after == 0.0 || is_whole && after.is_finite() && after != value
            }
        };
        if changed {
            return Some((place, before));
        }
    }
    None
}

/// A split: node ids, or one boolean per node.
pub(crate) struct Split {
    from: DType,
    nodes: u64,
    policy: Duplicates,
    seen: u64,
    /// One bit per node: whether its id has occurred.
    met: Vec<u64>,
    duplicates: u64,
    first_duplicate: Option<(u64, u64)>,
    refusal: Option<Refusal>,
    stored: Vec<u8>,
}

impl Split {
    /// A split of a graph with `nodes` nodes; booleans are a mask.
    pub fn new(from: DType, nodes: u64, policy: Duplicates) -> Self {
        Self {
            from,
            nodes,
            policy,
            seen: 0,
            met: vec![0; nodes.div_ceil(64) as usize],
            duplicates: 0,
            first_duplicate: None,
            refusal: None,
            stored: Vec::new(),
        }
    }

    /// Whether the rows are a mask over the nodes.
    pub fn is_mask(&self) -> bool {
        self.from == DType::Bool
    }

    fn take(&mut self, bytes: &[u8]) -> &[u8] {
        self.stored.clear();
        let elements = bytes.chunks_exact(self.from.size());
        for (row, element) in (self.seen..).zip(elements) {
            if self.is_mask() {
                if element[0] != 0 {
                    self.stored.extend_from_slice(&row.to_le_bytes());
                }
                continue;
            }
            match node_id(number(self.from, element), self.nodes) {
                Ok(id) => {
                    self.meet(row, id);
                    self.stored.extend_from_slice(&id.to_le_bytes());
                }
                Err(what) => {
                    let hint = "a split lists node ids, or has one boolean for each node".into();
                    self.refusal
                        .get_or_insert(Refusal { what: format!("row {row}: {what}"), hint });
                }
            }
        }
        self.seen += (bytes.len() / self.from.size()) as u64;
        &self.stored
    }

    fn meet(&mut self, row: u64, id: u64) {
        let (word, bit) = (&mut self.met[(id / 64) as usize], 1 << (id % 64));
        if *word & bit != 0 {
            self.duplicates += 1;
            self.first_duplicate.get_or_insert((row, id));
        }
        *word |= bit;
    }

    fn refusal(&self) -> Option<Error> {
        if let Some(refusal) = &self.refusal {
            return Some(refusal.error());
        }
        let (row, id) = self.first_duplicate.filter(|_| self.policy == Duplicates::Refuse)?;
        Some(
            Error::invalid(format!(
                "{} ids come more than once, the first again in row {row}: node {id}",
                grouped(self.duplicates)
            ))
            .hint("list every node once"),
        )
    }
}

/// The node id that a number represents.
pub(crate) fn node_id(number: Number, nodes: u64) -> std::result::Result<u64, String> {
    let value = match number {
        Number::Int(value) => value,
        Number::Float(value) => return Err(format!("{value} is not an integer")),
    };
    match u64::try_from(value) {
        Ok(id) if id < nodes => Ok(id),
        _ => Err(format!("node {value}, the graph has nodes 0 to {}", nodes as i128 - 1)),
    }
}
