//! Compares whole batches with the definition: a loss in double precision, and its finite
//! differences.

use outercore_core::Stream;
use outercore_kernels::{
    Batch, Chunk, Known, Loss, Model, Norm, Objective, Questions, Size, Step, Table, Workspace,
    train_batch,
};

/// Optimiser state so large that an Adagrad step at rate `sqrt(STATE)` is the negative gradient.
const STATE: f32 = 1e12;
const EUCLIDEAN: Model = Model::TransE(Norm::Euclidean);
const MANHATTAN: Model = Model::TransE(Norm::Manhattan);

#[derive(Clone)]
struct Case {
    objective: Objective,
    width: usize,
    entities: Vec<f32>,
    relations: Vec<f32>,
    triples: Vec<i64>,
    weights: Vec<f32>,
    places: [Vec<i64>; 2],
    chunks: [Vec<Chunk>; 2],
    candidates: [Vec<i64>; 2],
    bias: [Vec<f32>; 2],
    kinds: [Vec<i64>; 2],
    /// Whether known triples are excluded from the negatives, and in which direction: as stored, or
    /// also reversed.
    known: Option<Direction>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Directed,
    Undirected,
}

/// Number of weightings of a chunk's candidates.
const KINDS: usize = 3;

struct Sizes {
    entities: usize,
    width: usize,
    triples: usize,
    chunk: usize,
    negatives: usize,
}

impl Case {
    /// A batch of all triples except the first two; heads are predicted in another order than
    /// tails.
    fn new(objective: Objective, sizes: &Sizes, seed: u64) -> Self {
        let mut random = Stream::new(seed, 0).uniform(0, 0, 0);
        let relations = 3;
        let relation_width = objective.model.relation_width(sizes.width);
        let mut numbers =
            |count: usize| -> Vec<f32> { (0..count).map(|_| random.unit() as f32 - 0.5).collect() };
        let entities = numbers(sizes.entities * sizes.width);
        let all_relations = numbers(2 * relations * relation_width);
        let weights: Vec<f32> =
            numbers(sizes.triples).into_iter().map(|weight| weight + 1.0).collect();
        let count = sizes.triples - 2;
        let chunks: Vec<_> = (0..count)
            .step_by(sizes.chunk)
            .map(|start| Chunk {
                triples: sizes.chunk.min(count - start),
                candidates: sizes.negatives,
                kinds: KINDS,
            })
            .collect();
        let bias = [0, 1].map(|_| numbers(chunks.len() * KINDS * sizes.negatives));
        let mut row = |bound: usize| random.below(bound as u64) as i64;
        let triples = (0..sizes.triples)
            .flat_map(|_| [row(sizes.entities), row(relations), row(sizes.entities)])
            .collect();
        let candidates = [0, 1].map(|_| {
            let mut all: Vec<i64> =
                (0..chunks.len() * sizes.negatives).map(|_| row(sizes.entities)).collect();
            all.chunks_mut(sizes.negatives).for_each(<[i64]>::sort_unstable);
            all
        });
        let kinds = [0, 1].map(|_| (0..count).map(|_| row(KINDS)).collect());
        let forth: Vec<i64> = (2..sizes.triples as i64).collect();
        let back = forth.iter().rev().copied().collect();
        Self {
            objective,
            width: sizes.width,
            entities,
            relations: all_relations,
            triples,
            weights,
            places: [forth, back],
            chunks: [chunks.clone(), chunks],
            candidates,
            bias,
            kinds,
            known: None,
        }
    }

    fn batch<'a>(&'a self, known: Option<&'a Known>) -> Batch<'a> {
        Batch {
            triples: &self.triples,
            weights: Some(&self.weights),
            known,
            unit: 0.25,
            questions: [0, 1].map(|side| Questions {
                places: &self.places[side],
                chunks: &self.chunks[side],
                candidates: &self.candidates[side],
                bias: Some(&self.bias[side]),
                kinds: Some(&self.kinds[side]),
            }),
            rates: (STATE.sqrt(), STATE.sqrt()),
        }
    }

