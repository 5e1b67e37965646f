use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc as Shared;

use outercore_core::{Bytes, Error, Result, hint};
use outercore_format::{ArrayEntry, IMPORT_DIRECTORY, keys};
use outercore_io::Disk;
use outercore_text::{Purpose, TextOptions, detect};

use super::arc::{Narrow, Wide};
use super::artifacts::{EdgeArtifacts, EdgeText};
use super::csc::{CscFiles, CscState, CscWriter, create_directories};
use super::input_file::InputFile;
use super::intake::Intake;
use super::journal::{Identity, Journal, Source, Stage, TextSource};
use super::npy::read_layout;
use super::options::{EdgeImportOptions, SelfLoops, Tuning};
use super::partition::{Partition, PartitionState};
use super::plan::{BucketLimits, Plan};
use super::progress::OnProgress;
use super::sort::{Sort, SortState};
use crate::destination::{Destination, Request};

/// Imports edge lists of any size as the CSC arrays of a data set, within a memory budget.
///
/// Give the sources of edges one after the other; the id of an edge is its place in their sequence.
/// Then [`EdgeImport::finish`] partitions the arcs by target into buckets that fit in memory, sorts
/// each bucket and appends it to the arrays. It does not write `graph.json`: the data set exists
/// only when the caller commits it, as [`super::GraphImport`] does.
///
/// **Restart** Durable progress is recorded in `.import/journal.json`. To resume an interrupted
/// import, start it again with the same options, the same fingerprint, and the same sources in the
/// same order. Any other import is refused.
///
/// **Cost** Text and batches are written once in binary form (8 bytes per edge, 16 with ids from
/// 2^32); `.npy` files are read in place, twice. Every arc is written to a bucket and read from it
/// once (12 or 24 bytes). The space is freed when the import is done.
///
/// **Example**
/// ```
/// use std::sync::Arc;
/// use outercore_io::RealDisk;
/// use outercore_store::import::{EdgeImport, EdgeImportOptions};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path().join("graph");
/// # let list = directory.path().join("edges.tsv");
/// std::fs::write(&list, "2\t1\n0\t1\n")?;
/// let options = EdgeImportOptions { undirected: true, ..EdgeImportOptions::default() };
/// let mut import = EdgeImport::new(Arc::new(RealDisk), &root, options, "example")?;
/// import.text(&list, &mut |_| Ok(()))?;
/// import.push(&[0], &[2])?;
/// let edges = import.finish(&mut |progress| {
///     eprintln!("{}: {} of {} {}", progress.phase, progress.done, progress.total, progress.unit);
///     Ok(())
/// })?;
/// assert_eq!((edges.num_nodes, edges.num_edges), (3, 6));
/// # Ok(())
/// # }
/// ```
pub struct EdgeImport {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    options: EdgeImportOptions,
    tuning: Tuning,
    intake: Intake,
    /// Whether a step failed, so that this object can no longer be used.
    failed: bool,
}

impl EdgeImport {
    /// Starts an import into the directory `root`, or resumes the interrupted import there.
    ///
    /// `fingerprint` identifies input that the import cannot check itself: the origin of pushed
    /// batches, or the seed of a generator.
    ///
    /// # Errors
    /// `Invalid`: `root` holds a data set, another unfinished import or other files, or another
    /// process writes to it. `Budget`: too little memory, with the smallest sufficient amount.
    pub fn new(
        disk: Shared<dyn Disk>,
        root: &Path,
        options: EdgeImportOptions,
        fingerprint: &str,
    ) -> Result<Self> {
        Self::requested(disk, root, options, fingerprint, Request::default())
    }

    /// [`EdgeImport::new`] with the options of `request`.
    pub(crate) fn requested(
        disk: Shared<dyn Disk>,
        root: &Path,
        options: EdgeImportOptions,
        fingerprint: &str,
        request: Request<'_>,
    ) -> Result<Self> {
        let tuning = options.tuning()?;
        let mut destination = Destination::begin(Shared::clone(&disk), root, request)?;
        let identity = Identity::new(&options, fingerprint);
        let known =
            destination.resume(|root| Journal::load(root, &identity), Journal::is_current)?;
        let journal = known.unwrap_or_else(|| Journal::new(identity));
        let intake =
            Intake::new(Shared::clone(&disk), root, &options, tuning, journal, destination);
        Ok(Self { disk, root: root.to_owned(), options, tuning, intake, failed: false })
    }

    /// The output directory of the import.
    pub(crate) fn destination(&mut self) -> &mut Destination {
        &mut self.intake.destination
    }

    /// Whether the import was resumed.
    pub fn is_resumed(&self) -> bool {
        self.intake.is_resumed()
    }

