//! Arrays with one number per row, such as weights and times, in memory or on disk.

use std::sync::{Mutex, PoisonError};

use outercore_core::{Bytes, Context, Error, ReadCounters, Result};
use outercore_format::DType;
use outercore_io::{CostModel, Engine, EngineConfig, FileId, RowLayout, plan_rows};

use crate::dataset::ArrayRef;

/// Rows that are looked up on disk at once.
const PIECE: usize = 1 << 16;

/// An array with one number per row, accessed by row.
///
/// Several threads may use it; reads from disk run one after the other.
///
/// # Example
/// ```
/// use outercore_store::row_values::RowValues;
/// let weights = RowValues::from_numbers(vec![0.5f64, 2.0]);
/// let mut found = [0.0; 3];
/// weights.floats(&[1, 0, 1], &mut found)?;
/// assert_eq!(found, [2.0, 0.5, 2.0]);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Debug)]
pub struct RowValues {
    name: String,
    rows: u64,
    dtype: DType,
    home: Home,
}

#[derive(Debug)]
enum Home {
    Memory(Vec<u8>),
    Disk { file: FileId, layout: RowLayout, cost: CostModel, engine: Mutex<Engine> },
}

/// A number type for arrays in memory.
pub trait Number: bytemuck::NoUninit {
    /// The type on disk.
    const DTYPE: DType;
}

impl Number for f64 {
    const DTYPE: DType = DType::F64;
}

impl Number for i64 {
    const DTYPE: DType = DType::I64;
}

impl RowValues {
    /// Numbers in memory.
    pub fn from_numbers<T: Number>(numbers: Vec<T>) -> Self {
        Self {
            name: "numbers in memory".to_owned(),
            rows: numbers.len() as u64,
            dtype: T::DTYPE,
            home: Home::Memory(bytemuck::cast_slice(&numbers).to_vec()),
        }
    }

    /// Opens an array `[rows]` or `[rows, 1]`; reads it into memory if `resident`.
    ///
    /// # Errors
    /// `Invalid`: several columns. A missing or short file; `Budget` if memory is short.
    pub fn open(
        array: &ArrayRef,
        resident: bool,
        reading: EngineConfig,
        cost: CostModel,
    ) -> Result<Self> {
        let name = format!("array `{}`", array.key);
        if array.row_elements() != 1 {
            return Err(Error::invalid(format!(
                "{name}: shape {:?}, expected one number a row",
                array.shape
            )));
        }
        let mut engine = Engine::open(reading)?;
        let home = if resident {
            let mut bytes = Vec::new();
            let len = array.data_len() as usize;
            bytes.try_reserve_exact(len).map_err(|_| {
                Error::new(
                    outercore_core::ErrorKind::Budget,
                    format!("{name}: no memory for {len} bytes"),
                )
            })?;
            bytes.resize(len, 0);
            let file = engine.register(&array.path).with_context(|| name.clone())?;
            engine.read_into(file, array.data_offset, &mut bytes).with_context(|| name.clone())?;
            Home::Memory(bytes)
        } else {
            let file = engine.register(&array.path).with_context(|| name.clone())?;
            let file_len = engine.file_len(file);
            let layout = RowLayout { base: array.data_offset, stride: array.row_bytes(), file_len };
            Home::Disk { file, layout, cost, engine: Mutex::new(engine) }
        };
        Ok(Self { name, rows: array.rows(), dtype: array.dtype, home })
    }

    /// Memory without read buffers.
    pub fn memory(&self) -> Bytes {
        match &self.home {
            Home::Memory(bytes) => Bytes(bytes.len() as u64),
            Home::Disk { .. } => Bytes(0),
        }
    }

    /// The numbers of `rows` as `float64`.
    ///
    /// # Errors
    /// `Corrupt`: no such row. `Invalid`: an integer that `float64` cannot represent. A failed
    /// read.
    pub fn floats(&self, rows: &[u64], out: &mut [f64]) -> Result<()> {
        self.each(rows, |place, bytes| {
            out[place] = float(self.dtype, bytes).ok_or_else(|| {
                Error::invalid(format!("{}: row {}: no float64 holds it", self.name, rows[place]))
            })?;
            Ok(())
        })
    }

