use outercore_core::{Context, Error, Result};
use outercore_format::{DType, NpyHeader};

use super::input_file::InputFile;
use super::segment::{Integer, Layout, Segment};
use crate::npy::ArrayReader;

/// Location of the edges in one `.npy` file of pairs, or in two files of sources and targets.
///
/// # Errors
/// `Invalid`: not a `.npy` file, or another shape or type. `Corrupt`: truncated.
pub(crate) fn read_layout(files: &[InputFile]) -> Result<Segment> {
    match files {
        [file] => pairs(file),
        [sources, targets] => {
            let left = column(sources)?;
            let right = column(targets)?;
            if left.shape != right.shape || left.dtype != right.dtype {
                return Err(Error::invalid(format!(
                    "{} has {} ids of {}, but {} has {} of {}: expected as many of the same type",
                    describe(sources),
                    left.shape[0],
                    left.dtype,
                    describe(targets),
                    right.shape[0],
                    right.dtype
                )));
            }
            Ok(Segment {
                layout: Layout::Columns {
                    sources: (sources.path.clone(), left.data_offset),
                    targets: (targets.path.clone(), right.data_offset),
                },
                integer: integer(left.dtype)?,
                edges: left.shape[0],
            })
        }
        _ => Err(Error::internal("an edge source of neither one nor two arrays")),
    }
}

fn describe(file: &InputFile) -> String {
    format!("edge array `{}`", file.path.display())
}

fn pairs(file: &InputFile) -> Result<Segment> {
    let header = ArrayReader::open(&file.path)?.header().clone();
    let integer = integer(header.dtype).with_context(|| describe(file))?;
    let path = file.path.clone();
    let (layout, edges) = match header.shape[..] {
        [2, 2] => {
            return Err(Error::invalid(format!(
                "{}: shape [2, 2] may be [2, E] or [E, 2]",
                describe(file)
            ))
            .hint("write two edges as text"));
        }
        [2, edges] => {
            let targets = header.data_offset + edges * integer.size() as u64;
            let sources = (path.clone(), header.data_offset);
            (Layout::Columns { sources, targets: (path, targets) }, edges)
        }
        [edges, 2] => (Layout::Pairs { path, offset: header.data_offset }, edges),
        _ => {
            return Err(Error::invalid(format!(
                "{}: shape {:?}, expected [E, 2] or [2, E]",
                describe(file),
                header.shape
            ))
            .hint("give two files of shape [E] for separate sources and targets"));
        }
    };
    Ok(Segment { layout, integer, edges })
}

fn column(file: &InputFile) -> Result<NpyHeader> {
    let header = ArrayReader::open(&file.path)?.header().clone();
    integer(header.dtype).with_context(|| describe(file))?;
    match header.shape[..] {
        [_] => Ok(header),
        _ => Err(Error::invalid(format!(
            "{}: shape {:?}, expected [E]",
            describe(file),
            header.shape
        ))),
    }
}

fn integer(dtype: DType) -> Result<Integer> {
    match dtype {
        DType::I32 => Ok(Integer::I32),
        DType::I64 => Ok(Integer::I64),
        DType::U32 => Ok(Integer::U32),
        DType::U64 => Ok(Integer::U64),
        other => {
            Err(Error::invalid(format!("type {other}, expected int32, int64, uint32 or uint64"))
                .hint("convert it: np.save(path, array.astype('int64'))"))
        }
    }
}
