//! A whole batch of a bilinear model: scores, loss, gradients, and steps of the rows it touched.
//!
//! Rows go through query, scores, loss and gradient in blocks that stay in the cache. What is cut
//! into blocks, and in which order anything is added up, follows from the sizes alone: the bits
//! are the same for every number of threads.

use std::mem::take;
use std::ops::Range;

use outercore_core::{Error, Result};

use crate::bilinear::{Bilinear, Side, Size, dot};
use crate::lanes::{Kernel, Lanes, dispatch};
use crate::loss::{Loss, row_loss, total};
use crate::parallel::{both, for_each, in_pool};
use crate::product::{Extent, Left, Right, Rows, padded, panel_width, product};
use crate::rows::{Step, step_rows};
use crate::uses::{Order, Sizes, Source, Sums, Uses};

/// Triples that go through all passes at once.
const ROWS_AT_ONCE: usize = 64;
/// Candidates whose gradients a thread makes at a time.
const CANDIDATES_AT_ONCE: usize = 24;
/// Scores that are in memory at once, unless those of one chunk are more.
const SCORES: usize = 1 << 20;

/// What is trained: the same for all batches of a run.
#[derive(Clone, Copy, Debug)]
pub struct Objective {
    /// The score.
    pub model: Bilinear,
    /// Of a positive's score against those of the candidates.
    pub loss: Loss,
    /// What the sizes of a triple's rows cost.
    pub size: Option<Size>,
    /// What an entity's cost is multiplied by, and a relation's.
    pub strengths: (f32, f32),
    /// The relation by which heads are asked for as tails is so much further; `None`: heads are
    /// asked for by the relation itself.
    pub reverse: Option<usize>,
    /// Whether a candidate that is the triple's own entity does not count.
    pub hides_own: bool,
    /// Of entities and of relations.
    pub steps: (Step, Step),
}

/// Rows and the state of their optimiser.
#[derive(Debug)]
pub struct Table<'a> {
    /// `[all, width]`
    pub rows: &'a mut [f32],
    /// `[all, state width]`
    pub state: &'a mut [f32],
    /// Numbers of a row.
    pub width: usize,
}

/// Triples that share their candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Triples.
    pub triples: usize,
    /// Candidates.
    pub candidates: usize,
}

/// A batch's triples as questions for one of their ends.
#[derive(Clone, Copy, Debug)]
pub struct Questions<'a> {
    /// Places of the triples, each of the batch's once.
    pub places: &'a [i64],
    /// How they are divided, in their order.
    pub chunks: &'a [Chunk],
    /// Rows of the candidates of all chunks, ascending within each.
    pub candidates: &'a [i64],
    /// Added to the scores of candidates.
    pub bias: Option<&'a [f32]>,
}

/// Triples of a pool, of which a batch is trained.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// `[all, 3]`: row of the head, relation, row of the tail.
    pub triples: &'a [i64],
    /// How much each triple counts; `None`: 1.
    pub weights: Option<&'a [f32]>,
    /// What each counts besides, for each side.
    pub unit: f32,
    /// For the tails, and for the heads.
    pub questions: [Questions<'a>; 2],
    /// Learning rates of entities and of relations.
    pub rates: (f32, f32),
}

/// Memory that is used again by the next batch.
#[derive(Debug, Default)]
pub struct Workspace {
    rows: [RowsOf; 2],
    sides: [SideSpace; 2],
    scores: Vec<f32>,
    /// Candidates of the chunks at work as columns, and as rows.
    panels: [Vec<f32>; 2],
    entities: Summed,
    relations: Summed,
}

/// Rows of the tables that the questions of a side are about.
#[derive(Debug, Default)]
struct RowsOf {
    anchors: Vec<u32>,
    relations: Vec<u32>,
    targets: Vec<u32>,
    candidates: Vec<u32>,
    weights: Vec<f32>,
}

/// What is computed for the questions of a side. A row of entities takes `stride` numbers.
#[derive(Debug, Default)]
struct SideSpace {
    queries: Vec<f32>,
    to_anchors: Vec<f32>,
    to_relations: Vec<f32>,
    /// `[candidates of all chunks, stride]`
    to_candidates: Vec<f32>,
    to_positives: Vec<f32>,
    values: Vec<f32>,
}

#[derive(Debug, Default)]
struct Summed {
    order: Order,
    sums: Vec<f32>,
    costs: Vec<f32>,
}

