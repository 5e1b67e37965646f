//! Reads the weights of a graph's links. They are stored by edge id, but needed in the order of the
//! links.

use outercore_core::{Error, Result};
use outercore_format::keys::{EDGE, EDGE_IDS, EDGE_WEIGHTS};
use outercore_store::arrays::append_f32;
use outercore_store::dataset::{ArrayFile, ArrayRef, DataSet};

/// Most weights in one read.
const WINDOW: u64 = 8192;
/// Largest gap of unneeded weights that is read along, because another read would cost more.
const GAP: u64 = 512;

/// The array of weights, if the graph has one.
///
/// # Errors
/// `Invalid`: not one number for each row of the imported edge list.
pub(super) fn edge_weights(data_set: &DataSet) -> Result<Option<ArrayRef>> {
    if !data_set.has_array(EDGE_WEIGHTS) {
        return Ok(None);
    }
    let array = data_set.array(EDGE_WEIGHTS)?;
    let edge = data_set.manifest().edge_types.get(EDGE);
    let rows = match data_set.has_array(EDGE_IDS) {
        true => edge.and_then(|edge| edge.rows),
        false => edge.map(|edge| edge.rows.unwrap_or(edge.count)),
    };
    if array.shape.len() == 1 && rows.is_none_or(|rows| rows == array.rows()) {
        return Ok(Some(array));
    }
    let expected = rows.map_or("one number a row".to_owned(), |rows| format!("[{rows}]"));
    let text =
        format!("array `{EDGE_WEIGHTS}`: shape {:?}, expected {expected}: weights", array.shape);
    Err(Error::invalid(text).hint(OTHER_NAMES))
}

const OTHER_NAMES: &str = "an edge array that is no weight of links needs another name";

/// Collects the weights of a batch of links.
///
/// **Memory**: [`LinkWeights::EACH`] bytes per link, and 96 KiB.
pub(super) struct LinkWeights {
    stored: ArrayFile,
    /// Edge id and index of each link.
    wanted: Vec<(u64, u32)>,
    weights: Vec<f32>,
    raw: Vec<u64>,
    window: Vec<f32>,
}

impl LinkWeights {
    /// Bytes per link in a batch.
    pub(super) const EACH: usize = size_of::<(u64, u32)>() + size_of::<f32>();

    /// A reader for batches of up to `links` links.
    pub(super) fn open(array: &ArrayRef, links: usize) -> Result<Self> {
        Ok(Self {
            stored: ArrayFile::open(array.clone())?,
            wanted: Vec::with_capacity(links),
            weights: Vec::with_capacity(links),
            raw: vec![0; (WINDOW as usize * array.dtype.size()).div_ceil(8)],
            window: Vec::with_capacity(WINDOW as usize),
        })
    }

    /// Requests the weight of the next link.
    pub(super) fn want(&mut self, id: u64) {
        self.wanted.push((id, self.wanted.len() as u32));
    }

    /// The weights of all links requested since the last call, in that order.
    ///
    /// **Cost**: at most one pass over the array; ranges far from every requested id are skipped.
    ///
    /// # Errors
    /// `Invalid`: a weight that is negative or not finite. `Corrupt`: an id beyond the rows. A
    /// failed read.
    pub(super) fn read(&mut self) -> Result<&[f32]> {
        self.wanted.sort_unstable();
        self.weights.clear();
        self.weights.resize(self.wanted.len(), 0.0);
        let wanted = std::mem::take(&mut self.wanted);
        for ids in wanted.chunk_by(|(one, _), (next, _)| next - one <= GAP) {
            let mut rest = ids;
            while let Some(&(first, _)) = rest.first() {
                let together = rest.partition_point(|&(id, _)| id - first < WINDOW);
                let (now, later) = rest.split_at(together);
                self.load(first, now[together - 1].0)?;
                for &(id, link) in now {
                    self.weights[link as usize] = self.checked(id, first)?;
                }
                rest = later;
            }
        }
        self.wanted = wanted;
        self.wanted.clear();
        Ok(&self.weights)
    }

