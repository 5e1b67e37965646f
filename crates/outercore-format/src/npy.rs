use outercore_core::{Error, Result};

use crate::{DATA_OFFSET, DType, literal};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Only structured types have longer headers, and these are rejected anyway.
const MAX_HEADER: usize = 1 << 20;

/// NumPy allows 64 dimensions; the padded header has room for fewer.
const MAX_DIMENSIONS: usize = 32;

/// The content of a `.npy` header.
///
/// # Example
/// ```
/// use outercore_format::{DType, NpyHeader};
/// let bytes = NpyHeader::encode(DType::F32, &[1000, 128]);
/// assert_eq!(bytes.len(), 4096);
/// let header = NpyHeader::parse(&bytes).unwrap();
/// assert_eq!((header.dtype, header.shape), (DType::F32, vec![1000, 128]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// Element type; `bfloat16` reads as `uint16`.
    pub dtype: DType,
    /// Extent of each dimension, rows first; empty for a scalar.
    pub shape: Vec<u64>,
    /// Offset of the first data byte in the file.
    pub data_offset: u64,
}

impl NpyHeader {
    /// Bytes of a file's start that [`NpyHeader::length`] needs.
    pub const PREFIX: usize = 12;

    /// Length of the whole header, from the first [`NpyHeader::PREFIX`] bytes of the file.
    ///
    /// # Errors
    /// `Invalid`: not a `.npy` file, or an unknown header format.
    pub fn length(prefix: &[u8]) -> Result<usize> {
        if !prefix.starts_with(MAGIC) {
            return Err(Error::invalid("not a .npy file: it does not start with `\\x93NUMPY`")
                .hint("write it with np.save(path, array)"));
        }
        let (fixed, text) = match prefix.get(6..Self::PREFIX) {
            Some([1, _, a, b, ..]) => (10, u32::from(u16::from_le_bytes([*a, *b]))),
            Some([2 | 3, _, a, b, c, d]) => (12, u32::from_le_bytes([*a, *b, *c, *d])),
            Some([version, ..]) => {
                return Err(Error::invalid(format!(
                    ".npy header of version {version}, expected 1, 2 or 3"
                )));
            }
            Some([]) | None => return Err(cut_short(prefix.len(), Self::PREFIX)),
        };
        let length = fixed + text as usize;
        if length > MAX_HEADER {
            return Err(Error::invalid(format!(
                ".npy header of {length} bytes, expected at most {MAX_HEADER}"
            ))
            .hint("save the array again with np.save, without a structured type"));
        }
        Ok(length)
    }

    /// Parses a header; `bytes` is the start of a file and may extend past the header.
    ///
    /// Accepts the output of `np.save` of any version, padded or not.
    ///
    /// # Errors
    /// `Corrupt`: the file ends within its header. `Invalid`: not a `.npy` file, big-endian
    /// numbers, structured or unknown types, Fortran order, or a shape of more bytes than a file
    /// can hold.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let length = Self::length(bytes)?;
        let text_at = if bytes[6] == 1 { 10 } else { 12 };
        let text = bytes.get(text_at..length).ok_or_else(|| cut_short(bytes.len(), length))?;
        let dictionary = literal::parse(text)?;
        let dtype = DType::from_descr(&dictionary.descr)?;
        let header = Self { dtype, shape: dictionary.shape, data_offset: length as u64 };
        header.file_len()?;
        let columns = header.shape.iter().filter(|extent| **extent > 1).count();
        if dictionary.fortran_order && columns > 1 {
            return Err(Error::invalid("columns are contiguous (Fortran order), expected rows")
                .hint("save it in C order: np.save(path, np.ascontiguousarray(array))"));
        }
        Ok(header)
    }

    /// A header of exactly 4096 bytes: version 1.0, C order, padded with blanks.
    ///
    /// # Panics
    /// If the shape has more than 32 dimensions.
    pub fn encode(dtype: DType, shape: &[u64]) -> Vec<u8> {
        assert!(shape.len() <= MAX_DIMENSIONS, "{} dimensions", shape.len());
        let extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
        // A tuple of one element keeps its comma; longer tuples drop the last comma.
        let extents =
            if shape.len() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
        let text = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({extents}), }}",
            dtype.descr()
        );
        let mut bytes = Vec::with_capacity(DATA_OFFSET as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[1, 0]);
        bytes.extend_from_slice(&(DATA_OFFSET as u16 - 10).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(DATA_OFFSET as usize - 1, b' ');
        bytes.push(b'\n');
        bytes
    }

    /// Bytes of the data.
    pub fn data_len(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size() as u64
    }

    /// Length of the file: header and data.
    fn file_len(&self) -> Result<u64> {
        file_len(self.dtype, &self.shape, self.data_offset).map_err(Error::invalid)
    }
}