/// Trains one batch and returns its loss; `None` where that or a gradient is not finite: the
/// tables are then as they were.
///
/// # Errors
/// Invalid: sizes that do not fit each other, places or rows that there are not.
pub fn train_batch(
    objective: &Objective,
    entities: Table<'_>,
    relations: Table<'_>,
    batch: &Batch<'_>,
    workspace: &mut Workspace,
    threads: usize,
) -> Result<Option<f32>> {
    check(objective, &entities, &relations, batch)?;
    in_pool(threads, || {
        let from = Tables { objective, entities: &entities, relations: &relations };
        let Workspace {
            rows,
            sides,
            scores,
            panels,
            entities: of_entities,
            relations: of_relations,
        } = workspace;
        for (side, rows) in rows.iter_mut().enumerate() {
            rows.look_up(&from, batch, side)?;
            sides[side].make_room(&from, &batch.questions[side]);
        }
        // Questions of both sides in the same order share the uses of their rows.
        let shared = batch.questions[0].places == batch.questions[1].places;
        let (sorted, ()) = both(
            threads,
            || {
                of_entities.order.sort(&entity_uses(rows, shared))?;
                of_relations.order.sort(&relation_uses(rows, shared && objective.reverse.is_none()))
            },
            || {
                let mut space = Space { rows, sides, scores, panels };
                for group in jobs(batch) {
                    space.score(&from, batch, &group, threads);
                }
            },
        );
        sorted?;
        let loss = sum(&from, rows, sides, (of_entities, of_relations), shared, threads);
        if !loss.is_finite() {
            return Ok(None);
        }
        let steps = [
            (entities, &*of_entities, objective.steps.0, batch.rates.0),
            (relations, &*of_relations, objective.steps.1, batch.rates.1),
        ];
        for (table, found, step, rate) in steps {
            let rows = &found.order.rows;
            let sums = &found.sums[..rows.len() * table.width];
            if !sums.is_empty() {
                step_rows(step, table.rows, table.state, rows, sums, rate, threads)?;
            }
        }
        Ok(Some(loss))
    })
}

struct Tables<'a> {
    objective: &'a Objective,
    entities: &'a Table<'a>,
    relations: &'a Table<'a>,
}

impl Tables<'_> {
    fn entity(&self, row: u32) -> &[f32] {
        &self.entities.rows[row as usize * self.entities.width..][..self.entities.width]
    }

    fn relation(&self, row: u32) -> &[f32] {
        &self.relations.rows[row as usize * self.relations.width..][..self.relations.width]
    }

    /// Numbers of a row of entities, and what is missing to whole vectors.
    fn stride(&self) -> usize {
        padded(self.entities.width)
    }
}

/// A chunk of a side.
#[derive(Clone, Debug)]
struct Job {
    side: usize,
    triples: Range<usize>,
    candidates: Range<usize>,
}

impl Job {
    /// Numbers of a row of scores.
    fn width(&self) -> usize {
        padded(self.candidates.len())
    }

    fn scores(&self) -> usize {
        self.triples.len() * self.width()
    }
}