    /// The loss, and both tables minus their gradients.
    fn train(&self, threads: usize) -> (Option<f32>, Vec<f32>, Vec<f32>) {
        let (mut entities, mut relations) = (self.entities.clone(), self.relations.clone());
        let mut states = [vec![STATE; entities.len()], vec![STATE; relations.len()]];
        let [entity_state, relation_state] = &mut states;
        let width = self.objective.model.relation_width(self.width);
        let known = self.known.map(|direction| {
            Known::new(&self.triples, direction == Direction::Undirected, threads).unwrap()
        });
        let loss = train_batch(
            &self.objective,
            Table { rows: &mut entities, state: entity_state, width: self.width },
            Table { rows: &mut relations, state: relation_state, width },
            &self.batch(known.as_ref()),
            &mut Workspace::default(),
            threads,
        );
        (loss.unwrap(), entities, relations)
    }

    fn score(&self, entities: &[f64], relations: &[f64], [h, r, t]: [i64; 3]) -> f64 {
        let row = |table: &[f64], row: i64, width: usize| -> Vec<f64> {
            table[row as usize * width..][..width].to_vec()
        };
        let (head, tail) = (row(entities, h, self.width), row(entities, t, self.width));
        let half = self.width / 2;
        let places = 0..self.width;
        if self.objective.model == Model::Dot {
            return places.map(|i| head[i] * tail[i]).sum();
        }
        let relation = row(relations, r, self.objective.model.relation_width(self.width));
        match self.objective.model {
            Model::ComplEx => (0..half)
                .map(|i| {
                    let (a, b) = (head[i], head[half + i]);
                    let (c, d) = (relation[i], relation[half + i]);
                    (a * c - b * d) * tail[i] + (a * d + b * c) * tail[half + i]
                })
                .sum(),
            Model::SimplE => (0..half)
                .map(|i| {
                    let forth = head[i] * relation[i] * tail[half + i];
                    0.5 * (forth + tail[i] * relation[half + i] * head[half + i])
                })
                .sum(),
            Model::TransE(norm) => {
                let apart = places.map(|i| head[i] + relation[i] - tail[i]);
                match norm {
                    Norm::Euclidean => -apart.map(|x| x * x).sum::<f64>().sqrt(),
                    Norm::Manhattan => -apart.map(f64::abs).sum::<f64>(),
                }
            }
            Model::RotatE => -(0..half)
                .map(|i| {
                    let (a, b) = (head[i], head[half + i]);
                    let (sine, cosine) = relation[i].sin_cos();
                    let (x, y) = (a * cosine - b * sine, a * sine + b * cosine);
                    (x - tail[i]).hypot(y - tail[half + i])
                })
                .sum::<f64>(),
            _ => places.map(|i| head[i] * relation[i] * tail[i]).sum(),
        }
    }

    /// From the definition: the loss of every row, and the regularisation cost of its rows.
    fn loss(&self, entities: &[f64], relations: &[f64]) -> f64 {
        let mut loss = 0.0;
        // Self-adversarial weights are constants, computed from the unchanged tables.
        let (all, others) = (doubles(&self.entities), doubles(&self.relations));
        for side in 0..2 {
            let (mut place, mut before, mut biases) = (0, 0, &self.bias[side][..]);
            for chunk in &self.chunks[side] {
                for _ in 0..chunk.triples {
                    let number = self.places[side][place] as usize;
                    let kind = self.kinds[side][place] as usize;
                    let bias = &biases[kind * chunk.candidates..];
                    place += 1;
                    let weight = f64::from(self.weights[number]) * 0.25;
                    let mut triple: [i64; 3] = self.triples[3 * number..][..3].try_into().unwrap();
                    let mut end = 2;
                    if side == 1 {
                        match self.objective.reverse {
                            Some(count) => {
                                triple = [triple[2], triple[1] + count as i64, triple[0]];
                            }
                            None => end = 0,
                        }
                    }
                    let positive = self.score(entities, relations, triple);
                    let mut negatives = Vec::new();
                    for other in before..before + chunk.candidates {
                        let mut instead = triple;
                        instead[end] = self.candidates[side][other];
                        if self.objective.hides_own && instead[end] == triple[end] {
                            continue;
                        }
                        if self.hides([number, side, other]) {
                            continue;
                        }
                        let bias = f64::from(bias[other - before]);
                        negatives.push((
                            self.score(entities, relations, instead) + bias,
                            self.score(&all, &others, instead) + bias,
                        ));
                    }
                    loss += weight * row_loss(self.objective.loss, positive, &negatives, chunk);
                    loss += weight * self.sizes(entities, relations, triple);
                }
                before += chunk.candidates;
                biases = &biases[chunk.kinds * chunk.candidates..];
            }
        }
        loss
    }

