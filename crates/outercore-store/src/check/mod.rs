//! Verifying a data set: everything the format promises, every problem, in bounded memory.

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

/// How much of a data set is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// The manifest, and each array's file length and header: no data is read.
    Headers,
    /// All of it: every byte is read once.
    #[default]
    Contents,
}

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// How much is looked at.
    pub depth: Depth,
    /// Problems listed for one array; further ones are counted.
    pub problems_per_array: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { depth: Depth::default(), problems_per_array: 10 }
    }
}

/// Something that is not as the format promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key of the array; none for a problem of the manifest.
    pub array: Option<String>,
    /// What kind of error opening or reading would meet.
    pub kind: ErrorKind,
    /// What was expected and what was found, with row or byte.
    pub message: String,
    /// The next step, where one is known.
    pub hint: Option<String>,
}

impl Problem {
    /// What an error says is wrong; with an array it is that array's.
    pub fn of(array: Option<&str>, error: &Error) -> Self {
        Self {
            array: array.map(str::to_owned),
            kind: error.kind(),
            message: error.message(),
            hint: error.next_step().map(str::to_owned),
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

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Arrays in the manifest.
    pub arrays: u64,
    /// Data bytes that were read.
    pub bytes: u64,
    /// The problems, by array.
    pub problems: Vec<Problem>,
    /// Problems beyond those listed.
    pub omitted: u64,
}

impl Report {
    /// Whether no problem was found.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the data set in `root`: the manifest, each file's length and header, and, unless told
/// otherwise, checksums, CSC structure, the ranges of labels, splits and triples, and where names
/// end.
///
/// **Cost**: reads every array once, in order; a few MiB of memory, and a bit for each name where
/// an array has their order.
///
/// # Errors
/// Only those of `progress`: what is wrong with the data set is in the report.
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
    // Arrays whose file is as the manifest says, so that its content can be read.
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

/// The CSC arrays, out of `readable`; none if one of them cannot be read.
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
    // Extents of one move no byte: labels of shape [N, 1] may be registered as [N].
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

/// The running state of a check of contents.
struct Checker<'a, 'p> {
    manifest: &'a Manifest,
    findings: &'a mut Findings,
    progress: OnBytes<'p>,
    done: u64,
    total: u64,
}

impl Checker<'_, '_> {
    /// Reports that `read` bytes of the present task were read, `reported` of them before.
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

    /// Checks an array by itself: its checksum, and its values where its part asks for a range.
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

    /// Makes a failed read a problem, and lets a wish to stop pass.
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

/// Whatever `progress` fails with means that the caller wants no more.
fn stop(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Interrupted => error,
        _ => Error::new(ErrorKind::Interrupted, error.to_string()),
    }
}

/// Problems so far, so many for each array.
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

    /// A wrong row of an array.
    fn row(&mut self, key: &str, row: u64, what: String) {
        if self.is_full(key) {
            return;
        }
        self.problems.push(Problem::of(Some(key), &Error::corrupt(format!("row {row}: {what}"))));
    }

    /// A failure to open or read something. Never omitted: there are few, and they say the most.
    fn error(&mut self, key: Option<&str>, error: &Error) {
        self.problems.push(Problem::of(key, error));
    }

    /// Whether an array has its share of listed problems already; counts the one at hand.
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
