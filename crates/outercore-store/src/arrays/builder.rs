use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Error, Result};
use outercore_format::{ArrayEntry, Checksum, DType};
use outercore_io::Disk;

use super::content::Content;
use super::labels::Labels;
use super::{ArraySpec, ArraySummary, ContentPlan, ImportedArray, Target, named};
use crate::npy::{ArrayReader, ArrayWriter, OnBytes, grouped};

/// Bytes that are read, checked and converted at once.
const CHUNK: Bytes = Bytes::mib(1);

/// Checks and counts the rows of an array as they arrive.
struct Intake {
    content: Content,
    /// A second check, as numbers, while only the last row can decide whether the labels are
    /// classes.
    numbers: Option<Labels>,
    from: DType,
    /// Bytes of an incoming row.
    row_bytes: u64,
    /// Rows so far.
    rows: u64,
}

/// The form in which the array is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Planned,
    Numbers,
}

impl Intake {
    fn new(plan: ContentPlan, from: DType, row_bytes: u64, rows: u64) -> Self {
        Self { content: plan.content, numbers: plan.numbers, from, row_bytes, rows }
    }

    /// Required number of rows, if the graph determines it.
    fn expected(&self, spec: &ArraySpec) -> Option<u64> {
        match (&self.content, &spec.target) {
            (Content::Split(split), _) if !split.is_mask() => None,
            (_, Target::Names(_)) => None,
            _ => Some(spec.nodes),
        }
    }

    fn check_rows(&self, spec: &ArraySpec, rows: u64) -> Result<()> {
        match self.expected(spec) {
            Some(edges) if rows != edges && matches!(spec.target, Target::Edge(_)) => {
                Err(Error::invalid(format!(
                    "{} rows, but the edge lists have {} edges",
                    grouped(rows),
                    grouped(edges)
                ))
                .hint("there must be one row for each edge, in the order of the edge lists"))
            }
            Some(nodes) if rows != nodes => Err(Error::invalid(format!(
                "{} rows, but the graph has {} nodes",
                grouped(rows),
                grouped(nodes)
            ))
            .hint("there must be one row for each node, in the order of the ids")),
            _ => Ok(()),
        }
    }

    /// Checks whole elements, and passes the bytes to store to `store`, in each form.
    fn take(
        &mut self,
        bytes: &[u8],
        store: &mut dyn FnMut(Form, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let chunk = CHUNK.as_usize() / self.from.size() * self.from.size();
        for part in bytes.chunks(chunk) {
            // After a refusal the check continues, because the message contains the number of wrong
            // values.
            let was_refused = self.content.is_refused();
            let stored = self.content.take(part);
            if !was_refused {
                store(Form::Planned, stored)?;
            }
            if let Some(numbers) = &mut self.numbers {
                store(Form::Numbers, numbers.take(part))?;
            }
        }
        Ok(())
    }

    fn judge(&self, spec: &ArraySpec) -> Result<(ArraySummary, Form)> {
        self.check_rows(spec, self.rows)?;
        let mut summary = ArraySummary::default();
        if let (Content::Labels(classes), Some(numbers)) = (&self.content, &self.numbers)
            && classes.are_numbers()
        {
            summary.unlabelled = numbers.unlabelled();
            summary.task = Some(numbers.task());
            return numbers.refusal().map_or(Ok((summary, Form::Numbers)), Err);
        }
        self.content.judge(&mut summary)?;
        Ok((summary, Form::Planned))
    }
}

/// How an array is stored.
struct Stored {
    dtype: DType,
    row_shape: Vec<u64>,
    /// Whether the rows are stored a second time as numbers, until the form is decided.
    undecided: bool,
}

impl Stored {
    fn of(plan: &ContentPlan) -> Self {
        let undecided = plan.numbers.is_some();
        Self { dtype: plan.dtype, row_shape: plan.row_shape.clone(), undecided }
    }
}

/// Name of the second file, for labels whose form is only known after the last value.
pub(crate) fn second_file(file: &str) -> String {
    format!("{}.numbers.npy", file.trim_end_matches(".npy"))
}

/// The file of an array, or two files of which one is kept.
struct Files {
    planned: ArrayWriter,
    numbers: Option<ArrayWriter>,
    /// Their paths.
    paths: [PathBuf; 2],
}

impl Files {
    fn create(disk: &dyn Disk, root: &Path, file: &str, stored: &Stored) -> Result<Self> {
        let other = second_file(file);
        let create =
            |file: &str, dtype| ArrayWriter::create(disk, root, file, dtype, &stored.row_shape);
        Ok(Self {
            planned: create(file, stored.dtype)?,
            numbers: stored.undecided.then(|| create(&other, DType::F64)).transpose()?,
            paths: [root.join(file), root.join(&other)],
        })
    }