/// All chunks, in groups whose scores are in memory together.
fn jobs(batch: &Batch<'_>) -> Vec<Vec<Job>> {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    let mut room = 0;
    for (side, questions) in batch.questions.iter().enumerate() {
        let (mut triple, mut candidate) = (0, 0);
        for chunk in questions.chunks {
            let job = Job {
                side,
                triples: triple..triple + chunk.triples,
                candidates: candidate..candidate + chunk.candidates,
            };
            (triple, candidate) = (job.triples.end, job.candidates.end);
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
struct Space<'a> {
    rows: &'a [RowsOf; 2],
    sides: &'a mut [SideSpace; 2],
    scores: &'a mut Vec<f32>,
    panels: &'a mut [Vec<f32>; 2],
}

impl Space<'_> {
    /// Scores, loss and gradients of some chunks.
    fn score(&mut self, from: &Tables<'_>, batch: &Batch<'_>, jobs: &[Job], threads: usize) {
        let (width, stride) = (from.entities.width, from.stride());
        let candidates = |job: &Job| &batch.questions[job.side].candidates[job.candidates.clone()];
        let rows_of = |job| Rows { table: from.entities.rows, width, rows: candidates(job) };
        let scores: Vec<_> = jobs.iter().map(Job::scores).collect();
        let columns: Vec<_> = jobs.iter().map(|job| width * job.width()).collect();
        let rows: Vec<_> = jobs.iter().map(|job| job.candidates.len() * stride).collect();
        let [by_columns, by_rows] = &mut *self.panels;

        let mut pieces = Vec::new();
        for (job, panels) in jobs.iter().zip(cut(by_columns, &columns)) {
            let panels = panels.chunks_mut(panel_width() * width).enumerate();
            pieces.extend(panels.map(|(number, panel)| (job, number, panel, true)));
        }
        for (job, panels) in jobs.iter().zip(cut(by_rows, &rows)) {
            let panels = panels.chunks_mut(panel_width() * job.candidates.len()).enumerate();
            pieces.extend(panels.map(|(number, panel)| (job, number, panel, false)));
        }
        for_each(pieces, threads, |(job, number, panel, turned)| {
            if turned {
                rows_of(job).pack_columns(number, panel);
            } else {
                rows_of(job).pack_rows(number, panel);
            }
        });

        let (mut column, mut row) = (&by_columns[..], &by_rows[..]);
        let mut remains = [Remains::default(), Remains::default()];
        for ((remains, side), rows) in remains.iter_mut().zip(&mut *self.sides).zip(self.rows) {
            *remains = Remains::new(side, rows);
        }
        let mut blocks = Vec::new();
        for (number, (job, scores)) in jobs.iter().zip(cut(self.scores, &scores)).enumerate() {
            let questions = &batch.questions[job.side];
            let tails = job.side == 0 || from.objective.reverse.is_some();
            let chunk = Scored {
                from,
                side: if tails { Side::Tail } else { Side::Head },
                candidates: candidates(job),
                bias: questions.bias.map(|bias| &bias[job.candidates.clone()]),
                columns: first(&mut column, columns[number]),
                rows: first(&mut row, rows[number]),
            };
            remains[job.side].blocks(job, chunk, scores, &mut blocks);
        }
        for_each(blocks, threads, |mut block: Block<'_>| block.train());

        let mut pieces = Vec::new();
        let mut found = &self.scores[..];
        let [tails, heads] = &mut *self.sides;
        let queries = [&tails.queries[..], &heads.queries[..]];
        let mut outputs = [&mut tails.to_candidates[..], &mut heads.to_candidates[..]];
        let mut done = [0, 0];
        for (job, &count) in jobs.iter().zip(&scores) {
            let scores = first(&mut found, count);
            let output = &mut outputs[job.side];
            first_mut(output, (job.candidates.start - done[job.side]) * stride);
            done[job.side] = job.candidates.end;
            let output = first_mut(output, job.candidates.len() * stride);
            let queries = &queries[job.side][job.triples.start * stride..job.triples.end * stride];
            for (number, out) in output.chunks_mut(CANDIDATES_AT_ONCE * stride).enumerate() {
                pieces.push((job, number * CANDIDATES_AT_ONCE, scores, queries, out));
            }
        }
        for_each(pieces, threads, |(job, first, scores, queries, out)| {
            let left = Left::Columns { numbers: scores, stride: job.width(), first };
            let (rows, depth) = (out.len() / stride, job.triples.len());
            product(left, Right::Rows(queries), Extent { rows, depth, width: stride }, out);
        });
    }
}

/// The first numbers of a slice, which keeps the rest.
fn first<'a>(of: &mut &'a [f32], count: usize) -> &'a [f32] {
    let (taken, rest) = of.split_at(count);
    *of = rest;
    taken
}

/// The first numbers of a slice, which keeps the rest.
fn first_mut<'a, T>(of: &mut &'a mut [T], count: usize) -> &'a mut [T] {
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

/// At least so many numbers.
fn grow(buffer: &mut Vec<f32>, count: usize) {
    if buffer.len() < count {
        buffer.resize(count, 0.0);
    }
}

impl RowsOf {
    /// Errors: invalid for a place, a row or a relation that there is not.
    fn look_up(&mut self, from: &Tables<'_>, batch: &Batch<'_>, side: usize) -> Result<()> {
        let questions = &batch.questions[side];
        let entities = from.entities.rows.len() / from.entities.width;
        let reverse = if side == 0 { None } else { from.objective.reverse };
        let relations = match from.relations.width {
            0 => usize::MAX,
            width => from.relations.rows.len() / width,
        };
        let within = |row: i64, count: usize, what: &str| match u32::try_from(row) {
            Ok(row) if (row as usize) < count => Ok(row),
            _ => Err(Error::invalid(format!("batch: {what} {row}: expected one of {count}"))),
        };
        self.anchors.clear();
        self.relations.clear();
        self.targets.clear();
        self.weights.clear();
        let all = batch.triples.len() / 3;
        for &place in questions.places {
            let place = within(place, all, "triple")? as usize;
            let [head, relation, tail] = [0, 1, 2].map(|part| batch.triples[3 * place + part]);
            let (anchor, target) = if side == 0 { (head, tail) } else { (tail, head) };
            self.anchors.push(within(anchor, entities, "row")?);
            self.targets.push(within(target, entities, "row")?);
            let relation = relation + reverse.unwrap_or(0) as i64;
            self.relations.push(within(relation, relations, "relation")?);
            self.weights.push(batch.weights.map_or(1.0, |weights| weights[place]) * batch.unit);
        }
        self.candidates.clear();
        for &row in questions.candidates {
            self.candidates.push(within(row, entities, "row")?);
        }
        Ok(())
    }
}