    /// Whether a candidate completes a known triple for a question of one side.
    fn hides(&self, [triple, side, other]: [usize; 3]) -> bool {
        let mut found: [i64; 3] = self.triples[3 * triple..][..3].try_into().unwrap();
        found[2 - 2 * side] = self.candidates[side][other];
        let [head, relation, tail] = found;
        let is_known = |one: [i64; 3]| self.triples.chunks_exact(3).any(|other| other == one);
        match self.known {
            None => false,
            Some(Direction::Directed) => is_known(found),
            Some(Direction::Undirected) => is_known(found) || is_known([tail, relation, head]),
        }
    }

    fn sizes(&self, entities: &[f64], relations: &[f64], [h, r, t]: [i64; 3]) -> f64 {
        let Some(size) = self.objective.size else { return 0.0 };
        let of = |table: &[f64], row: i64| {
            let row = &table[row as usize * self.width..][..self.width];
            let (real, imaginary) = row.split_at(self.width / 2);
            match size {
                Size::Squares => row.iter().map(|x| x * x).sum::<f64>(),
                Size::Cubes => row.iter().map(|x| x.abs().powi(3)).sum(),
                Size::CubesOfModuli => {
                    real.iter().zip(imaginary).map(|(x, y)| x.hypot(*y).powi(3)).sum()
                }
            }
        };
        let (of_entities, of_relations) = self.objective.strengths;
        if self.objective.model == Model::RotatE {
            assert_eq!(of_relations, 0.0, "angles have no size");
        }
        let ends = f64::from(of_entities) * (of(entities, h) + of(entities, t));
        if relations.is_empty() || of_relations == 0.0 {
            ends
        } else {
            ends + f64::from(of_relations) * of(relations, r)
        }
    }
}

/// From a positive score and the negative scores, each as (current score, score in the unchanged
/// tables).
fn row_loss(loss: Loss, positive: f64, negatives: &[(f64, f64)], chunk: &Chunk) -> f64 {
    let softplus = |x: f64| x.exp().ln_1p();
    let sum = |of: &dyn Fn(f64) -> f64| negatives.iter().map(|&(score, _)| of(score)).sum::<f64>();
    // A hidden candidate costs nothing, but is counted in the mean.
    let mean = |of: &dyn Fn(f64) -> f64| sum(of) / chunk.candidates as f64;
    match loss {
        Loss::Softmax { contrastive } => {
            let own = if contrastive { 0.0 } else { positive.exp() };
            (own + sum(&f64::exp)).ln() - positive
        }
        Loss::Logistic { margin } => {
            let margin = f64::from(margin);
            softplus(-(positive + margin)) + mean(&|score| softplus(score + margin))
        }
        Loss::Margin { margin } => {
            let margin = f64::from(margin);
            mean(&|score| (margin - positive + score).max(0.0))
        }
        Loss::SelfAdversarial { margin, temperature } => {
            let (margin, temperature) = (f64::from(margin), f64::from(temperature));
            let share = |was: f64| (temperature * was).exp();
            let all: f64 = negatives.iter().map(|&(_, was)| share(was)).sum();
            let costs: f64 = negatives
                .iter()
                .map(|&(score, was)| share(was) / all * softplus(score + margin))
                .sum();
            (softplus(-(positive + margin)) + costs) / 2.0
        }
    }
}

fn objective(model: Model, size: Option<Size>, reverse: bool) -> Objective {
    Objective {
        model,
        loss: Loss::Softmax { contrastive: false },
        size,
        strengths: (0.3, if model == Model::RotatE { 0.0 } else { 0.7 }),
        reverse: reverse.then_some(3),
        hides_own: reverse,
        steps: (Step::Adagrad, Step::Adagrad),
    }
}

fn doubles(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&number| f64::from(number)).collect()
}

/// Trains a batch and compares loss and steps with the definition.
fn compare(case: &Case, what: &str) {
    let (loss, entities, relations) = case.train(1);
    let (all, others) = (doubles(&case.entities), doubles(&case.relations));
    let expected = case.loss(&all, &others);
    let loss = f64::from(loss.unwrap());
    assert!((loss - expected).abs() < 1e-5 * expected, "{what}: {loss}, {expected}");
    for place in 0..all.len() + others.len() {
        let moved = |by: f64| {
            let (mut all, mut others) = (all.clone(), others.clone());
            match place.checked_sub(all.len()) {
                None => all[place] += by,
                Some(place) => others[place] += by,
            }
            case.loss(&all, &others)
        };
        let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
        let step = match place.checked_sub(all.len()) {
            None => case.entities[place] - entities[place],
            Some(place) => case.relations[place] - relations[place],
        };
        let error = (f64::from(step) - slope).abs();
        assert!(error < 2e-6, "{what}: place {place}: {step}, {slope}");
    }
}