    fn write(&mut self, form: Form, bytes: &[u8]) -> Result<()> {
        match (form, &mut self.numbers) {
            (Form::Planned, _) => self.planned.write(bytes),
            (Form::Numbers, Some(numbers)) => numbers.write(bytes),
            (Form::Numbers, None) => Err(Error::internal("numbers without a file")),
        }
    }

    /// Makes the form that `judged` selects durable, and removes the other file. After an error it
    /// removes both.
    fn finish(
        self,
        disk: &dyn Disk,
        judged: Result<(ArraySummary, Form)>,
    ) -> Result<(ArraySummary, ArrayEntry)> {
        let Self { planned, numbers, paths: [path, other] } = self;
        let has_other = numbers.is_some();
        let kept = judged.and_then(|(summary, form)| {
            let entry = match (form, numbers) {
                (Form::Numbers, Some(numbers)) => numbers.finish(),
                _ => planned.finish(),
            };
            Ok((summary, entry?, form))
        });
        let form = kept.as_ref().ok().map(|(_, _, form)| *form);
        // Ignore errors of the removal: the error in `judged` says more.
        if form != Some(Form::Planned) {
            let _ = disk.remove_file(&path);
        }
        if has_other && form != Some(Form::Numbers) {
            let _ = disk.remove_file(&other);
        }
        kept.map(|(summary, entry, _)| (summary, entry))
    }

    fn remove(self, disk: &dyn Disk) -> Result<()> {
        let Self { planned, numbers, paths: [path, other] } = self;
        drop(planned);
        if numbers.is_some() {
            drop(numbers);
            disk.remove_file(&other)?;
        }
        disk.remove_file(&path)
    }
}

/// Takes an array in batches and writes it into the data set.
///
/// # Example
/// ```
/// use outercore_format::DType;
/// use outercore_io::RealDisk;
/// use outercore_store::arrays::{ArrayBuilder, ArraySpec, Target};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path();
/// let spec = ArraySpec::new(Target::Labels, 3);
/// let mut builder = ArrayBuilder::create(&RealDisk, root, "nodes/node/y.npy", spec, DType::I32, &[])?;
/// builder.push_rows(&[1, 0, 0, 0, 0, 0, 0, 0], 2)?;
/// builder.push_rows(&[0xFF, 0xFF, 0xFF, 0xFF], 1)?;
/// let labels = builder.finish(&RealDisk)?;
/// assert_eq!((labels.summary.classes, labels.summary.unlabelled), (Some(2), 1));
/// # Ok(())
/// # }
/// ```
pub struct ArrayBuilder {
    spec: ArraySpec,
    intake: Intake,
    files: Files,
}

impl ArrayBuilder {
    /// Creates `root/file` for incoming rows of `dtype` and `row_shape`.
    ///
    /// # Errors
    /// `Invalid`: the type or shape does not suit the target. Errors of the disk.
    pub fn create(
        disk: &dyn Disk,
        root: &Path,
        file: &str,
        spec: ArraySpec,
        dtype: DType,
        row_shape: &[u64],
    ) -> Result<Self> {
        let plan = named(&spec, None, spec.plan(dtype, row_shape))?;
        let files = Files::create(disk, root, file, &Stored::of(&plan))?;
        let row_bytes = row_shape.iter().product::<u64>() * dtype.size() as u64;
        Ok(Self { spec, intake: Intake::new(plan, dtype, row_bytes, 0), files })
    }

    /// Specification of the array.
    pub fn spec(&self) -> &ArraySpec {
        &self.spec
    }

    /// Appends `rows` rows.
    ///
    /// [`ArrayBuilder::finish`] reports refused values and their number.
    ///
    /// # Errors
    /// `Invalid`: `bytes` is not the size of `rows` rows, or the graph has fewer nodes. Errors of
    /// the disk.
    pub fn push_rows(&mut self, bytes: &[u8], rows: u64) -> Result<()> {
        let Self { spec, intake, files } = self;
        if rows.checked_mul(intake.row_bytes) != Some(bytes.len() as u64) {
            let error = Error::invalid(format!(
                "{} bytes for {rows} rows, expected {} bytes a row",
                bytes.len(),
                intake.row_bytes
            ));
            return named(spec, None, Err(error));
        }
        intake.rows += rows;
        if intake.expected(spec).is_some_and(|nodes| intake.rows > nodes) {
            return named(spec, None, intake.check_rows(spec, intake.rows));
        }
        named(spec, None, intake.take(bytes, &mut |form, stored| files.write(form, stored)))
    }

    /// Completes the check and makes the array durable, or removes it if its values are refused.
    ///
    /// # Errors
    /// `Invalid`: too few rows, or refused values. Errors of the disk.
    pub fn finish(self, disk: &dyn Disk) -> Result<ImportedArray> {
        let Self { spec, intake, files } = self;
        let (summary, entry) = named(&spec, None, files.finish(disk, intake.judge(&spec)))?;
        Ok(imported(spec, entry, summary))
    }