impl SideSpace {
    fn make_room(&mut self, from: &Tables<'_>, questions: &Questions<'_>) {
        let (count, stride) = (questions.places.len(), from.stride());
        grow(&mut self.queries, count * stride);
        grow(&mut self.to_anchors, count * stride);
        grow(&mut self.to_relations, count * from.relations.width);
        grow(&mut self.to_candidates, questions.candidates.len() * stride);
        grow(&mut self.to_positives, count);
        self.values.resize(count, 0.0);
    }
}

/// What is left of a side's buffers behind the blocks that were cut off.
#[derive(Default)]
struct Remains<'a> {
    done: usize,
    anchors: &'a [u32],
    relations: &'a [u32],
    targets: &'a [u32],
    weights: &'a [f32],
    queries: &'a mut [f32],
    to_anchors: &'a mut [f32],
    to_relations: &'a mut [f32],
    to_positives: &'a mut [f32],
    values: &'a mut [f32],
}

impl<'a> Remains<'a> {
    fn new(side: &'a mut SideSpace, rows: &'a RowsOf) -> Self {
        Self {
            done: 0,
            anchors: &rows.anchors,
            relations: &rows.relations,
            targets: &rows.targets,
            weights: &rows.weights,
            queries: &mut side.queries,
            to_anchors: &mut side.to_anchors,
            to_relations: &mut side.to_relations,
            to_positives: &mut side.to_positives,
            values: &mut side.values,
        }
    }

    /// Cuts off the blocks of a chunk.
    fn blocks(
        &mut self,
        job: &Job,
        chunk: Scored<'a>,
        mut scores: &'a mut [f32],
        to: &mut Vec<Block<'a>>,
    ) {
        self.block(job.triples.start - self.done, chunk, &mut []);
        for start in job.triples.clone().step_by(ROWS_AT_ONCE) {
            let count = ROWS_AT_ONCE.min(job.triples.end - start);
            let scores = first_mut(&mut scores, count * job.width());
            to.push(self.block(count, chunk, scores));
        }
    }

    fn block(&mut self, count: usize, chunk: Scored<'a>, scores: &'a mut [f32]) -> Block<'a> {
        let (stride, places) = (chunk.from.stride(), self.done..self.done + count);
        self.done += count;
        Block {
            chunk,
            anchors: &self.anchors[places.clone()],
            relations: &self.relations[places.clone()],
            targets: &self.targets[places.clone()],
            weights: &self.weights[places],
            queries: first_mut(&mut self.queries, count * stride),
            to_anchors: first_mut(&mut self.to_anchors, count * stride),
            to_relations: first_mut(&mut self.to_relations, count * chunk.from.relations.width),
            to_positives: first_mut(&mut self.to_positives, count),
            values: first_mut(&mut self.values, count),
            scores,
        }
    }
}

/// What the blocks of a chunk share.
#[derive(Clone, Copy)]
struct Scored<'a> {
    from: &'a Tables<'a>,
    side: Side,
    candidates: &'a [i64],
    bias: Option<&'a [f32]>,
    /// Candidates as columns, in panels.
    columns: &'a [f32],
    /// Candidates as rows, in panels.
    rows: &'a [f32],
}

/// Some triples of a chunk on their way through all passes.
struct Block<'a> {
    chunk: Scored<'a>,
    anchors: &'a [u32],
    relations: &'a [u32],
    targets: &'a [u32],
    weights: &'a [f32],
    queries: &'a mut [f32],
    to_anchors: &'a mut [f32],
    to_relations: &'a mut [f32],
    to_positives: &'a mut [f32],
    values: &'a mut [f32],
    scores: &'a mut [f32],
}

