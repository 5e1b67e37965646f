//! Names of relations, read one at a time.

use outercore_core::{Error, Result};

use crate::dataset::{ArrayFile, DataSet};

impl DataSet {
    /// The name of a relation of a knowledge graph.
    ///
    /// # Errors
    /// `NotFound`: the data set has no names. `Invalid`: no such relation. `Corrupt`: damaged
    /// names.
    pub fn relation_name(&self, relation: u64) -> Result<String> {
        let (offsets, bytes) = ("names/relation.offsets", "names/relation.bytes");
        let ends = self.read_rows(offsets, &[relation, relation.saturating_add(1)])?;
        let end = |of: usize| u64::from_le_bytes(std::array::from_fn(|byte| ends[8 * of + byte]));
        let array = self.array(bytes)?;
        let corrupt = || {
            Error::corrupt(format!("array `{offsets}`: relation {relation} has no name"))
                .hint("run `outercore check DATASET`")
        };
        if ends.len() != 16 || end(0) > end(1) || end(1) > array.rows() {
            return Err(corrupt());
        }
        let mut name = vec![0; (end(1) - end(0)) as usize];
        ArrayFile::open(array)?.read(end(0), &mut name)?;
        String::from_utf8(name).map_err(|_| corrupt())
    }
}