    /// Reads the edges of a text file in the format that [`outercore_text::detect`] finds. The
    /// first two columns are source and target.
    ///
    /// # Errors
    /// `Invalid`: a line that is not an edge, with its number, or a file with an ambiguous format.
    /// `Corrupt`: a damaged compressed file.
    pub fn text(&mut self, path: &Path, on_progress: OnProgress<'_>) -> Result<()> {
        let memory = self.options.memory;
        self.guarded(|intake, _| {
            intake.destination.refuse_inside(path)?;
            let dialect = detect(path, Purpose::Edges, &TextOptions::default(), memory)?;
            let text = EdgeText { dialect, source: 0, target: 1 };
            let file = InputFile::of(path)?;
            intake.text(TextSource { file, text }, on_progress)
        })
    }

    /// Reads the edges of a text file in the format `text`.
    ///
    /// # Errors
    /// As [`EdgeImport::text`].
    pub fn text_as(
        &mut self,
        path: &Path,
        text: EdgeText,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        self.guarded(|intake, _| {
            intake.destination.refuse_inside(path)?;
            if text.source.max(text.target) >= text.dialect.columns {
                return Err(Error::invalid(format!(
                    "edge list `{}`: columns {} and {} of {}",
                    path.display(),
                    text.source + 1,
                    text.target + 1,
                    text.dialect.columns
                )));
            }
            let file = InputFile::of(path)?;
            intake.text(TextSource { file, text }, on_progress)
        })
    }

    /// Reads the edges of a `.npy` file of int32, int64, uint32 or uint64.
    ///
    /// **Shapes** `[E, 2]`, or `[2, E]` as in PyG; `[2, 2]` is ambiguous and refused.
    ///
    /// # Errors
    /// `Invalid`: another shape or type, or an id out of range, with its row. `Corrupt`: the file
    /// is truncated.
    pub fn npy(&mut self, path: &Path, on_progress: OnProgress<'_>) -> Result<()> {
        self.guarded(|intake, _| {
            intake.destination.refuse_inside(path)?;
            let file = InputFile::of(path)?;
            let segment = read_layout(std::slice::from_ref(&file))?;
            intake.binary(Source::Npy(vec![file]), segment, on_progress)
        })
    }

    /// Reads edges whose sources and targets are in two `.npy` files.
    ///
    /// **Shapes** `[E]` each, of the same type.
    ///
    /// # Errors
    /// As [`EdgeImport::npy`]; also if the lengths or types differ.
    pub fn npy_columns(
        &mut self,
        sources: &Path,
        targets: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        self.guarded(|intake, _| {
            intake.destination.refuse_inside(sources)?;
            intake.destination.refuse_inside(targets)?;
            let files = vec![InputFile::of(sources)?, InputFile::of(targets)?];
            let segment = read_layout(&files)?;
            intake.binary(Source::Npy(files), segment, on_progress)
        })
    }

    /// Adds a batch of edges. All batches until the next source of another kind count as one
    /// source; their sizes do not matter.
    ///
    /// A resumed import skips pushed edges that are already durable; [`EdgeImport::pushed_before`]
    /// returns their number.
    ///
    /// # Errors
    /// `Invalid`: the lengths differ, or an id is out of range, with its row.
    pub fn push(&mut self, sources: &[i64], targets: &[i64]) -> Result<()> {
        self.guarded(|intake, _| intake.push_columns(sources, targets))
    }

    /// As [`EdgeImport::push`], with `[source, target]` pairs.
    pub fn push_pairs(&mut self, edges: &[[u64; 2]]) -> Result<()> {
        self.guarded(|intake, _| intake.push(edges))
    }

    /// Number of pushed edges that an earlier run made durable. A caller that can start after them
    /// calls [`EdgeImport::skip_pushed`].
    pub fn pushed_before(&mut self) -> Result<u64> {
        self.guarded(|intake, _| intake.pushed_before())
    }

    /// Replaces pushing the next `edges` edges, which must already be durable.
    pub fn skip_pushed(&mut self, edges: u64) -> Result<()> {
        self.guarded(|intake, _| intake.skip_pushed(edges))
    }

    /// Builds the CSC arrays of all edges.
    ///
    /// # Errors
    /// `Invalid`: the number of nodes is unknown because there are no edges, or ids are too large
    /// to be row numbers. `Budget`: too little memory for the number of edges. `NoSpace`, `Io`;
    /// errors of `on_progress`.
    pub fn finish(&mut self, on_progress: OnProgress<'_>) -> Result<EdgeArtifacts> {
        self.guarded(|intake, context| {
            intake.close()?;
            loop {
                match intake.journal.stage.clone() {
                    Stage::Read => context.plan(intake, &mut *on_progress)?,
                    Stage::Partition { plan, state } => {
                        context.partition(intake, plan, state, &mut *on_progress)?;
                    }
                    Stage::Sort { plan, state } => {
                        context.sort(intake, plan, state, &mut *on_progress)?;
                    }
                    Stage::Done(artifacts) => return context.clean(intake, artifacts),
                }
            }
        })
    }

