//! Whole batches against the definition: a loss in double precision and its differences.

use outercore_core::Stream;
use outercore_kernels::{
    Batch, Bilinear, Chunk, Loss, Objective, Questions, Size, Step, Table, Workspace, train_batch,
};

/// State so large that a step of Adagrad by its root is minus the gradient.
const STATE: f32 = 1e12;

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
}

struct Sizes {
    entities: usize,
    width: usize,
    triples: usize,
    chunk: usize,
    negatives: usize,
}

impl Case {
    /// A batch of all triples but the first two; heads are asked for in another order.
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
            })
            .collect();
        let bias = [0, 1].map(|_| numbers(chunks.len() * sizes.negatives));
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
        }
    }

    fn batch(&self) -> Batch<'_> {
        Batch {
            triples: &self.triples,
            weights: Some(&self.weights),
            unit: 0.25,
            questions: [0, 1].map(|side| Questions {
                places: &self.places[side],
                chunks: &self.chunks[side],
                candidates: &self.candidates[side],
                bias: Some(&self.bias[side]),
            }),
            rates: (STATE.sqrt(), STATE.sqrt()),
        }
    }

    /// The loss, and both tables less their gradients.
    fn train(&self, threads: usize) -> (Option<f32>, Vec<f32>, Vec<f32>) {
        let (mut entities, mut relations) = (self.entities.clone(), self.relations.clone());
        let mut states = [vec![STATE; entities.len()], vec![STATE; relations.len()]];
        let [entity_state, relation_state] = &mut states;
        let width = self.objective.model.relation_width(self.width);
        let loss = train_batch(
            &self.objective,
            Table { rows: &mut entities, state: entity_state, width: self.width },
            Table { rows: &mut relations, state: relation_state, width },
            &self.batch(),
            &mut Workspace::default(),
            threads,
        );
        (loss.unwrap(), entities, relations)
    }

    fn score(&self, entities: &[f64], relations: &[f64], [h, r, t]: [i64; 3]) -> f64 {
        let row =
            |table: &[f64], row: i64| table[row as usize * self.width..][..self.width].to_vec();
        let (head, tail) = (row(entities, h), row(entities, t));
        let half = self.width / 2;
        let places = 0..self.width;
        if self.objective.model == Bilinear::Dot {
            return places.map(|i| head[i] * tail[i]).sum();
        }
        let relation = row(relations, r);
        match self.objective.model {
            Bilinear::ComplEx => (0..half)
                .map(|i| {
                    let (a, b) = (head[i], head[half + i]);
                    let (c, d) = (relation[i], relation[half + i]);
                    (a * c - b * d) * tail[i] + (a * d + b * c) * tail[half + i]
                })
                .sum(),
            Bilinear::SimplE => (0..half)
                .map(|i| {
                    let forth = head[i] * relation[i] * tail[half + i];
                    0.5 * (forth + tail[i] * relation[half + i] * head[half + i])
                })
                .sum(),
            _ => places.map(|i| head[i] * relation[i] * tail[i]).sum(),
        }
    }

    /// By the definition: softmax, and what the rows' sizes cost.
    fn loss(&self, entities: &[f64], relations: &[f64]) -> f64 {
        let mut loss = 0.0;
        for side in 0..2 {
            let (mut place, mut before) = (0, 0);
            for chunk in &self.chunks[side] {
                for _ in 0..chunk.triples {
                    let number = self.places[side][place] as usize;
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
                    let mut sum = positive.exp();
                    for other in before..before + chunk.candidates {
                        let mut instead = triple;
                        instead[end] = self.candidates[side][other];
                        if self.objective.hides_own && instead[end] == triple[end] {
                            continue;
                        }
                        let bias = f64::from(self.bias[side][other]);
                        sum += (self.score(entities, relations, instead) + bias).exp();
                    }
                    loss += weight * (sum.ln() - positive);
                    loss += weight * self.sizes(entities, relations, triple);
                }
                before += chunk.candidates;
            }
        }
        loss
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
        let ends = f64::from(of_entities) * (of(entities, h) + of(entities, t));
        if relations.is_empty() { ends } else { ends + f64::from(of_relations) * of(relations, r) }
    }
}