/// Length of an array file, or the reason why no file can be that long.
pub(crate) fn file_len(dtype: DType, shape: &[u64], data_offset: u64) -> Result<u64, String> {
    if shape.len() > MAX_DIMENSIONS {
        return Err(format!("{} dimensions, expected at most {MAX_DIMENSIONS}", shape.len()));
    }
    // A zero extent makes the product zero. The other extents still must not overflow, because
    // callers may multiply only some of them.
    let elements =
        shape.iter().try_fold(1u64, |product, extent| product.checked_mul((*extent).max(1)));
    elements
        .and_then(|elements| elements.checked_mul(dtype.size() as u64))
        .and_then(|bytes| bytes.checked_add(data_offset))
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| format!("shape {shape:?} of {dtype} is larger than any file"))?;
    Ok(shape.iter().product::<u64>() * dtype.size() as u64 + data_offset)
}

fn cut_short(found: usize, expected: usize) -> Error {
    Error::corrupt(format!("file has {found} bytes, expected a .npy header of {expected}"))
        .hint("the copy was cut short; copy it again")
}

#[cfg(test)]
mod tests {
    use outercore_core::ErrorKind;

    use super::*;

    /// A header around `text`, as other programs may write it.
    fn foreign(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[version, 0]);
        match version {
            1 => bytes.extend_from_slice(&(text.len() as u16).to_le_bytes()),
            _ => bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()),
        }
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn every_header_version_parses_padded_or_not() {
        let text = "{'descr': '<i8', 'fortran_order': False, 'shape': (7,), }";
        for (version, fixed) in [(1, 10), (2, 12), (3, 12)] {
            for padding in ["", "\n", "      \n"] {
                let mut bytes = foreign(version, &format!("{text}{padding}"));
                bytes.extend_from_slice(&[0xFF; 56]);
                let header = NpyHeader::parse(&bytes).unwrap();
                assert_eq!(header.dtype, DType::I64);
                assert_eq!(header.shape, [7]);
                assert_eq!(header.data_offset as usize, fixed + text.len() + padding.len());
                assert_eq!(header.data_len(), 56);
            }
        }
    }

    #[test]
    fn fortran_order_is_refused_where_it_differs_from_c_order() {
        let text =
            |shape: &str| format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}, }}");
        let error = NpyHeader::parse(&foreign(1, &text("(3, 4)"))).unwrap_err();
        assert!(error.to_string().contains("ascontiguousarray"), "{error}");
        for same in ["(5,)", "(5, 1)", "(1, 5)", "()"] {
            NpyHeader::parse(&foreign(1, &text(same))).unwrap();
        }
    }

    #[test]
    fn hostile_headers_are_refused_and_cost_no_memory() {
        let huge = "(4294967296, 4294967296, 0)";
        let header = |shape: &str| {
            foreign(1, &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"))
        };
        assert_eq!(NpyHeader::parse(&header(huge)).unwrap_err().kind(), ErrorKind::Invalid);
        let many = format!("({})", "1, ".repeat(33));
        assert_eq!(NpyHeader::parse(&header(&many)).unwrap_err().kind(), ErrorKind::Invalid);
        let long = b"\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF";
        assert_eq!(NpyHeader::parse(long).unwrap_err().kind(), ErrorKind::Invalid);
        let nine = b"\x93NUMPY\x09\x00\x00\x00\x00\x00";
        assert_eq!(NpyHeader::parse(nine).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(NpyHeader::parse(b"PK\x03\x04").unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_file_that_ends_in_its_header_is_corrupt() {
        let bytes = NpyHeader::encode(DType::F32, &[1]);
        for len in [6, 8, 11, 12, 100, 4095] {
            let error = NpyHeader::parse(&bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
        }
    }
}