    /// Ends the import because the caller found a fault in the input; returns the fault.
    pub(crate) fn refused(&mut self, fault: Error) -> Error {
        match self.guarded(|_, _| Err::<(), _>(fault)) {
            Err(fault) => fault,
            Ok(()) => Error::internal("a refused edge was taken"),
        }
    }

    /// Ends the import because the caller found a fault in the input and reports it.
    pub(crate) fn end_refused(&mut self) {
        self.failed = true;
        let is_worth_keeping = self.intake.has_whole_source();
        self.intake.destination.failed(&Error::invalid("refused"), is_worth_keeping);
    }

    /// Runs a step, unless an earlier step failed: after a failure, the state in memory may differ
    /// from the state on disk.
    fn guarded<T>(
        &mut self,
        step: impl FnOnce(&mut Intake, Context<'_>) -> Result<T>,
    ) -> Result<T> {
        if self.failed {
            return Err(Error::invalid("the import was stopped by an error before")
                .hint("begin it again; it goes on from its journal"));
        }
        let context = Context {
            disk: &*self.disk,
            root: &self.root,
            options: &self.options,
            tuning: self.tuning,
        };
        let result = step(&mut self.intake, context);
        if let Err(error) = &result {
            self.failed = true;
            let is_worth_keeping = self.intake.has_whole_source();
            self.intake.destination.failed(error, is_worth_keeping);
        }
        result
    }
}

/// Shared state of the phases after the intake.
#[derive(Clone, Copy)]
struct Context<'a> {
    disk: &'a dyn Disk,
    root: &'a Path,
    options: &'a EdgeImportOptions,
    tuning: Tuning,
}

