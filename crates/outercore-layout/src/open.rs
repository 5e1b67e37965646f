//! Opens a layout: reads and checks its header and its scales; reads no rows.

use std::borrow::Cow;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result, shell_path};
use outercore_format::DType;
use outercore_store::dataset::{ArrayRef, DataSet};

use crate::build::Steps;
use crate::header::LayoutHeader;
use crate::keys::{self, Part};
use crate::scales::Scales;
use crate::{Places, Precision};

/// A larger header was not written by Outercore.
const MAX_HEADER: u64 = 1 << 20;

/// A layout that matches the current content of its array.
#[derive(Clone, Debug)]
pub struct Layout {
    header: LayoutHeader,
    array: ArrayRef,
    rows: ArrayRef,
    places: Option<ArrayRef>,
    scales: Option<Scales>,
}

impl Layout {
    /// Opens the layout of the array `key`; `None` if it has no layout of this precision.
    ///
    /// **Cost** reads the header and 8 bytes per column.
    ///
    /// # Errors
    /// `NotFound`: no such array. `Invalid`: the layout is stale, because the array has changed.
    /// `Version`: a newer release wrote it. `Corrupt`: it contradicts itself or the array.
    pub fn open(data_set: &DataSet, key: &str, precision: Precision) -> Result<Option<Self>> {
        let array = data_set.array(key)?;
        let header = keys::key(&array.key, precision, Part::Header);
        if !data_set.has_array(&header) {
            return Ok(None);
        }
        Self::read(data_set, array, precision)
            .with_context(|| format!("{precision} layout of `{key}`"))
            .map_err(|error| match error.kind() {
                ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Version => {
                    error.hint(format!("build it anew: {}", command(data_set, key, precision)))
                }
                _ => error,
            })
            .map(Some)
    }

    /// Whether the array `key` has a layout of this precision; it may be stale.
    pub fn is_built(data_set: &DataSet, key: &str, precision: Precision) -> bool {
        data_set
            .array(key)
            .is_ok_and(|array| data_set.has_array(&keys::key(&array.key, precision, Part::Header)))
    }

    fn read(data_set: &DataSet, array: ArrayRef, precision: Precision) -> Result<Self> {
        let part = |part| keys::key(&array.key, precision, part);
        let header = read_header(data_set, &part(Part::Header))?;
        if header.array != array.key || header.precision != precision {
            let text = format!("its header is of {} `{}`", header.precision, header.array);
            return Err(Error::corrupt(text));
        }
        if header.checksum != array.checksum {
            return Err(Error::invalid("it is stale: the array has changed since it was built"));
        }
        let dtype = match precision {
            Precision::Exact => array.dtype,
            Precision::Int8 => DType::I8,
        };
        let rows = expect(data_set, &part(Part::Rows), dtype, &array.shape)?;
        let places = part(Part::Places);
        let places = data_set
            .has_array(&places)
            .then(|| expect(data_set, &places, Places::dtype(array.rows()), &[array.rows()]));
        let scales = (precision == Precision::Int8).then(|| {
            let width = array.row_elements();
            let column = |part| read_floats(data_set, part, width);
            Scales::new(column(part(Part::Scale))?, column(part(Part::Offset))?)
        });
        let (places, scales) = (places.transpose()?, scales.transpose()?);
        Ok(Self { header, array, rows, places, scales })
    }

    /// The header.
    pub fn header(&self) -> &LayoutHeader {
        &self.header
    }

    /// The copied array.
    pub fn array(&self) -> &ArrayRef {
        &self.array
    }

    /// The rows, by place.
    pub fn rows(&self) -> &ArrayRef {
        &self.rows
    }

    /// Memory of the table of places; 0 if each place equals the node id.
    pub fn places_memory(&self) -> Bytes {
        self.places.as_ref().map_or(Bytes(0), |places| Bytes(places.data_len()))
    }

    /// Reads the place of each node's row; `None` if each place equals the node id.
    ///
    /// **Cost** reads [`Layout::places_memory`] and keeps it in memory.
    ///
    /// # Errors
    /// `Corrupt`: the bytes differ from the written ones. `Budget`; failed reads.
    pub fn load_places(&self, data_set: &DataSet) -> Result<Option<Places>> {
        let Some(places) = &self.places else { return Ok(None) };
        let (key, precision) = (&self.array.key, self.header.precision);
        Places::load(data_set, places).map(Some).map_err(|error| match error.kind() {
            ErrorKind::Corrupt => {
                error.hint(format!("build it anew: {}", command(data_set, key, precision)))
            }
            _ => error,
        })
    }

    /// Converts a row of the array to the stored form of the layout.
    ///
    /// An updated row may have values outside the range measured during the build. In `int8` they
    /// become the nearest step.
    pub fn stored<'r>(&self, row: &'r [u8]) -> Cow<'r, [u8]> {
        let Some(scales) = &self.scales else { return Cow::Borrowed(row) };
        let mut stored = Vec::with_capacity(scales.width());
        // A value that `float32` cannot represent is beyond all steps, or close to 0, so the error
        // is ignored.
        let _ = Steps::new(self.array.dtype, scales).push(row, &mut stored);
        Cow::Owned(bytemuck::cast_vec(stored))
    }

    /// The stored table of places; `None` if each place equals the node id.
    pub fn places(&self) -> Option<&ArrayRef> {
        self.places.as_ref()
    }

    /// Key and content of the header, if the array gets this checksum.
    ///
    /// # Errors
    /// `Internal`.
    pub fn header_of(&self, checksum: &str) -> Result<(String, Vec<u8>)> {
        let header = LayoutHeader { checksum: checksum.to_owned(), ..self.header.clone() };
        let key = keys::key(&header.array, header.precision, Part::Header);
        header.to_json().map(|json| (key, json))
    }

    /// Scales of `int8` rows.
    pub fn scales(&self) -> Option<&Scales> {
        self.scales.as_ref()
    }
}

/// The command that rebuilds a layout.
pub(crate) fn command(data_set: &DataSet, key: &str, precision: Precision) -> String {
    let is_features = data_set.manifest().roles.features.as_deref() == Some(key);
    let precision = precision.to_string();
    let options = [("array", key), ("precision", &precision)];
    let words = format!("layout {}", shell_path(data_set.root()));
    format!("`{}`", outercore_core::command(&words, &options[usize::from(is_features)..]))
}

/// The header of a layout.
///
/// # Errors
/// `Corrupt`, `Version`; failed reads.
pub(crate) fn read_header(data_set: &DataSet, key: &str) -> Result<LayoutHeader> {
    let array = data_set.array(key)?;
    if array.data_len() > MAX_HEADER {
        return Err(Error::corrupt(format!("header of {} bytes", array.data_len())));
    }
    let bytes = data_set.read_array(key)?;
    LayoutHeader::from_json(&bytes).with_context(|| format!("array `{key}`"))
}

fn expect(data_set: &DataSet, key: &str, dtype: DType, shape: &[u64]) -> Result<ArrayRef> {
    if !data_set.has_array(key) {
        return Err(Error::corrupt(format!("array `{key}` is missing")));
    }
    let array = data_set.array(key)?;
    if array.dtype == dtype && array.shape == shape {
        return Ok(array);
    }
    Err(Error::corrupt(format!(
        "array `{key}`: {} {:?}, expected {dtype} {shape:?}",
        array.dtype, array.shape
    )))
}

fn read_floats(data_set: &DataSet, key: String, width: u64) -> Result<Vec<f32>> {
    expect(data_set, &key, DType::F32, &[width])?;
    let bytes = data_set.read_array(&key)?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}
