//! The steps for the chunks of a batch: pack candidates, train blocks of triples, compute gradients
//! of candidates.

use super::blocks::{Block, Packed, ROWS_AT_ONCE, Remains, Scored};
use super::job::{Job, first_mut};
use super::{Batch, RowsOf, SideSpace, Tables, grow};
use crate::distance::{Columns, LINE, group_rows};
use crate::lanes::{Kernel, Lanes, dispatch};
use crate::model::{Side, dot};
use crate::parallel::for_each;
use crate::product::{Extent, Left, Right, Rows, padded, panel_width, product};

/// Candidates whose gradients a thread computes at a time.
const CANDIDATES_AT_ONCE: usize = 24;
/// Columns of candidates that a thread writes at a time.
const COLUMNS_AT_ONCE: usize = 16;
/// Queries that a thread processes at a time in a simple pass.
const QUERIES_AT_ONCE: usize = 128;
/// Scores in memory at the same time, unless a single chunk has more.
const SCORES: usize = 1 << 20;

/// All chunks, in groups whose scores fit in memory together.
pub(super) fn jobs(from: &Tables<'_>, batch: &Batch<'_>) -> Vec<Vec<Job>> {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    let mut room = 0;
    for (side, questions) in batch.questions.iter().enumerate() {
        let (mut triple, mut candidate, mut bias) = (0, 0, 0);
        for chunk in questions.chunks {
            let width = match from.apart(chunk.candidates) {
                Some((_, columns)) => columns.stride,
                None => padded(chunk.candidates),
            };
            let job = Job {
                side,
                triples: triple..triple + chunk.triples,
                candidates: candidate..candidate + chunk.candidates,
                biases: bias..bias + chunk.kinds * chunk.candidates,
                width,
            };
            (triple, candidate, bias) = (job.triples.end, job.candidates.end, job.biases.end);
            match groups.last_mut() {
                Some(group) if job.scores() <= room => {
                    room -= job.scores();
                    group.push(job);
                }
                _ => {
                    room = SCORES.saturating_sub(job.scores());
                    groups.push(vec![job]);
                }
            }
        }
    }
    groups
}

/// Memory of the steps.
pub(super) struct Space<'a> {
    pub rows: &'a [RowsOf; 2],
    pub sides: &'a mut [SideSpace; 2],
    pub scores: &'a mut Vec<f32>,
    pub panels: &'a mut [Vec<f32>; 2],
    pub squares: &'a mut Vec<f32>,
    pub columns: &'a mut Vec<f32>,
}

/// Chunks that are trained together, and their inputs.
#[derive(Clone, Copy)]
struct Group<'a> {
    from: &'a Tables<'a>,
    batch: &'a Batch<'a>,
    jobs: &'a [Job],
    threads: usize,
}

impl<'a> Group<'a> {
    fn candidates(&self, job: &Job) -> &'a [i64] {
        &self.batch.questions[job.side].candidates[job.candidates.clone()]
    }

    /// Floats of a chunk's candidates as columns.
    fn columns(&self, job: &Job) -> usize {
        self.from.entities.width * job.width
    }

    /// Number of blocks of a chunk that a thread takes at a time. Several, if the gradients of
    /// candidates are summed during the computation; otherwise one.
    fn blocks(&self, job: &Job) -> usize {
        match self.from.apart(job.candidates.len()) {
            Some(_) => {
                let rows = group_rows(job.triples.len(), self.columns(job));
                rows.div_ceil(ROWS_AT_ONCE).max(1)
            }
            None => 1,
        }
    }

    /// Floats of the gradients of a chunk's candidates, over all groups of blocks.
    fn groups(&self, job: &Job) -> usize {
        match self.from.apart(job.candidates.len()) {
            Some(_) => {
                let groups = job.triples.len().div_ceil(ROWS_AT_ONCE * self.blocks(job));
                groups * self.columns(job)
            }
            None => 0,
        }
    }

    /// Floats of a chunk's candidates as rows.
    fn rows(&self, job: &Job) -> usize {
        job.candidates.len() * self.from.stride()
    }

    /// The size of a buffer for every chunk.
    fn sizes(&self, of: impl Fn(&Job) -> usize) -> Vec<usize> {
        self.jobs.iter().map(of).collect()
    }
}