fn objective(model: Bilinear, size: Option<Size>, reverse: bool) -> Objective {
    Objective {
        model,
        loss: Loss::Softmax { contrastive: false },
        size,
        strengths: (0.3, 0.7),
        reverse: reverse.then_some(3),
        hides_own: reverse,
        steps: (Step::Adagrad, Step::Adagrad),
    }
}

fn doubles(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&number| f64::from(number)).collect()
}

#[test]
fn a_step_is_minus_the_gradient_of_the_definition() {
    let models = [
        (Bilinear::Dot, 5, None),
        (Bilinear::DistMult, 7, Some(Size::Cubes)),
        (Bilinear::ComplEx, 6, Some(Size::CubesOfModuli)),
        (Bilinear::SimplE, 8, Some(Size::Squares)),
    ];
    for (model, width, size) in models {
        for reverse in [false, true] {
            for same_order in [false, true] {
                let sizes = Sizes { entities: 9, width, triples: 13, chunk: 4, negatives: 6 };
                let mut case = Case::new(objective(model, size, reverse), &sizes, 5);
                if same_order {
                    case.places[1] = case.places[0].clone();
                }
                let what = format!("{model:?}, reverse {reverse}, same order {same_order}");
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
                    let slope = (moved(1e-4) - moved(-1e-4)) / 2e-4;
                    let step = match place.checked_sub(all.len()) {
                        None => case.entities[place] - entities[place],
                        Some(place) => case.relations[place] - relations[place],
                    };
                    let error = (f64::from(step) - slope).abs();
                    assert!(error < 2e-6, "{what}: place {place}: {step}, {slope}");
                }
            }
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let shapes = [
        Sizes { entities: 5000, width: 34, triples: 333, chunk: 1000, negatives: 131 },
        Sizes { entities: 40, width: 100, triples: 90, chunk: 17, negatives: 8 },
        // Scores of two groups.
        Sizes { entities: 4000, width: 2, triples: 300, chunk: 250, negatives: 3000 },
    ];
    for (number, sizes) in shapes.iter().enumerate() {
        let of = objective(Bilinear::ComplEx, Some(Size::CubesOfModuli), true);
        let case = Case::new(of, sizes, 11);
        let alone = case.train(1);
        assert!(alone.0.is_some(), "shape {number}");
        for threads in [2, 3, 8] {
            assert_eq!(case.train(threads), alone, "shape {number}, {threads} threads");
        }
    }
}

#[test]
fn what_is_not_finite_moves_nothing() {
    let sizes = Sizes { entities: 20, width: 6, triples: 30, chunk: 30, negatives: 10 };
    let mut case = Case::new(objective(Bilinear::ComplEx, None, false), &sizes, 3);
    let used = case.triples[3 * 7] as usize;
    case.entities[6 * used + 1] = f32::INFINITY;
    let (loss, entities, relations) = case.train(2);
    assert_eq!(loss, None);
    assert_eq!(entities, case.entities);
    assert_eq!(relations, case.relations);
}

#[test]
fn sizes_and_rows_that_do_not_fit_are_refused() {
    let sizes = Sizes { entities: 20, width: 6, triples: 30, chunk: 30, negatives: 10 };
    let good = Case::new(objective(Bilinear::ComplEx, None, false), &sizes, 3);
    let refused = |change: &dyn Fn(&mut Case), what: &str| {
        let mut case = good.clone();
        change(&mut case);
        let (mut entities, mut relations) = (case.entities.clone(), case.relations.clone());
        let mut states = [vec![0.0; entities.len()], vec![0.0; relations.len()]];
        let [entity_state, relation_state] = &mut states;
        let error = train_batch(
            &case.objective,
            Table { rows: &mut entities, state: entity_state, width: case.width },
            Table { rows: &mut relations, state: relation_state, width: case.width },
            &case.batch(),
            &mut Workspace::default(),
            1,
        );
        let message = error.unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
        assert_eq!(entities, case.entities, "{what}");
    };
    refused(&|case| case.triples[8] = 20, "row 20");
    refused(&|case| case.triples[7] = -1, "relation -1");
    refused(&|case| case.places[0][3] = 30, "triple 30");
    refused(&|case| case.candidates[1][2] = 99, "row 99");
    refused(&|case| case.weights.truncate(3), "one weight a triple");
    refused(&|case| case.chunks[0][0].triples = 7, "chunks of 7 triples");
    refused(&|case| case.width = 5, "5 numbers");
}