    /// The numbers of `rows` as `int64`.
    ///
    /// # Errors
    /// `Corrupt`: no such row. `Invalid`: a fraction, or a number beyond `int64`. A failed read.
    pub fn integers(&self, rows: &[u64], out: &mut [i64]) -> Result<()> {
        self.each(rows, |place, bytes| {
            out[place] = integer(self.dtype, bytes).ok_or_else(|| {
                Error::invalid(format!(
                    "{}: row {}: expected a whole number, as times are",
                    self.name, rows[place]
                ))
            })?;
            Ok(())
        })
    }

    /// Counters of reads so far; zero for an array in memory.
    pub fn read_counters(&self) -> ReadCounters {
        match &self.home {
            Home::Memory(_) => ReadCounters::default(),
            Home::Disk { engine, .. } => {
                engine.lock().unwrap_or_else(PoisonError::into_inner).counters()
            }
        }
    }

    /// Calls `take(place, bytes of the row)` for each of `rows`, in any order.
    fn each(&self, rows: &[u64], mut take: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        if let Some(&row) = rows.iter().find(|&&row| row >= self.rows) {
            return Err(Error::corrupt(format!(
                "{}: no row {row}, it has {}",
                self.name, self.rows
            ))
            .hint("run `outercore check DATASET`"));
        }
        let size = self.dtype.size();
        match &self.home {
            Home::Memory(bytes) => {
                for (place, &row) in rows.iter().enumerate() {
                    let at = row as usize * size;
                    take(place, &bytes[at..at + size])?;
                }
                Ok(())
            }
            Home::Disk { file, layout, cost, engine } => {
                let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
                for (piece, rows) in rows.chunks(PIECE).enumerate() {
                    let mut wanted: Vec<(u64, u32)> = rows.iter().copied().zip(0u32..).collect();
                    wanted.sort_unstable();
                    let mut distinct: Vec<u64> = wanted.iter().map(|&(row, _)| row).collect();
                    distinct.dedup();
                    let plan = plan_rows(&distinct, *layout, cost, engine.max_read());
                    let mut values = vec![0u8; distinct.len() * size];
                    engine
                        .read(*file, &plan.reads, &mut |read, bytes| {
                            let start = plan.reads[read].offset - layout.base;
                            for place in plan.rows_of[read].clone() {
                                let place = place as usize;
                                let at = (distinct[place] * layout.stride - start) as usize;
                                values[place * size..(place + 1) * size]
                                    .copy_from_slice(&bytes[at..at + size]);
                            }
                            Ok(())
                        })
                        .with_context(|| self.name.clone())?;
                    let mut number = 0;
                    for (row, place) in wanted {
                        while distinct[number] != row {
                            number += 1;
                        }
                        let bytes = &values[number * size..(number + 1) * size];
                        take(piece * PIECE + place as usize, bytes)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// An element as `float64`; `None` if `float64` cannot represent it.
fn float(dtype: DType, bytes: &[u8]) -> Option<f64> {
    let exact = |value: i128| {
        let float = value as f64;
        (float as i128 == value).then_some(float)
    };
    Some(match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
        DType::F32 => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::F16 => half::f16::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::BF16 => half::bf16::from_le_bytes(bytes.try_into().ok()?).into(),
        _ => return exact(whole(dtype, bytes)?),
    })
}

/// An element as `int64`; `None` for fractions and numbers beyond the range.
fn integer(dtype: DType, bytes: &[u8]) -> Option<i64> {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
            let value = float(dtype, bytes)?;
            let is_whole = value.fract() == 0.0 && value.abs() < 9.0e18;
            is_whole.then_some(value as i64)
        }
        _ => i64::try_from(whole(dtype, bytes)?).ok(),
    }
}

fn whole(dtype: DType, bytes: &[u8]) -> Option<i128> {
    Some(match dtype {
        DType::I8 => i8::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::I16 => i16::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::I32 => i32::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::I64 => i64::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::U8 | DType::Bool => bytes[0].into(),
        DType::U16 => u16::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::U32 => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        DType::U64 => u64::from_le_bytes(bytes.try_into().ok()?).into(),
        _ => return None,
    })
}