impl Block<'_> {
    fn train(&mut self) {
        let (from, rows) = (self.chunk.from, self.anchors.len());
        let (width, count) = (from.entities.width, self.chunk.candidates.len());
        dispatch(Forward(self));
        let left = Left::Rows { numbers: self.queries, stride: from.stride() };
        let extent = Extent { rows, depth: width, width: padded(count) };
        product(left, Right::Panels(self.chunk.columns), extent, self.scores);
        dispatch(Lose(self));
        let left = Left::Rows { numbers: self.scores, stride: padded(count) };
        let extent = Extent { rows, depth: count, width: from.stride() };
        product(left, Right::Panels(self.chunk.rows), extent, self.to_anchors);
        dispatch(Backward(self));
    }
}

/// Queries, and how they fit their own targets.
struct Forward<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Forward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.0;
        let (from, side) = (block.chunk.from, block.chunk.side);
        for (place, query) in block.queries.chunks_exact_mut(from.stride()).enumerate() {
            let query = &mut query[..from.entities.width];
            let anchor = from.entity(block.anchors[place]);
            let relation = from.relation(block.relations[place]);
            from.objective.model.query(side, anchor, relation, query);
            block.to_positives[place] = dot(lanes, query, from.entity(block.targets[place]));
        }
    }
}

/// Scores become derivatives of the loss.
struct Lose<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Lose<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.0;
        let Scored { from, candidates, bias, .. } = block.chunk;
        let count = candidates.len();
        for (place, scores) in block.scores.chunks_exact_mut(padded(count)).enumerate() {
            let scores = &mut scores[..count];
            if let Some(bias) = bias {
                for (score, bias) in scores.iter_mut().zip(bias) {
                    *score += bias;
                }
            }
            if from.objective.hides_own {
                let own = i64::from(block.targets[place]);
                let mut hidden = candidates.partition_point(|&row| row < own);
                while hidden < count && candidates[hidden] == own {
                    scores[hidden] = f32::NEG_INFINITY;
                    hidden += 1;
                }
            }
            let (positive, weight) = (block.to_positives[place], block.weights[place]);
            let found = row_loss(lanes, from.objective.loss, positive, weight, scores, count);
            block.values[place] = found.value;
            block.to_positives[place] = found.positive;
        }
    }
}

/// Gradients of queries become those of anchors and relations.
struct Backward<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Backward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        let block = self.0;
        let (from, side) = (block.chunk.from, block.chunk.side);
        let relation_width = from.relations.width;
        for (place, gradient) in block.to_anchors.chunks_exact_mut(from.stride()).enumerate() {
            let gradient = &mut gradient[..from.entities.width];
            let slope = block.to_positives[place];
            let target = from.entity(block.targets[place]);
            for (number, target) in gradient.iter_mut().zip(target) {
                *number += slope * target;
            }
            let anchor = from.entity(block.anchors[place]);
            let relation = from.relation(block.relations[place]);
            let to_relation = &mut block.to_relations[place * relation_width..][..relation_width];
            from.objective.model.backward(side, anchor, relation, gradient, to_relation);
        }
    }
}

/// The rows that uses of entities are of, kind by kind.
fn entity_uses(rows: &[RowsOf; 2], shared: bool) -> Vec<&[u32]> {
    let [tails, heads] = rows;
    let mut kinds: Vec<&[u32]> = vec![&tails.anchors, &tails.targets];
    if !shared {
        kinds.extend([&heads.anchors[..], &heads.targets]);
    }
    kinds.extend([&tails.candidates[..], &heads.candidates]);
    kinds
}

/// The same of relations.
fn relation_uses(rows: &[RowsOf; 2], shared: bool) -> Vec<&[u32]> {
    let [tails, heads] = rows;
    if shared { vec![&tails.relations] } else { vec![&tails.relations, &heads.relations] }
}