impl Context<'_> {
    fn temporary(&self, name: &str) -> PathBuf {
        self.root.join(IMPORT_DIRECTORY).join(name)
    }

    /// Makes a plan after all edges are read.
    fn plan(self, intake: &mut Intake, on_progress: OnProgress<'_>) -> Result<()> {
        let mut histogram = intake.take_histogram(on_progress)?;
        let input_edges = intake.journal.sources.iter().map(|source| source.edges).sum::<u64>();
        let stated = intake.journal.sources.iter().map(|source| source.num_nodes).max();
        let found = histogram.end().max(stated.unwrap_or(0));
        let num_nodes = match self.options.num_nodes {
            Some(nodes) => nodes,
            None if found == 0 => {
                intake.destination.give_up();
                return Err(Error::invalid("the input has no edges and says no number of nodes")
                    .hint(hint!("a graph without edges is imported by " {nodes = "N"})));
            }
            None => {
                refuse_names(found, histogram.arcs())
                    .inspect_err(|_| intake.destination.give_up())?;
                found
            }
        };
        histogram.cover(num_nodes);
        let add = self.options.self_loops == SelfLoops::Add;
        let ids = input_edges + if add { num_nodes } else { 0 };
        let num_sources = self.options.num_sources.unwrap_or(num_nodes);
        let wide = self.tuning.wide || num_nodes.max(num_sources).max(ids) > 1 << 32;
        let threads = self.options.threads;
        let limits = if wide {
            BucketLimits::of_memory::<Wide>(&self.tuning, threads)
        } else {
            BucketLimits::of_memory::<Narrow>(&self.tuning, threads)
        };
        let limits = limits.preferred(&self.tuning, histogram.arcs());
        let plan = Plan::new(&histogram, num_nodes, input_edges, wide, limits);
        plan.buffer_arcs(&self.tuning, self.options.memory)?;
        intake.journal.stage = Stage::Partition { plan, state: PartitionState::default() };
        intake.journal.save(self.disk, self.root)
    }

    fn partition(
        self,
        intake: &mut Intake,
        plan: Plan,
        state: PartitionState,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let Ok(buffer_arcs) = plan.buffer_arcs(&self.tuning, self.options.memory) else {
            // The plan was made by a run with more memory. The edges are still on disk, so make a
            // new plan.
            intake.journal.stage = Stage::Read;
            return self.plan(intake, on_progress);
        };
        let segments: Vec<_> =
            intake.journal.sources.iter().flat_map(|source| source.segments.clone()).collect();
        let path = self.temporary("buckets");
        let partition = Partition {
            disk: self.disk,
            path: &path,
            segments: &segments,
            plan: &plan,
            undirected: self.options.undirected,
            drop_loops: self.options.self_loops == SelfLoops::Drop,
            tuning: self.tuning,
            buffer_arcs,
        };
        let journal = &mut intake.journal;
        let save = &mut |state| {
            journal.stage = Stage::Partition { plan: plan.clone(), state };
            journal.save(self.disk, self.root)
        };
        if plan.wide {
            partition.run::<Wide>(state, save, on_progress)?;
        } else {
            partition.run::<Narrow>(state, save, on_progress)?;
        }
        intake.journal.stage = Stage::Sort { plan, state: SortState::default() };
        intake.journal.save(self.disk, self.root)
    }

    fn sort(
        self,
        intake: &mut Intake,
        plan: Plan,
        state: SortState,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        self.disk.remove_file(&self.temporary("spill"))?;
        intake.destination.claim(&[keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS])?;
        create_directories(self.disk, self.root)?;
        let (path, runs) = (self.temporary("buckets"), self.temporary("runs"));
        let sort = Sort {
            disk: self.disk,
            path: &path,
            runs: &runs,
            plan: &plan,
            threads: self.options.threads,
            tuning: self.tuning,
        };
        let files = intake.destination.files();
        let files = CscFiles {
            offsets: files[keys::OFFSETS].clone(),
            sources: files[keys::SOURCES].clone(),
            ids: files[keys::EDGE_IDS].clone(),
        };
        let mut csc = CscWriter::open(self.disk, self.root, files, &plan, self.options, state.csc)?;
        let journal = &mut intake.journal;
        let save = &mut |state| {
            journal.stage = Stage::Sort { plan: plan.clone(), state };
            journal.save(self.disk, self.root)
        };
        if plan.wide {
            sort.run::<Wide>(state.buckets, &mut csc, save, on_progress)?;
        } else {
            sort.run::<Narrow>(state.buckets, &mut csc, save, on_progress)?;
        }
        let state = csc.state();
        let arrays = csc.finish(self.disk, self.root)?;
        let sources = || intake.journal.sources.iter();
        let comment_lines = sources().map(|source| source.comments).sum();
        let repeated_headers = sources().map(|source| source.repeated_headers).sum();
        let padded_ids = sources().map(|source| source.padded_ids).sum();
        let artifacts = self.artifacts(&plan, state, arrays);
        intake.journal.stage =
            Stage::Done(EdgeArtifacts { comment_lines, repeated_headers, padded_ids, ..artifacts });
        intake.journal.save(self.disk, self.root)
    }

    fn artifacts(
        self,
        plan: &Plan,
        state: CscState,
        arrays: BTreeMap<String, ArrayEntry>,
    ) -> EdgeArtifacts {
        let drop = self.options.self_loops == SelfLoops::Drop;
        let add = self.options.self_loops == SelfLoops::Add;
        EdgeArtifacts {
            num_nodes: plan.num_nodes,
            num_edges: state.arcs,
            input_edges: plan.input_edges,
            undirected: self.options.undirected,
            edge_rows: plan.input_edges + if add { plan.num_nodes } else { 0 },
            loops_dropped: if drop { plan.loops } else { 0 },
            loops_added: state.loops_added,
            duplicates_dropped: state.duplicates_dropped,
            comment_lines: 0,
            repeated_headers: 0,
            padded_ids: 0,
            arrays,
        }
    }

    /// Removes files that only a resumed import would need.
    fn clean(self, intake: &Intake, artifacts: EdgeArtifacts) -> Result<EdgeArtifacts> {
        for name in ["spill", "buckets", "runs"] {
            self.disk.remove_file(&self.temporary(name))?;
        }
        let ids = intake.destination.files().get(keys::EDGE_IDS);
        if let Some(file) = ids.filter(|_| !artifacts.arrays.contains_key(keys::EDGE_IDS)) {
            self.disk.remove_file(&self.root.join(file))?;
        }
        Ok(artifacts)
    }
}

/// Refuses ids that are probably names: most nodes would be isolated, and their offsets would fill
/// the device.
fn refuse_names(num_nodes: u64, arcs: u64) -> Result<()> {
    let offsets = Bytes(num_nodes.saturating_mul(8));
    let plausible = Bytes(Bytes::gib(1).0.saturating_add(arcs.saturating_mul(256)));
    if offsets <= plausible {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the largest node id is {}, but there are only {arcs} arcs: ids must be row numbers from 0 \
         on, not names or hashes (the column offsets alone would take {offsets})",
        num_nodes - 1
    ))
    .hint(hint!(
        "nodes with names or sparse numbers: " {ids = "dictionary"} "; if the graph really has "
        "so many: " {nodes = "N"}
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_hashes_are_refused_and_sparse_ones_are_not() {
        refuse_names(100_000_000, 10).unwrap();
        refuse_names(2_000_000_000, 1_000_000_000).unwrap();
        let error = refuse_names(1 << 40, 1_000_000).unwrap_err().to_string();
        assert!(error.contains("the largest node id is 1099511627775"), "{error}");
    }
}