impl Space<'_> {
    /// Computes scores, loss and gradients of some chunks.
    pub fn score(&mut self, from: &Tables<'_>, batch: &Batch<'_>, jobs: &[Job], threads: usize) {
        let group = Group { from, batch, jobs, threads };
        self.pack(group);
        self.train_blocks(group);
        self.candidate_gradients(group);
        if from.euclidean() {
            self.part_queries_from_targets(group);
        }
    }

    /// Writes the candidates' rows in the layout for computing scores.
    fn pack(&mut self, group: Group<'_>) {
        if group.from.apart(0).is_some() {
            self.pack_columns(group);
        } else {
            self.pack_panels(group);
        }
    }

    /// As columns.
    fn pack_columns(&mut self, group: Group<'_>) {
        let mut pieces = Vec::new();
        let columns = cut(&mut self.panels[0], &group.sizes(|job| group.columns(job)));
        for (job, columns) in group.jobs.iter().zip(columns) {
            let columns = columns.chunks_mut(COLUMNS_AT_ONCE * job.width).enumerate();
            pieces.extend(columns.map(|(number, columns)| (job, number, columns)));
        }
        for_each(pieces, group.threads, |(job, number, columns)| {
            let rows = group.candidates(job);
            let row = |candidate: usize| group.from.entity(rows[candidate] as u32);
            let of = Columns::of(rows.len(), group.from.entities.width);
            of.write(number * COLUMNS_AT_ONCE, row, columns);
        });
    }

    /// In panels, as columns and as rows.
    fn pack_panels(&mut self, group: Group<'_>) {
        let width = group.from.entities.width;
        let rows_of =
            |job| Rows { table: group.from.entities.rows, width, rows: group.candidates(job) };
        let [by_columns, by_rows] = &mut *self.panels;
        let mut pieces = Vec::new();
        let columns = cut(by_columns, &group.sizes(|job| group.columns(job)));
        for (job, panels) in group.jobs.iter().zip(columns) {
            let panels = panels.chunks_mut(panel_width() * width).enumerate();
            pieces.extend(panels.map(|(number, panel)| (job, number, panel, true)));
        }
        let rows = cut(by_rows, &group.sizes(|job| group.rows(job)));
        for (job, panels) in group.jobs.iter().zip(rows) {
            let panels = panels.chunks_mut(panel_width() * job.candidates.len()).enumerate();
            pieces.extend(panels.map(|(number, panel)| (job, number, panel, false)));
        }
        for_each(pieces, group.threads, |(job, number, panel, turned)| {
            if turned {
                rows_of(job).pack_columns(number, panel);
            } else {
                rows_of(job).pack_rows(number, panel);
            }
        });
        if group.from.euclidean() {
            let pieces = cut(self.squares, &group.sizes(|job| job.candidates.len()));
            let pieces = group.jobs.iter().zip(pieces).collect();
            for_each(pieces, group.threads, |(job, out)| {
                dispatch(Squares { from: group.from, rows: group.candidates(job), out });
            });
        }
    }

    /// Computes query, scores, loss, and gradients for blocks of triples. The gradients of
    /// candidates are included only for distances computed pair by pair.
    fn train_blocks(&mut self, group: Group<'_>) {
        let (mut columns, mut rows) = (&self.panels[0][..], &self.panels[1][..]);
        let mut squares = &self.squares[..];
        let [tails, heads] = &mut *self.sides;
        let mut remains = [Remains::new(tails, &self.rows[0]), Remains::new(heads, &self.rows[1])];
        let mut tasks = Vec::new();
        let scores = cut(self.scores, &group.sizes(Job::scores));
        let sums = cut(self.columns, &group.sizes(|job| group.groups(job)));
        for ((job, scores), mut sums) in group.jobs.iter().zip(scores).zip(sums) {
            let questions = &group.batch.questions[job.side];
            let tails = job.side == 0 || group.from.objective.reverse.is_some();
            let columns = first(&mut columns, group.columns(job));
            let packed = match group.from.apart(job.candidates.len()) {
                Some((distance, of)) => Packed::Columns(distance, of, columns),
                None => Packed::Panels {
                    columns,
                    rows: first(&mut rows, group.rows(job)),
                    squares: match group.from.euclidean() {
                        true => first(&mut squares, job.candidates.len()),
                        false => &[],
                    },
                },
            };
            let chunk = Scored {
                from: group.from,
                batch: group.batch,
                side_number: job.side,
                side: if tails { Side::Tail } else { Side::Head },
                candidates: group.candidates(job),
                bias: questions.bias.map(|bias| &bias[job.biases.clone()]),
                width: job.width,
                packed,
            };
            let mut blocks = remains[job.side].blocks(job, chunk, scores).into_iter();
            while blocks.len() > 0 {
                let some: Vec<Block<'_>> = blocks.by_ref().take(group.blocks(job)).collect();
                let count = group.columns(job).min(sums.len());
                tasks.push((some, first_mut(&mut sums, count)));
            }
        }
        for_each(tasks, group.threads, |(blocks, to_columns)| {
            to_columns.fill(0.0);
            for mut block in blocks {
                block.train(to_columns);
            }
        });
    }

    /// Computes the gradients of candidates, some at a time, from the derivatives that the blocks
    /// left in place of scores. For distances computed pair by pair, sums the gradients of groups
    /// of blocks.
    fn candidate_gradients(&mut self, group: Group<'_>) {
        let stride = group.from.stride();
        let mut pieces = Vec::new();
        let (mut found, mut sums) = (&self.scores[..], &self.columns[..]);
        let [tails, heads] = &mut *self.sides;
        let queries = [&tails.queries[..], &heads.queries[..]];
        let mut outputs = [&mut tails.to_candidates[..], &mut heads.to_candidates[..]];
        let mut done = [0, 0];
        for job in group.jobs {
            let scores = first(&mut found, job.scores());
            let sums = first(&mut sums, group.groups(job));
            let output = &mut outputs[job.side];
            first_mut(output, (job.candidates.start - done[job.side]) * stride);
            done[job.side] = job.candidates.end;
            let output = first_mut(output, group.rows(job));
            let queries = &queries[job.side][job.triples.start * stride..job.triples.end * stride];
            let at_once = if sums.is_empty() { CANDIDATES_AT_ONCE } else { LINE };
            for (number, out) in output.chunks_mut(at_once * stride).enumerate() {
                pieces.push((job, number * at_once, scores, sums, queries, out));
            }
        }
        for_each(pieces, group.threads, |(job, first, scores, sums, queries, out)| {
            if let Some((_, of)) = group.from.apart(job.candidates.len()) {
                out.fill(0.0);
                of.add_rows(sums, first, stride, out);
                return;
            }
            let left = Left::Columns { numbers: scores, stride: job.width, first };
            let (rows, depth) = (out.len() / stride, job.triples.len());
            product(left, Right::Rows(queries), Extent { rows, depth, width: stride }, out);
            if group.from.euclidean() {
                let rows = &group.candidates(job)[first..][..rows];
                subtract_own(group.from, rows, &scores[first..], job.width, out);
            }
        });
    }

    /// Subtracts each target from its query: the target's gradient is a multiple of this
    /// difference.
    fn part_queries_from_targets(&mut self, group: Group<'_>) {
        let stride = group.from.stride();
        let mut pieces = Vec::new();
        for (side, space) in self.sides.iter_mut().enumerate() {
            let mut rest = &mut space.queries[..];
            let mut done = 0;
            for job in group.jobs.iter().filter(|job| job.side == side) {
                first_mut(&mut rest, (job.triples.start - done) * stride);
                done = job.triples.end;
                let queries = first_mut(&mut rest, job.triples.len() * stride);
                let targets = &self.rows[side].targets[job.triples.clone()];
                let queries = queries.chunks_mut(QUERIES_AT_ONCE * stride);
                pieces.extend(queries.zip(targets.chunks(QUERIES_AT_ONCE)));
            }
        }
        for_each(pieces, group.threads, |(queries, targets)| {
            for (query, &target) in queries.chunks_exact_mut(stride).zip(targets) {
                for (number, target) in query.iter_mut().zip(group.from.entity(target)) {
                    *number -= target;
                }
            }
        });
    }
}

