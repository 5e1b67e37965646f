//! The weights of a grid: an edge array, stored in the narrowest type that represents every value
//! exactly.

use outercore_core::{Error, Result};
use outercore_format::DType;
use outercore_store::arrays::append_f64;
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::verified::VerifiedReader;

use super::input::READ;
use super::record::Weight;
use crate::source::GridSource;

/// The requested edge array of weights.
pub(super) struct Weights {
    name: String,
    stored: ArrayRef,
}

impl Weights {
    /// Opens the edge array `name` of `source`. It must have `rows` rows, if that number is known.
    ///
    /// # Errors
    /// `NotFound`, with the existing arrays. `Invalid`: more than one number per row, or another
    /// number of rows; several edge types.
    pub(super) fn open(
        data_set: &DataSet,
        source: &GridSource,
        name: &str,
        rows: Option<u64>,
    ) -> Result<Self> {
        let key = source.edge_array(name)?;
        if !data_set.has_array(&key) {
            return Err(source.no_array(data_set, name));
        }
        let stored = data_set.array(&key)?;
        if stored.shape.len() != 1 || rows.is_some_and(|rows| rows != stored.rows()) {
            let expected = rows.map_or("one number a row".to_owned(), |rows| format!("[{rows}]"));
            return Err(Error::invalid(format!(
                "edge array `{name}`: shape {:?}, expected {expected}",
                stored.shape
            )));
        }
        Ok(Self { name: name.to_owned(), stored })
    }

    /// Number of rows of the array.
    pub(super) fn rows(&self) -> u64 {
        self.stored.rows()
    }

    /// Whether some weight is not exact as `float32`.
    ///
    /// **Cost**: reads the array if its type does not decide this.
    ///
    /// # Errors
    /// As [`Weights::read`].
    pub(super) fn are_wide(&self) -> Result<bool> {
        let wide = [DType::F64, DType::I32, DType::I64, DType::U32, DType::U64];
        if !wide.contains(&self.stored.dtype) {
            return Ok(false);
        }
        let mut found = false;
        self.each(&mut |weights| {
            found |= weights.iter().any(|&weight| f64::from(weight as f32) != weight);
        })?;
        Ok(found)
    }

    /// All weights, by edge id.
    ///
    /// # Errors
    /// `Invalid`, naming the first row whose weight is not finite, or is an integer that `float64`
    /// cannot represent exactly. `Corrupt`: the bytes differ from the written ones.
    pub(super) fn read<W: Weight>(&self) -> Result<Vec<W>> {
        let mut all = Vec::with_capacity(self.rows() as usize);
        self.each(&mut |weights| all.extend(weights.iter().map(|&weight| W::nearest(weight))))?;
        Ok(all)
    }

    /// Calls `each` with all weights, in order and in parts.
    fn each(&self, each: &mut dyn FnMut(&[f64])) -> Result<()> {
        let (dtype, rows) = (self.stored.dtype, self.rows());
        let mut buffer = vec![0u64; READ / 8 / 8];
        let mut weights = Vec::new();
        let mut stored = VerifiedReader::open(self.stored.clone())?;
        let mut first = 0;
        while first < rows {
            let room = (8 * buffer.len() / dtype.size()) as u64;
            let part = room.min(rows - first) as usize;
            let bytes = &mut bytemuck::cast_slice_mut(&mut buffer)[..part * dtype.size()];
            stored.read(bytes)?;
            weights.clear();
            let beyond = append_f64(dtype, bytes, &mut weights);
            if let Some(at) = weights.iter().position(|weight: &f64| !weight.is_finite()) {
                return Err(self.refused(first + at as u64, weights[at]));
            }
            if let Some(integer) = beyond {
                let row = first + weights.len() as u64;
                let name = &self.name;
                return Err(Error::invalid(format!(
                    "edge array `{name}`: row {row} is {integer}, which float64 does not hold \
                     exactly"
                ))
                .hint("algorithms compute in float64, exact up to 2^53: use smaller weights"));
            }
            each(&weights);
            first += part as u64;
        }
        stored.finish(&mut |_, _| Ok(()))
    }

    fn refused(&self, row: u64, weight: f64) -> Error {
        let shown = if weight.is_nan() { "nan".to_owned() } else { weight.to_string() };
        Error::invalid(format!("edge array `{}`: row {row} is {shown}", self.name))
            .hint("weights are finite numbers")
    }
}
