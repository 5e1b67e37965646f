//! Verifies a data set: checks every promise of the format and reports every problem, in bounded
//! memory.

mod topology;
mod values;
mod words;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::{ArrayEntry, Checksum, MANIFEST_FILE, Manifest, keys};

use crate::dataset::ArrayRef;
use crate::manifest_file::read_manifest_bytes;
use crate::npy::{ArrayReader, OnBytes, read_header};
use topology::Csc;
use values::Values;

/// Depth of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// The manifest, and the file length and header of each array; no data is read.
    Headers,
    /// Everything: every byte is read once.
    #[default]
    Contents,
}

/// Options of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Depth of the check.
    pub depth: Depth,
    /// Most problems to list for one array; further problems are counted.
    pub problems_per_array: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { depth: Depth::default(), problems_per_array: 10 }
    }
}

/// A violation of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key of the array; `None` for a problem of the manifest.
    pub array: Option<String>,
    /// Kind of the error that opening or reading would return.
    pub kind: ErrorKind,
    /// The expected and the found value, with row or byte.
    pub message: String,
    /// The next step, if it is known.
    pub hint: Option<String>,
}

impl Problem {
    /// Converts an error to a problem, of an array if one is given.
    pub fn of(array: Option<&str>, error: &Error) -> Self {
        Self {
            array: array.map(str::to_owned),
            kind: error.kind(),
            message: error.message(),
            hint: error.next_step().map(ToString::to_string),
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.array {
            Some(key) => write!(f, "array `{key}`: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of arrays in the manifest.
    pub arrays: u64,
    /// Number of data bytes read.
    pub bytes: u64,
    /// The problems, by array.
    pub problems: Vec<Problem>,
    /// Number of problems beyond the listed ones.
    pub omitted: u64,
}

impl Report {
    /// Whether no problem was found.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the data set in `root`: the manifest, and the length and header of each file. By
/// default also the contents: checksums, the CSC structure, the ranges of labels, splits and
/// triples, and the ends of names.
///
/// **Cost**: reads every array once, in order; a few MiB of memory, and one bit per name if an
/// array stores the order of names.
///
/// # Errors
/// Only errors of `progress`. Problems of the data set are in the report.
///
/// # Example
/// ```
/// use outercore_store::check::{CheckOptions, check};
/// # fn main() -> outercore_core::Result<()> {
/// # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/format-1").as_ref();
/// let report = check(root, &CheckOptions::default(), &mut |_done, _total| Ok(()))?;
/// assert!(report.is_sound(), "{:?}", report.problems);
/// # Ok(())
/// # }
/// ```
pub fn check(root: &Path, options: &CheckOptions, progress: OnBytes<'_>) -> Result<Report> {
    let mut findings = Findings::new(options.problems_per_array);
    let manifest = read_manifest_bytes(root)
        .and_then(|bytes| Manifest::from_json(&bytes).with_context(|| format!("`{MANIFEST_FILE}`")))
        .with_context(|| format!("data set `{}`", root.display()));
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(error) => {
            findings.error(None, &error);
            return Ok(findings.report(0, 0));
        }
    };
    // Arrays whose file matches the manifest, so that their content can be read.
    let mut readable = BTreeMap::new();
    for (key, entry) in &manifest.arrays {
        let array = ArrayRef::new(root, key, entry);
        match array.check_len(entry.external).and_then(|()| check_header(&array, entry)) {
            Ok(()) => {
                readable.insert(key.as_str(), array);
            }
            Err(error) => findings.error(Some(key), &error),
        }
    }
    if options.depth == Depth::Headers {
        return Ok(findings.report(manifest.arrays.len() as u64, 0));
    }
    let total = readable.values().map(ArrayRef::data_len).sum();
    let mut checker =
        Checker { manifest: &manifest, findings: &mut findings, progress, done: 0, total };
    if let Some(csc) = take_csc(&manifest, &mut readable) {
        let result = topology::check(&csc, &mut checker);
        checker.absorb(&csc.sources.key, result)?;
    }
    for (key, array) in &readable {
        let result = checker.content(array);
        checker.absorb(key, result)?;
    }
    let bytes = checker.done;
    Ok(findings.report(manifest.arrays.len() as u64, bytes))
}

/// Takes the CSC arrays out of `readable`; `None` if one of them is missing there.
fn take_csc(manifest: &Manifest, readable: &mut BTreeMap<&str, ArrayRef>) -> Option<Csc> {
    let has_ids = manifest.arrays.contains_key(keys::EDGE_IDS);
    let needed = [Some(keys::OFFSETS), Some(keys::SOURCES), has_ids.then_some(keys::EDGE_IDS)];
    if !needed.into_iter().flatten().all(|key| readable.contains_key(key)) {
        return None;
    }
    Some(Csc {
        offsets: readable.remove(keys::OFFSETS)?,
        sources: readable.remove(keys::SOURCES)?,
        ids: readable.remove(keys::EDGE_IDS),
        schema: manifest.schema().ok()?,
        rows_are_known: manifest.edge_types.values().all(|edges| edges.rows.is_some()),
    })
}

fn check_header(array: &ArrayRef, entry: &ArrayEntry) -> Result<()> {
    let header = read_header(&mut File::open(&array.path)?).context("header")?;
    // Dimensions of size 1 do not change the data: labels of shape [N, 1] may be registered as [N].
    let extents = |shape: &[u64]| -> Vec<u64> {
        shape.iter().copied().filter(|extent| *extent != 1 || !entry.external).collect()
    };
    let differs = |what: &str, found: &str, expected: &str| {
        Err(Error::corrupt(format!("header says {what} {found}, the manifest {expected}")))
    };
    if header.dtype != entry.dtype.stored() {
        return differs("type", header.dtype.name(), entry.dtype.stored().name());
    }
    if extents(&header.shape) != extents(&entry.shape) {
        return differs("shape", &format!("{:?}", header.shape), &format!("{:?}", entry.shape));
    }
    if header.data_offset != entry.data_offset {
        let (found, expected) = (header.data_offset.to_string(), entry.data_offset.to_string());
        return differs("data at byte", &found, &expected);
    }
    Ok(())
}

/// State of a check of contents.
struct Checker<'a, 'p> {
    manifest: &'a Manifest,
    findings: &'a mut Findings,
    progress: OnBytes<'p>,
    done: u64,
    total: u64,
}

impl Checker<'_, '_> {
    /// Reports progress: `read` bytes of the current step are read, and `reported` were reported
    /// before.
    fn advance(&mut self, read: u64, reported: u64) -> Result<u64> {
        self.done += read - reported;
        (self.progress)(self.done, self.total).map_err(stop)?;
        Ok(read)
    }

    /// Compares a checksum with the manifest.
    fn compare(&mut self, key: &str, found: &str) {
        let expected = &self.manifest.arrays[key].checksum;
        if found != expected {
            let error = Error::corrupt(format!(
                "checksum {found}, expected {expected}: bytes were altered"
            ))
            .hint("copy the file again, or import it again");
            self.findings.error(Some(key), &error);
        }
    }

    /// Checks one array: its checksum, and its values if its key restricts them.
    fn content(&mut self, array: &ArrayRef) -> Result<()> {
        let mut values = match Values::of(self.manifest, array) {
            Ok(values) => values,
            Err(error) => {
                self.findings.error(Some(&array.key), &error);
                Values::Any
            }
        };
        let mut checksum = Checksum::new();
        let mut reader = ArrayReader::open_unnamed(&array.path)?;
        let size = array.dtype.size();
        let mut read = 0;
        reader.for_each_chunk(outercore_core::Bytes::mib(1), &mut |offset, bytes| {
            checksum.update(bytes);
            if !values.are_any() {
                let elements = bytes.chunks_exact(size);
                for (place, element) in (offset / size as u64..).zip(elements) {
                    if let Err(what) = values.check(array.dtype, place, element) {
                        self.findings.row(&array.key, values.row(place), what);
                    }
                }
            }
            read = self.advance(offset + bytes.len() as u64, read)?;
            Ok(())
        })?;
        self.compare(&array.key, &checksum.finish());
        Ok(())
    }

    /// Records a failed read as a problem, but returns a request to stop.
    fn absorb(&mut self, key: &str, result: Result<()>) -> Result<()> {
        match result {
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(error) => {
                self.findings.error(Some(key), &error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Any error of `progress` means that the caller wants to stop.
fn stop(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Interrupted => error,
        _ => Error::new(ErrorKind::Interrupted, error.to_string()),
    }
}

/// Problems so far, with a limit for each array.
struct Findings {
    limit: u64,
    of_array: BTreeMap<String, u64>,
    problems: Vec<Problem>,
    omitted: u64,
}

impl Findings {
    fn new(limit: u64) -> Self {
        Self { limit, of_array: BTreeMap::new(), problems: Vec::new(), omitted: 0 }
    }

    /// Records a wrong row of an array.
    fn row(&mut self, key: &str, row: u64, what: String) {
        if self.is_full(key) {
            return;
        }
        self.problems.push(Problem::of(Some(key), &Error::corrupt(format!("row {row}: {what}"))));
    }

    /// Records an error of opening or reading. These are few and important, so the limit does not
    /// apply.
    fn error(&mut self, key: Option<&str>, error: &Error) {
        self.problems.push(Problem::of(key, error));
    }

    /// Whether the listed problems of an array have reached the limit; counts the current problem.
    fn is_full(&mut self, key: &str) -> bool {
        let found = match self.of_array.get_mut(key) {
            Some(found) => found,
            None => self.of_array.entry(key.to_owned()).or_default(),
        };
        *found += 1;
        let full = *found > self.limit;
        self.omitted += u64::from(full);
        full
    }

    fn report(mut self, arrays: u64, bytes: u64) -> Report {
        self.problems.sort_by(|a, b| a.array.cmp(&b.array));
        Report { arrays, bytes, problems: self.problems, omitted: self.omitted }
    }
}
