use std::fmt;
use std::str::FromStr;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_format::Provenance;
use serde::{Deserialize, Serialize};

use crate::import::Duplicates;

/// A part of the triples of a knowledge graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Triples for training.
    Train,
    /// Triples that decide when to stop the training.
    Valid,
    /// Triples for the final evaluation.
    Test,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; 3] = [Self::Train, Self::Valid, Self::Test];

    /// The key of the array of its triples.
    pub fn key(self) -> String {
        format!("triples/{self}")
    }

    /// The key of the array of its weights.
    pub fn weight_key(self) -> String {
        format!("triples/{self}.weight")
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        })
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|part| part.to_string() == text).ok_or_else(|| {
            Error::invalid(format!("part `{text}` of the triples: expected train, valid or test"))
        })
    }
}

/// Treatment of entities and relations in `valid` and `test` that do not occur in `train`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// Refuse the import and list them.
    #[default]
    Error,
    /// Drop the triples with such an entity or relation.
    Drop,
    /// Give them ids like all others, although nothing is learned about them.
    Keep,
}

/// Meaning of an input column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Column {
    /// The head of the triple.
    Head,
    /// The relation.
    Relation,
    /// The tail of the triple.
    Tail,
    /// The weight of the triple.
    Weight,
    /// Another value, which is skipped.
    Skip,
}

/// The columns of the input, in order: `hrt`, `htr`, `hrtw`, `h_rt`.
///
/// # Example
/// ```
/// use outercore_store::import::{Column, Columns};
/// # fn main() -> outercore_core::Result<()> {
/// let columns: Columns = "htr".parse()?;
/// assert_eq!(columns.to_string(), "htr");
/// assert_eq!(columns.place(Column::Relation), Some(2));
/// assert!(!columns.has_weight());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns(Vec<Column>);

impl Columns {
    /// Number of columns.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Index of a column, from 0.
    pub fn place(&self, column: Column) -> Option<usize> {
        self.0.iter().position(|found| *found == column)
    }

    /// Whether triples have weights.
    pub fn has_weight(&self) -> bool {
        self.place(Column::Weight).is_some()
    }

    /// The columns as text for messages.
    pub(crate) fn in_words(&self) -> String {
        let words = self.0.iter().map(|column| match column {
            Column::Head => "head",
            Column::Relation => "relation",
            Column::Tail => "tail",
            Column::Weight => "weight",
            Column::Skip => "anything",
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self(vec![Column::Head, Column::Relation, Column::Tail])
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for column in &self.0 {
            f.write_str(match column {
                Column::Head => "h",
                Column::Relation => "r",
                Column::Tail => "t",
                Column::Weight => "w",
                Column::Skip => "_",
            })?;
        }
        Ok(())
    }
}

impl FromStr for Columns {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const MOST: usize = 64;
        let wrong = |what: String| {
            Error::invalid(format!("columns `{text}`: {what}"))
                .hint("write one letter a column: `h` head, `r` relation, `t` tail, `w` weight, `_` anything else")
        };
        let mut columns = Vec::new();
        for letter in text.chars() {
            columns.push(match letter {
                'h' => Column::Head,
                'r' => Column::Relation,
                't' => Column::Tail,
                'w' => Column::Weight,
                '_' => Column::Skip,
                other => return Err(wrong(format!("unknown letter `{other}`"))),
            });
        }
        if columns.len() > MOST {
            return Err(wrong(format!("{} columns, expected at most {MOST}", columns.len())));
        }
        let count = |column| columns.iter().filter(|found| **found == column).count();
        for (column, letter) in [(Column::Head, 'h'), (Column::Relation, 'r'), (Column::Tail, 't')]
        {
            if count(column) != 1 {
                let found = count(column);
                return Err(wrong(format!("`{letter}` comes {found} times, expected once")));
            }
        }
        if count(Column::Weight) > 1 {
            return Err(wrong("`w` comes more than once".to_owned()));
        }
        Ok(Self(columns))
    }
}

/// Options of an import of triples.
#[derive(Clone, Debug)]
pub struct TripleImportOptions {
    /// All memory of the import; at least [`TripleImportOptions::LEAST_MEMORY`].
    pub memory: Bytes,
    /// Columns of the texts. Whether they include a weight also applies to batches.
    pub columns: Columns,
    /// Treatment of entities and relations that do not occur in `train`.
    pub unknown: Unknown,
    /// Whether only the first of repeated triples in a part is kept.
    pub duplicates: Duplicates,
    /// Whether to replace an existing data set or unfinished import in the directory.
    pub overwrite: bool,
    /// Provenance to record in the manifest.
    pub provenance: Provenance,
    /// Buffer sizes; derived from `memory` unless a test sets them.
    #[doc(hidden)]
    pub tuning: Option<TripleTuning>,
}

impl Default for TripleImportOptions {
    fn default() -> Self {
        Self {
            memory: Bytes::gib(1),
            columns: Columns::default(),
            unknown: Unknown::default(),
            duplicates: Duplicates::default(),
            overwrite: false,
            provenance: Provenance::default(),
            tuning: None,
        }
    }
}

impl TripleImportOptions {
    /// The least memory of an import.
    pub const LEAST_MEMORY: Bytes = Bytes::mib(16);

    pub(crate) fn tuning(&self) -> Result<TripleTuning> {
        if let Some(tuning) = self.tuning {
            return Ok(tuning);
        }
        let least = Self::LEAST_MEMORY;
        if self.memory < least {
            return Err(Error::new(
                ErrorKind::Budget,
                format!(
                    "import of triples needs at least {least} of memory, found {}",
                    self.memory
                ),
            )
            .hint(crate::import::options::least_memory(least.0 >> 20)));
        }
        Ok(TripleTuning::of(self.memory))
    }
}

/// Sizes of all buffers of an import of triples. The phases run one after the other; each takes at
/// most three quarters of the memory.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TripleTuning {
    /// Bytes of text that are read at once; at most six blocks exist at a time.
    pub text_block: usize,
    /// Bytes for the entity names of a chunk.
    pub entities: usize,
    /// Bytes for the relation names of a chunk.
    pub relations: usize,
    /// Bytes for reading while dictionaries are merged, and as many for writing. Also bytes for
    /// sorting.
    pub merging: usize,
    /// Smallest useful size of a buffer, in bytes.
    pub smallest_buffer: usize,
    /// Bytes of triples written between two durable points.
    pub checkpoint: u64,
}

impl TripleTuning {
    /// Divides `memory` between the buffers.
    pub fn of(memory: Bytes) -> Self {
        let memory = memory.as_usize();
        Self {
            text_block: (memory / 64).clamp(64 << 10, 1 << 20),
            entities: memory / 16 * 7,
            relations: memory / 16,
            merging: memory / 4,
            smallest_buffer: 4 << 10,
            checkpoint: 512 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_and_bad_ones_explained() {
        for text in ["hrt", "htr", "trh", "hrtw", "_h_r_t", "wthr"] {
            assert_eq!(text.parse::<Columns>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("", "`h` comes 0 times"),
            ("hr", "`t` comes 0 times"),
            ("hrth", "`h` comes 2 times"),
            ("hrtx", "unknown letter `x`"),
            ("hrtww", "`w` comes more than once"),
        ] {
            let error = text.parse::<Columns>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("hint: "), "{error}");
        }
    }

    #[test]
    fn too_little_memory_is_refused_with_the_least() {
        let options = TripleImportOptions { memory: Bytes::mib(3), ..Default::default() };
        let error = options.tuning().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert!(error.to_string().contains("`memory=16MiB`"), "{error}");
    }
}
