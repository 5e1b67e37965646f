//! Passes over the chunks of a batch: candidates in panels, blocks of triples, gradients of
//! candidates.

use std::mem::take;
use std::ops::Range;

use super::blocks::{Block, Remains, Scored};
use super::{Batch, RowsOf, SideSpace, Tables, grow};
use crate::lanes::{Kernel, Lanes, dispatch};
use crate::model::{Side, dot};
use crate::parallel::for_each;
use crate::product::{Extent, Left, Right, Rows, padded, panel_width, product};

/// Candidates whose gradients a thread makes at a time.
const CANDIDATES_AT_ONCE: usize = 24;
/// Queries that a thread works on at a time where it only passes over them.
const QUERIES_AT_ONCE: usize = 128;
/// Scores that are in memory at once, unless those of one chunk are more.
const SCORES: usize = 1 << 20;

/// A chunk of a side.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub side: usize,
    pub triples: Range<usize>,
    pub candidates: Range<usize>,
    pub biases: Range<usize>,
}

impl Job {
    /// Numbers of a row of scores.
    pub fn width(&self) -> usize {
        padded(self.candidates.len())
    }

    fn scores(&self) -> usize {
        self.triples.len() * self.width()
    }
}

/// All chunks, in groups whose scores are in memory together.
pub(super) fn jobs(batch: &Batch<'_>) -> Vec<Vec<Job>> {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    let mut room = 0;
    for (side, questions) in batch.questions.iter().enumerate() {
        let (mut triple, mut candidate, mut bias) = (0, 0, 0);
        for chunk in questions.chunks {
            let job = Job {
                side,
                triples: triple..triple + chunk.triples,
                candidates: candidate..candidate + chunk.candidates,
                biases: bias..bias + chunk.kinds * chunk.candidates,
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

/// What the passes over chunks work in.
pub(super) struct Space<'a> {
    pub rows: &'a [RowsOf; 2],
    pub sides: &'a mut [SideSpace; 2],
    pub scores: &'a mut Vec<f32>,
    pub panels: &'a mut [Vec<f32>; 2],
    pub squares: &'a mut Vec<f32>,
}

/// Chunks that go through all passes together, and what they are about.
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

    /// Numbers of a chunk's candidates as columns.
    fn columns(&self, job: &Job) -> usize {
        self.from.entities.width * job.width()
    }

    /// The same as rows.
    fn rows(&self, job: &Job) -> usize {
        job.candidates.len() * self.from.stride()
    }

    /// Something of every chunk.
    fn sizes(&self, of: impl Fn(&Job) -> usize) -> Vec<usize> {
        self.jobs.iter().map(of).collect()
    }
}

impl Space<'_> {
    /// Scores, loss and gradients of some chunks.
    pub fn score(&mut self, from: &Tables<'_>, batch: &Batch<'_>, jobs: &[Job], threads: usize) {
        let group = Group { from, batch, jobs, threads };
        self.pack(group);
        self.train_blocks(group);
        self.candidate_gradients(group);
        if from.by_distance() {
            self.part_queries_from_targets(group);
        }
    }

    /// Writes the candidates' rows into panels, as columns and as rows.
    fn pack(&mut self, group: Group<'_>) {
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
        if group.from.by_distance() {
            let pieces = cut(self.squares, &group.sizes(|job| job.candidates.len()));
            let pieces = group.jobs.iter().zip(pieces).collect();
            for_each(pieces, group.threads, |(job, out)| {
                dispatch(Squares { from: group.from, rows: group.candidates(job), out });
            });
        }
    }

    /// Takes blocks of triples through query, scores, loss, and gradients of all but candidates.
    fn train_blocks(&mut self, group: Group<'_>) {
        let (mut columns, mut rows) = (&self.panels[0][..], &self.panels[1][..]);
        let mut squares = &self.squares[..];
        let [tails, heads] = &mut *self.sides;
        let mut remains = [Remains::new(tails, &self.rows[0]), Remains::new(heads, &self.rows[1])];
        let mut blocks = Vec::new();
        let scores = cut(self.scores, &group.sizes(Job::scores));
        for (job, scores) in group.jobs.iter().zip(scores) {
            let questions = &group.batch.questions[job.side];
            let tails = job.side == 0 || group.from.objective.reverse.is_some();
            let chunk = Scored {
                from: group.from,
                side: if tails { Side::Tail } else { Side::Head },
                candidates: group.candidates(job),
                bias: questions.bias.map(|bias| &bias[job.biases.clone()]),
                columns: first(&mut columns, group.columns(job)),
                rows: first(&mut rows, group.rows(job)),
                squares: match group.from.by_distance() {
                    true => first(&mut squares, job.candidates.len()),
                    false => &[],
                },
            };
            remains[job.side].blocks(job, chunk, scores, &mut blocks);
        }
        for_each(blocks, group.threads, |mut block: Block<'_>| block.train());
    }

    /// Makes the gradients of candidates, some at a time, of what the blocks left of the scores.
    fn candidate_gradients(&mut self, group: Group<'_>) {
        let stride = group.from.stride();
        let mut pieces = Vec::new();
        let mut found = &self.scores[..];
        let [tails, heads] = &mut *self.sides;
        let queries = [&tails.queries[..], &heads.queries[..]];
        let mut outputs = [&mut tails.to_candidates[..], &mut heads.to_candidates[..]];
        let mut done = [0, 0];
        for job in group.jobs {
            let scores = first(&mut found, job.scores());
            let output = &mut outputs[job.side];
            first_mut(output, (job.candidates.start - done[job.side]) * stride);
            done[job.side] = job.candidates.end;
            let output = first_mut(output, group.rows(job));
            let queries = &queries[job.side][job.triples.start * stride..job.triples.end * stride];
            for (number, out) in output.chunks_mut(CANDIDATES_AT_ONCE * stride).enumerate() {
                pieces.push((job, number * CANDIDATES_AT_ONCE, scores, queries, out));
            }
        }
        for_each(pieces, group.threads, |(job, first, scores, queries, out)| {
            let left = Left::Columns { numbers: scores, stride: job.width(), first };
            let (rows, depth) = (out.len() / stride, job.triples.len());
            product(left, Right::Rows(queries), Extent { rows, depth, width: stride }, out);
            if group.from.by_distance() {
                let rows = &group.candidates(job)[first..][..rows];
                subtract_own(group.from, rows, &scores[first..], job.width(), out);
            }
        });
    }

    /// Makes of queries what their targets' gradients are multiples of.
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

/// Squares of rows.
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

/// Takes each candidate, as often as all queries pull at it, off its gradient.
///
/// `pulls` are columns of a matrix of rows `stride` apart, one for each of the candidates `rows`.
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

/// The first numbers of a slice, which keeps the rest.
fn first<'a>(of: &mut &'a [f32], count: usize) -> &'a [f32] {
    let (taken, rest) = of.split_at(count);
    *of = rest;
    taken
}

/// The first numbers of a slice, which keeps the rest.
pub(super) fn first_mut<'a, T>(of: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (taken, rest) = take(of).split_at_mut(count);
    *of = rest;
    taken
}

/// Pieces of these sizes of a buffer, which is made large enough.
fn cut<'a>(buffer: &'a mut Vec<f32>, sizes: &[usize]) -> Vec<&'a mut [f32]> {
    grow(buffer, sizes.iter().sum());
    let mut rest = &mut buffer[..];
    sizes.iter().map(|&size| first_mut(&mut rest, size)).collect()
}