#[test]
fn a_step_is_minus_the_gradient_of_the_definition() {
    let models = [
        (Model::Dot, 5, None),
        (Model::DistMult, 7, Some(Size::Cubes)),
        (Model::ComplEx, 6, Some(Size::CubesOfModuli)),
        (Model::SimplE, 8, Some(Size::Squares)),
        (EUCLIDEAN, 7, None),
        (EUCLIDEAN, 40, Some(Size::Cubes)),
        (MANHATTAN, 7, None),
        (MANHATTAN, 33, Some(Size::Cubes)),
        (Model::RotatE, 6, None),
        (Model::RotatE, 42, Some(Size::CubesOfModuli)),
    ];
    for (model, width, size) in models {
        for reverse in [false, true] {
            for same_order in [false, true] {
                let sizes = Sizes { entities: 9, width, triples: 13, chunk: 4, negatives: 6 };
                let mut case = Case::new(objective(model, size, reverse), &sizes, 5);
                if same_order {
                    case.places[1] = case.places[0].clone();
                }
                compare(&case, &format!("{model:?}, reverse {reverse}, same order {same_order}"));
            }
        }
    }
}

#[test]
fn every_loss_is_the_one_of_the_definition() {
    let losses = [
        Loss::Softmax { contrastive: true },
        Loss::Logistic { margin: 0.5 },
        Loss::Margin { margin: 0.5 },
        Loss::SelfAdversarial { margin: 0.5, temperature: 2.0 },
    ];
    for loss in losses {
        let models = [
            (Model::DistMult, 7),
            (Model::ComplEx, 6),
            (EUCLIDEAN, 6),
            (MANHATTAN, 6),
            (Model::RotatE, 6),
        ];
        for (model, width) in models {
            for reverse in [false, true] {
                let sizes = Sizes { entities: 9, width, triples: 13, chunk: 4, negatives: 6 };
                let of = Objective { loss, ..objective(model, None, reverse) };
                compare(&Case::new(of, &sizes, 5), &format!("{loss:?}, {model:?}, {reverse}"));
            }
        }
    }
}

#[test]
fn known_triples_are_no_negatives() {
    let few = Sizes { entities: 9, width: 6, triples: 33, chunk: 9, negatives: 6 };
    // More answers to a question than candidates.
    let hub = Sizes { entities: 30, width: 6, triples: 90, chunk: 30, negatives: 5 };
    for model in [Model::DistMult, Model::ComplEx, EUCLIDEAN, MANHATTAN, Model::RotatE] {
        for (sizes, reverse) in [(&few, false), (&few, true), (&hub, false)] {
            for known in [Direction::Directed, Direction::Undirected] {
                let mut case = Case::new(objective(model, None, reverse), sizes, 5);
                case.objective.hides_own = false;
                case.known = Some(known);
                // With many triples, scale the weights so that gradients and their rounding stay as
                // small as with few.
                case.weights.iter_mut().for_each(|weight| *weight *= 0.1);
                if sizes.triples == hub.triples {
                    for triple in case.triples.chunks_exact_mut(3) {
                        (triple[0], triple[1]) = (3, 0);
                    }
                }
                assert!((0..2).any(|side| {
                    (0..sizes.triples)
                        .any(|t| (0..sizes.negatives).any(|other| case.hides([t, side, other])))
                }));
                compare(&case, &format!("{model:?}, reverse {reverse}, {known:?}"));
            }
        }
    }
}

#[test]
fn groups_of_triples_have_the_gradients_of_all() {
    // Three groups, of which the last is smaller and ends within a block.
    let sizes = Sizes { entities: 9, width: 6, triples: 402, chunk: 400, negatives: 18 };
    for model in [MANHATTAN, Model::RotatE] {
        let mut case = Case::new(objective(model, None, true), &sizes, 5);
        // With many triples, scale the weights so that gradients and their rounding stay as small
        // as with few.
        case.weights.iter_mut().for_each(|weight| *weight *= 0.1);
        compare(&case, &format!("{model:?}"));
    }
}