/// Computes the squared norms of rows.
struct Squares<'a> {
    from: &'a Tables<'a>,
    rows: &'a [i64],
    out: &'a mut [f32],
}

impl Kernel for Squares<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (out, &row) in self.out.iter_mut().zip(self.rows) {
            let row = self.from.entity(row as u32);
            *out = dot(lanes, row, row);
        }
    }
}

/// Subtracts from each candidate's gradient the candidate times the sum of the derivatives of all
/// queries.
///
/// `pulls` are columns of a matrix with rows `stride` apart, one column per candidate in `rows`.
fn subtract_own(
    from: &Tables<'_>,
    rows: &[i64],
    pulls: &[f32],
    stride: usize,
    gradients: &mut [f32],
) {
    let mut sums = [0.0_f32; CANDIDATES_AT_ONCE];
    for pulls in pulls.chunks(stride) {
        for (sum, pull) in sums.iter_mut().zip(&pulls[..rows.len()]) {
            *sum += pull;
        }
    }
    for ((gradient, &row), sum) in gradients.chunks_exact_mut(from.stride()).zip(rows).zip(sums) {
        for (number, own) in gradient.iter_mut().zip(from.entity(row as u32)) {
            *number -= sum * own;
        }
    }
}

/// Takes the first `count` elements of a slice, which keeps the rest.
fn first<'a>(of: &mut &'a [f32], count: usize) -> &'a [f32] {
    let (taken, rest) = of.split_at(count);
    *of = rest;
    taken
}

/// Cuts a buffer into pieces of these sizes; grows it if needed.
fn cut<'a>(buffer: &'a mut Vec<f32>, sizes: &[usize]) -> Vec<&'a mut [f32]> {
    grow(buffer, sizes.iter().sum());
    let mut rest = &mut buffer[..];
    sizes.iter().map(|&size| first_mut(&mut rest, size)).collect()
}