    /// Reads the weights of the ids from `first` to `last`.
    fn load(&mut self, first: u64, last: u64) -> Result<()> {
        let array = self.stored.array();
        let ArrayRef { key, dtype, .. } = array;
        if last >= array.rows() {
            let text = format!("array `{EDGE_IDS}`: {last}, but `{key}` has {}", array.rows());
            return Err(Error::corrupt(text).hint("run `outercore check`"));
        }
        let width = dtype.size();
        let bytes =
            &mut bytemuck::cast_slice_mut(&mut self.raw)[..(last + 1 - first) as usize * width];
        self.stored.read(first, bytes)?;
        self.window.clear();
        append_f32(*dtype, bytes, &mut self.window);
        Ok(())
    }

    /// The weight of an id; the buffer begins at `first`.
    fn checked(&self, id: u64, first: u64) -> Result<f32> {
        let weight = self.window[(id - first) as usize];
        if weight.is_finite() && weight >= 0.0 {
            return Ok(weight);
        }
        let key = &self.stored.array().key;
        let text = format!("array `{key}`: row {id}: weight {weight}");
        Err(Error::invalid(format!("{text}, expected a finite number, 0 or more"))
            .hint(OTHER_NAMES))
    }
}

#[cfg(test)]
mod tests {
    use outercore_core::{ErrorKind, Stream};
    use outercore_format::DType;
    use outercore_io::RealDisk;
    use outercore_store::npy::ArrayWriter;

    use super::*;

    fn array(root: &std::path::Path, weights: &[f64]) -> ArrayRef {
        let mut writer = ArrayWriter::create(&RealDisk, root, "w.npy", DType::F64, &[]).unwrap();
        writer.write_slice(weights).unwrap();
        let entry = writer.finish().unwrap();
        ArrayRef {
            key: EDGE_WEIGHTS.to_owned(),
            path: root.join("w.npy"),
            dtype: entry.dtype,
            shape: entry.shape,
            data_offset: entry.data_offset,
            checksum: entry.checksum,
        }
    }

    #[test]
    fn weights_come_in_the_order_in_which_they_were_asked_for() {
        const ROWS: u64 = 5 * WINDOW;
        let weights: Vec<f64> = (0..ROWS).map(|row| row as f64).collect();
        let root = tempfile::tempdir().unwrap();
        let array = array(root.path(), &weights);
        for (seed, links) in [(1, 1), (2, 30), (3, 3000), (4, 60_000)] {
            let mut found = LinkWeights::open(&array, links).unwrap();
            // The second turn must not return links of the first.
            for turn in 0..2 {
                let draw = |link| Stream::new(seed, turn).uniform(0, 0, link).below(ROWS);
                let ids: Vec<u64> = (0..links as u64).map(draw).collect();
                ids.iter().for_each(|&id| found.want(id));
                let expected: Vec<f32> = ids.iter().map(|&id| id as f32).collect();
                assert!(found.read().unwrap() == expected, "seed {seed}, {links} links");
            }
        }
    }

    #[test]
    fn an_id_beyond_the_weights_and_a_weight_that_is_none_are_named() {
        let root = tempfile::tempdir().unwrap();
        let array = array(root.path(), &[1.0, -0.5, 1e39, f64::NAN]);
        for (id, kind, expected) in [
            (1, ErrorKind::Invalid, "row 1: weight -0.5, expected"),
            (2, ErrorKind::Invalid, "row 2: weight inf, expected"),
            (3, ErrorKind::Invalid, "row 3: weight NaN, expected"),
            (4, ErrorKind::Corrupt, "`edges/edge/ids`: 4, but `edges/edge/weight` has 4"),
        ] {
            let mut found = LinkWeights::open(&array, 2).unwrap();
            [0, id].into_iter().for_each(|id| found.want(id));
            let error = found.read().unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