#[test]
fn a_chunk_without_triples_changes_nothing() {
    let sizes = Sizes { entities: 9, width: 6, triples: 13, chunk: 4, negatives: 6 };
    for model in [Model::ComplEx, EUCLIDEAN, MANHATTAN, Model::RotatE] {
        let case = Case::new(objective(model, None, true), &sizes, 5);
        let mut with = case.clone();
        for side in 0..2 {
            with.chunks[side].push(Chunk { triples: 0, candidates: 2, kinds: KINDS });
            with.candidates[side].extend([1, 3]);
            with.bias[side].extend([0.0; 2 * KINDS]);
        }
        assert_eq!(with.train(2), case.train(2), "{model:?}");
    }
}

#[test]
fn an_angle_that_is_too_large_moves_nothing() {
    let sizes = Sizes { entities: 20, width: 6, triples: 30, chunk: 30, negatives: 10 };
    let mut case = Case::new(objective(Model::RotatE, None, false), &sizes, 3);
    let relation = case.triples[3 * 7 + 1] as usize;
    case.relations[3 * relation + 2] = 2e6;
    unmoved(&case, STATE, 2, "an angle");
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let shapes = [
        Sizes { entities: 5000, width: 34, triples: 333, chunk: 1000, negatives: 131 },
        Sizes { entities: 40, width: 100, triples: 90, chunk: 17, negatives: 8 },
        // The scores form two groups.
        Sizes { entities: 4000, width: 2, triples: 300, chunk: 250, negatives: 3000 },
    ];
    for (number, sizes) in shapes.iter().enumerate() {
        let models = [
            (Model::ComplEx, Size::CubesOfModuli),
            (EUCLIDEAN, Size::Cubes),
            (MANHATTAN, Size::Cubes),
            (Model::RotatE, Size::CubesOfModuli),
        ];
        for (model, size) in models {
            let case = Case::new(objective(model, Some(size), true), sizes, 11);
            let alone = case.train(1);
            assert!(alone.0.is_some(), "{model:?}, shape {number}");
            for threads in [2, 3, 8] {
                let found = case.train(threads);
                assert_eq!(found, alone, "{model:?}, shape {number}, {threads} threads");
            }
        }
    }
}