/// Adds up the gradients of equal rows; the loss, not finite where one of them is not.
fn sum(
    from: &Tables<'_>,
    rows: &[RowsOf; 2],
    sides: &[SideSpace; 2],
    (of_entities, of_relations): (&mut Summed, &mut Summed),
    shared: bool,
    threads: usize,
) -> f32 {
    let objective = from.objective;
    let stride = from.stride();
    let source = |numbers, stride, factors| Some(Source { numbers, stride, factors });
    let anchors = |side: usize| source(&sides[side].to_anchors[..], stride, None);
    let targets =
        |side: usize| source(&sides[side].queries[..], stride, Some(&sides[side].to_positives[..]));
    let weights = |side: usize| Some(&rows[side].weights[..]);
    let gradients = if shared {
        // The head of a triple is the anchor of one question and the target of the other.
        vec![([anchors(0), targets(1)], weights(0)), ([anchors(1), targets(0)], weights(0))]
    } else {
        let own =
            |side| [([anchors(side), None], weights(side)), ([targets(side), None], weights(side))];
        [own(0), own(1)].concat()
    };
    let candidates =
        |side: usize| ([source(&sides[side].to_candidates[..], stride, None), None], None);
    let gradients = gradients.into_iter().chain([candidates(0), candidates(1)]);
    let uses = entity_uses(rows, shared).into_iter().zip(gradients);
    let kinds: Vec<_> =
        uses.map(|(rows, (gradients, weights))| Uses { rows, gradients, weights }).collect();
    let twice = if shared { 2.0 } else { 1.0 };
    let strength = twice * objective.strengths.0;
    let of_rows = of_entities.add_up(from.entities, &kinds, objective.size, strength, threads);

    let shared = shared && objective.reverse.is_none();
    let own = |side: usize| source(&sides[side].to_relations[..], from.relations.width, None);
    let gradients = if shared {
        vec![([own(0), own(1)], weights(0))]
    } else {
        vec![([own(0), None], weights(0)), ([own(1), None], weights(1))]
    };
    let uses = relation_uses(rows, shared).into_iter().zip(gradients);
    let kinds: Vec<_> =
        uses.map(|(rows, (gradients, weights))| Uses { rows, gradients, weights }).collect();
    let twice = if shared { 2.0 } else { 1.0 };
    let strength = twice * objective.strengths.1;
    let of_relations =
        of_relations.add_up(from.relations, &kinds, objective.size, strength, threads);
    total(&sides[0].values) + total(&sides[1].values) + of_rows + of_relations
}

impl Summed {
    /// Writes the sums of gradients of equal rows, and returns what the sizes of rows cost.
    fn add_up(
        &mut self,
        table: &Table<'_>,
        kinds: &[Uses<'_>],
        size: Option<Size>,
        strength: f32,
        threads: usize,
    ) -> f32 {
        if table.width == 0 {
            return 0.0;
        }
        let rows = self.order.rows.len();
        grow(&mut self.sums, rows * table.width);
        self.costs.resize(rows, 0.0);
        let sums = Sums {
            kinds,
            order: &self.order,
            table: table.rows,
            width: table.width,
            sizes: size.map(|size| Sizes { size, strength }),
        };
        sums.write(&mut self.sums[..rows * table.width], &mut self.costs, threads);
        total(&self.costs)
    }
}

fn check(
    objective: &Objective,
    entities: &Table<'_>,
    relations: &Table<'_>,
    batch: &Batch<'_>,
) -> Result<()> {
    let width = entities.width;
    if width == 0 || !entities.rows.len().is_multiple_of(width) {
        let count = entities.rows.len();
        return Err(Error::invalid(format!(
            "batch: expected rows of {width} numbers, found {count} numbers"
        )));
    }
    let model = objective.model;
    if (model.halves() && !width.is_multiple_of(2))
        || relations.width != model.relation_width(width)
    {
        return Err(Error::invalid(format!(
            "batch: {model:?} has no rows of {width} numbers with relations of {}",
            relations.width
        )));
    }
    if relations.width > 0 && !relations.rows.len().is_multiple_of(relations.width) {
        return Err(Error::invalid("batch: relations are no whole rows"));
    }
    let triples = batch.triples.len() / 3;
    if !batch.triples.len().is_multiple_of(3)
        || batch.weights.is_some_and(|all| all.len() != triples)
    {
        return Err(Error::invalid("batch: expected three numbers and one weight a triple"));
    }
    for questions in &batch.questions {
        let triples: usize = questions.chunks.iter().map(|chunk| chunk.triples).sum();
        let candidates: usize = questions.chunks.iter().map(|chunk| chunk.candidates).sum();
        let bias = questions.bias.map_or(candidates, <[f32]>::len);
        if triples != questions.places.len()
            || candidates != questions.candidates.len()
            || bias != candidates
            || questions.chunks.iter().any(|chunk| chunk.candidates == 0)
        {
            return Err(Error::invalid(format!(
                "batch: chunks of {triples} triples and {candidates} candidates, found {} \
                 triples, {} candidates and {bias} biases",
                questions.places.len(),
                questions.candidates.len()
            )));
        }
    }
    Ok(())
}