    /// Cancels the array and removes its file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn abort(self, disk: &dyn Disk) -> Result<()> {
        self.files.remove(disk)
    }
}

/// Copies the `.npy` file `source` to `root/file`; checks and converts it on the way.
///
/// **Cost**: one sequential read and write; a few MiB of memory, and one bit per node for a split.
///
/// # Errors
/// As [`ArrayReader::open`]. `Invalid`: the number of rows differs from the number of nodes, the
/// type or shape does not suit the target, or values are refused. Errors of `progress` and of the
/// disk. After an error no file is left.
pub fn import_npy(
    disk: &dyn Disk,
    root: &Path,
    file: &str,
    spec: ArraySpec,
    source: &Path,
    progress: OnBytes<'_>,
) -> Result<ImportedArray> {
    let name = spec.clone();
    let import = || {
        let mut reader = open(&spec, source)?;
        let header = reader.header().clone();
        let row_shape = reader.row_shape().to_vec();
        let plan = spec.plan(header.dtype, &row_shape)?;
        let row_bytes = row_shape.iter().product::<u64>() * header.dtype.size() as u64;
        let stored = Stored::of(&plan);
        let mut intake = Intake::new(plan, header.dtype, row_bytes, reader.rows());
        // Check before the copy, which may take hours.
        intake.check_rows(&spec, reader.rows())?;
        let mut files = Files::create(disk, root, file, &stored)?;
        let judged = reader
            .for_each_chunk(CHUNK, &mut |offset, bytes| {
                progress(offset, header.data_len())?;
                intake.take(bytes, &mut |form, stored| files.write(form, stored))
            })
            .and_then(|()| intake.judge(&spec));
        let (summary, entry) = files.finish(disk, judged)?;
        progress(header.data_len(), header.data_len())?;
        Ok(imported(spec, entry, summary))
    };
    named(&name, Some(source), import())
}

/// Registers the `.npy` file `source` in place: checked, but not copied.
///
/// The manifest stores the absolute path and the checksum of the file. The file must not be changed
/// or moved afterwards.
///
/// **Cost**: one sequential read; a few MiB of memory, and one bit per node for a split.
///
/// # Errors
/// As [`import_npy`]. `Invalid` also if the array needs a conversion.
pub fn register_npy(
    spec: ArraySpec,
    source: &Path,
    progress: OnBytes<'_>,
) -> Result<ImportedArray> {
    let name = spec.clone();
    let register = || {
        let mut reader = open(&spec, source)?;
        let header = reader.header().clone();
        let plan = spec.plan(header.dtype, reader.row_shape())?;
        let Stored { dtype: planned, row_shape, undecided } = Stored::of(&plan);
        let mask = matches!(&plan.content, Content::Split(split) if split.is_mask());
        let converted = |to: DType| {
            Error::invalid(format!(
                "type {}, to be stored as {to}, cannot be registered in place",
                header.dtype
            ))
            .hint("import a copy, which converts it")
        };
        let may_be_numbers = undecided && header.dtype == DType::F64;
        if planned != header.dtype && !may_be_numbers || mask {
            return Err(converted(planned));
        }
        let file = std::fs::canonicalize(source)?.into_os_string().into_string().map_err(|_| {
            Error::invalid("the path is not UTF-8, which the manifest needs").hint("import a copy")
        })?;
        let mut intake = Intake::new(plan, header.dtype, 0, reader.rows());
        intake.check_rows(&spec, reader.rows())?;
        let mut checksum = Checksum::new();
        reader.for_each_chunk(CHUNK, &mut |offset, bytes| {
            progress(offset, header.data_len())?;
            checksum.update(bytes);
            intake.take(bytes, &mut |_form, _stored| Ok(()))
        })?;
        let (summary, form) = intake.judge(&spec)?;
        if planned != header.dtype && form == Form::Planned {
            return Err(converted(planned));
        }
        progress(header.data_len(), header.data_len())?;
        let entry = ArrayEntry {
            file,
            dtype: header.dtype,
            shape: [&[reader.rows()], row_shape.as_slice()].concat(),
            data_offset: header.data_offset,
            checksum: checksum.finish(),
            external: true,
        };
        Ok(imported(spec, entry, summary))
    };
    named(&name, Some(source), register())
}

fn open(spec: &ArraySpec, source: &Path) -> Result<ArrayReader> {
    let reader = ArrayReader::open_unnamed(source)?;
    match spec.source_dtype {
        Some(dtype) => reader.with_dtype(dtype),
        None => Ok(reader),
    }
}

fn imported(spec: ArraySpec, entry: ArrayEntry, summary: ArraySummary) -> ImportedArray {
    let summary = ArraySummary { rows: entry.rows(), ..summary };
    let (key, target) = (spec.key(), spec.target.clone());
    ImportedArray { key, target, entry, summary, given: spec.given, times: spec.times }
}