#[test]
fn what_is_not_finite_moves_nothing() {
    let sizes = Sizes { entities: 20, width: 6, triples: 30, chunk: 30, negatives: 10 };
    type Change<'a> = &'a dyn Fn(&mut Case);
    let used = |case: &Case, part: usize| 6 * case.triples[3 * 7 + part] as usize;
    let scaled = |case: &mut Case, entities: f32, relations: f32| {
        case.entities.iter_mut().for_each(|number| *number *= entities);
        case.relations.iter_mut().for_each(|number| *number *= relations);
    };
    let linear = |case: &mut Case| case.objective.loss = Loss::Logistic { margin: 0.0 };
    let changes: [(&str, Change<'_>); 10] = [
        ("a head", &|case| {
            let place = used(case, 0);
            case.entities[place + 1] = f32::INFINITY;
        }),
        ("a relation", &|case| {
            let place = used(case, 1);
            case.relations[place + 5] = f32::NAN;
        }),
        ("a candidate", &|case| {
            let place = 6 * case.candidates[1][3] as usize;
            case.entities[place] = f32::NEG_INFINITY;
        }),
        ("a weight", &|case| case.weights[7] = f32::NAN),
        ("a bias", &|case| case.bias[0][4] = f32::NAN),
        ("the scores", &|case| scaled(case, 1e20, 1.0)),
        ("a size", &|case| {
            case.objective.size = Some(Size::Cubes);
            scaled(case, 1e14, 1e-30);
        }),
        // All gradients are finite, but the squares of the relations' gradients are not.
        ("a square", &|case| {
            linear(case);
            scaled(case, 1e10, 1e-20);
        }),
        ("a square of entities", &|case| {
            linear(case);
            scaled(case, 1e-3, 1e24);
        }),
        ("a mean of squares", &|case| {
            linear(case);
            case.objective.steps = (Step::RowAdagrad, Step::RowAdagrad);
            scaled(case, 1e10, 1e-20);
        }),
    ];
    for (what, change) in changes {
        let mut case = Case::new(objective(Model::ComplEx, None, false), &sizes, 3);
        change(&mut case);
        for threads in [1, 2] {
            unmoved(&case, STATE, threads, what);
        }
    }
    // The squares are finite, but adding them would make the state infinite.
    let mut case = Case::new(objective(Model::ComplEx, None, false), &sizes, 3);
    linear(&mut case);
    scaled(&mut case, 4e9, 1e-19);
    assert!(case.train(2).0.is_some());
    unmoved(&case, 3e38, 2, "a state");
}

#[test]
fn a_row_whose_square_is_too_large_is_not_the_nearest() {
    let sizes = Sizes { entities: 20, width: 6, triples: 30, chunk: 30, negatives: 48 };
    for entity in 0..20 {
        let mut case = Case::new(objective(EUCLIDEAN, None, false), &sizes, 3);
        case.entities[6 * entity..6 * entity + 6].fill(1e25);
        unmoved(&case, 0.5, 2, &format!("entity {entity}"));
    }
}

/// Trains a batch, and expects no loss and unchanged tables and states.
fn unmoved(case: &Case, state: f32, threads: usize, what: &str) {
    let bits = |numbers: &[f32]| -> Vec<u32> { numbers.iter().map(|x| x.to_bits()).collect() };
    let (mut entities, mut relations) = (case.entities.clone(), case.relations.clone());
    let (of_entities, of_relations) = case.objective.steps;
    let width = case.objective.model.relation_width(case.width);
    let count = |rows: &[f32], step: Step, width| rows.len() / width * step.state_width(width);
    let mut states = [
        vec![state; count(&entities, of_entities, case.width)],
        vec![state; count(&relations, of_relations, width)],
    ];
    let [entity_state, relation_state] = &mut states;
    let loss = train_batch(
        &case.objective,
        Table { rows: &mut entities, state: entity_state, width: case.width },
        Table { rows: &mut relations, state: relation_state, width },
        &case.batch(None),
        &mut Workspace::default(),
        threads,
    );
    assert_eq!(loss.unwrap(), None, "{what}");
    assert_eq!(bits(&entities), bits(&case.entities), "{what}");
    assert_eq!(bits(&relations), bits(&case.relations), "{what}");
    assert!(states.iter().flatten().all(|&number| number == state), "{what}");
}

#[test]
fn sizes_and_rows_that_do_not_fit_are_refused() {
    let sizes = Sizes { entities: 20, width: 6, triples: 30, chunk: 30, negatives: 10 };
    let good = Case::new(objective(Model::ComplEx, None, false), &sizes, 3);
    let refused_with = |missing: [usize; 2], change: &dyn Fn(&mut Case), what: &str| {
        let mut case = good.clone();
        change(&mut case);
        let (mut entities, mut relations) = (case.entities.clone(), case.relations.clone());
        let mut states =
            [vec![0.0; entities.len() - missing[0]], vec![0.0; relations.len() - missing[1]]];
        let [entity_state, relation_state] = &mut states;
        let error = train_batch(
            &case.objective,
            Table { rows: &mut entities, state: entity_state, width: case.width },
            Table { rows: &mut relations, state: relation_state, width: case.width },
            &case.batch(None),
            &mut Workspace::default(),
            1,
        );
        let message = error.unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
        assert_eq!(entities, case.entities, "{what}");
        assert_eq!(relations, case.relations, "{what}");
    };
    let refused = |change: &dyn Fn(&mut Case), what: &str| refused_with([0, 0], change, what);
    refused(&|case| case.triples[8] = 20, "row 20");
    refused(&|case| case.triples[7] = -1, "relation -1");
    refused(&|case| case.places[0][3] = 30, "triple 30");
    refused(&|case| case.candidates[1][9] = 99, "row 99");
    refused(&|case| case.kinds[1][4] = 3, "kind 3");
    refused(&|case| case.kinds[0].truncate(5), "5 kinds");
    refused(&|case| case.bias[0].truncate(10), "10 biases");
    refused(&|case| case.weights.truncate(3), "one weight a triple");
    refused(&|case| case.chunks[0][0].triples = 7, "chunks of 7 triples");
    refused(&|case| case.width = 5, "5 numbers");
    refused(&|case| case.candidates[1].reverse(), "chunk 0: expected ascending");
    let row_adagrad = |case: &mut Case| case.objective.steps.1 = Step::RowAdagrad;
    refused(&row_adagrad, "RowAdagrad of relations: expected 1 numbers of state");
    refused_with([0, 6], &|_| (), "Adagrad of relations: expected 6 numbers of state");
    refused_with([1, 0], &|_| (), "Adagrad of entities: expected 6 numbers of state");
}
