//! Compares random networks on random subgraphs with their definition in double precision.

mod common;

use common::{Draft, Random, Sampled, Shape};
use outercore_infer::Precision;
use proptest::prelude::*;

type State = Vec<Vec<f64>>;

fn linear(draft: &Draft, name: &str, bias: Option<&str>, x: &[f64]) -> Vec<f64> {
    let weight = draft.tensor(name);
    weight
        .chunks(x.len())
        .enumerate()
        .map(|(output, row)| {
            let sum: f64 = row.iter().zip(x).map(|(&one, other)| f64::from(one) * other).sum();
            sum + bias.map_or(0.0, |name| f64::from(draft.tensor(name)[output]))
        })
        .collect()
}

fn both(draft: &Draft, name: &str, x: &[f64]) -> Vec<f64> {
    linear(draft, &format!("{name}.weight"), Some(&format!("{name}.bias")), x)
}

fn norm(draft: &Draft, kind: &str, name: &str, x: &mut [f64]) {
    let of = |part: &str, place: usize| f64::from(draft.tensor(&format!("{name}.{part}"))[place]);
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / x.len() as f64;
    for (place, value) in x.iter_mut().enumerate() {
        let (mean, variance) = match kind {
            "none" => return,
            "layer" => (mean, variance),
            _ => (of("mean", place), of("variance", place)),
        };
        let normal = (*value - mean) / (variance + 1e-5).sqrt();
        *value = normal * of("weight", place) + of("bias", place);
    }
}

fn relu(x: &mut [f64]) {
    x.iter_mut().for_each(|value| *value = value.max(0.0));
}

fn add(sum: &mut [f64], factor: f64, x: &[f64]) {
    sum.iter_mut().zip(x).for_each(|(sum, value)| *sum += factor * value);
}

/// One node's state after a layer, term by term.
fn convolve(
    shape: &Shape,
    draft: &Draft,
    layer: usize,
    x: &State,
    sampled: &Sampled,
    target: usize,
) -> Vec<f64> {
    let name = |part: &str| format!("layers.{layer}.{part}");
    let own = &x[target];
    let all = sampled.edges().get(target).cloned().unwrap_or_default();
    let others: Vec<usize> = all
        .iter()
        .copied()
        .filter(|&source| sampled.nodes[source] != sampled.nodes[target])
        .collect();
    let degree = |node: usize| f64::from(sampled.degrees[node]);
    let scale = |count: usize| degree(target).max(1.0) / count.max(1) as f64;
    match shape.kind {
        "sage" => {
            let mut mean = vec![0.0; own.len()];
            all.iter().for_each(|&one| add(&mut mean, 1.0 / all.len() as f64, &x[one]));
            let mut out = both(draft, &name("neighbours"), &mean);
            add(&mut out, 1.0, &linear(draft, &name("own.weight"), None, own));
            out
        }
        "gcn" => {
            let root = |node: usize| 1.0 / (degree(node) + 1.0).sqrt();
            let map = |node: usize| linear(draft, &name("linear.weight"), None, &x[node]);
            let mut out: Vec<f64> =
                draft.tensor(&name("linear.bias")).iter().map(|&one| f64::from(one)).collect();
            for &one in &others {
                add(&mut out, root(one) * root(target) * scale(others.len()), &map(one));
            }
            add(&mut out, root(target).powi(2), &map(target));
            out
        }
        "gin" => {
            let mut sum = vec![0.0; own.len()];
            all.iter().for_each(|&one| add(&mut sum, scale(all.len()), &x[one]));
            add(&mut sum, 1.0 + f64::from(draft.tensor(&name("eps"))[0]), own);
            let mut inner = both(draft, &name("first"), &sum);
            norm(draft, shape.norm, &name("inner_norm"), &mut inner);
            relu(&mut inner);
            both(draft, &name("second"), &inner)
        }
        "gat" => attend(shape, draft, layer, x, &others, target),
        _ => both(draft, &name("linear"), own),
    }
}

fn attend(
    shape: &Shape,
    draft: &Draft,
    layer: usize,
    x: &State,
    others: &[usize],
    target: usize,
) -> Vec<f64> {
    let name = |part: &str| format!("layers.{layer}.{part}");
    let map = |node: usize| linear(draft, &name("linear.weight"), None, &x[node]);
    let width = draft.tensor(&name("source_attention")).len() / shape.heads;
    let bias: Vec<f64> = draft.tensor(&name("bias")).iter().map(|&one| f64::from(one)).collect();
    let mut parts = Vec::new();
    for head in 0..shape.heads {
        let columns = head * width..(head + 1) * width;
        let score = |part: &str, node: usize| -> f64 {
            let vector = &draft.tensor(&name(part))[columns.clone()];
            let state = &map(node)[columns.clone()];
            vector.iter().zip(state).map(|(&one, other)| f64::from(one) * other).sum()
        };
        let sources: Vec<usize> = others.iter().copied().chain([target]).collect();
        let weights: Vec<f64> = sources
            .iter()
            .map(|&one| {
                let sum = score("source_attention", one) + score("target_attention", target);
                (if sum < 0.0 { 0.2 * sum } else { sum }).exp()
            })
            .collect();
        let total: f64 = weights.iter().sum();
        let mut part = vec![0.0; width];
        for (&one, weight) in sources.iter().zip(&weights) {
            add(&mut part, weight / total, &map(one)[columns.clone()]);
        }
        parts.push(part);
    }
    let mut out = if shape.jumping == "none" && layer + 1 == shape.layers {
        let mut mean = vec![0.0; width];
        parts.iter().for_each(|part| add(&mut mean, 1.0 / shape.heads as f64, part));
        mean
    } else {
        parts.concat()
    };
    add(&mut out, 1.0, &bias);
    out
}

/// Logits of the seeds: applies every layer to every node for which it can be computed.
fn definition(shape: &Shape, draft: &Draft, sampled: &Sampled, x: &[f32]) -> State {
    let mut state: State = x
        .chunks(shape.features)
        .map(|row| row.iter().map(|&one| f64::from(one)).collect())
        .collect();
    let seeds = sampled.nodes_per_hop[0] as usize;
    let mut states = Vec::new();
    for layer in 0..shape.layers {
        let last = shape.jumping == "none" && layer + 1 == shape.layers;
        state = (0..sampled.nodes.len())
            .map(|target| {
                let mut out = convolve(shape, draft, layer, &state, sampled, target);
                if shape.residual && !(shape.kind == "mlp" && last) {
                    let skip = both(draft, &format!("layers.{layer}.skip"), &state[target]);
                    add(&mut out, 1.0, &skip);
                }
                if !last {
                    norm(draft, shape.norm, &format!("layers.{layer}.norm"), &mut out);
                    relu(&mut out);
                }
                out
            })
            .collect();
        states.push(state[..seeds].to_vec());
    }
    match shape.jumping {
        "none" => states.pop().unwrap(),
        jumping => (0..seeds)
            .map(|seed| {
                let parts: Vec<&Vec<f64>> = states.iter().map(|state| &state[seed]).collect();
                let joined: Vec<f64> = if jumping == "cat" {
                    parts.into_iter().flatten().copied().collect()
                } else {
                    let most = |place: usize| {
                        parts.iter().map(|part| part[place]).fold(f64::MIN, f64::max)
                    };
                    (0..shape.hidden).map(most).collect()
                };
                both(draft, "head", &joined)
            })
            .collect(),
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        (prop::sample::select(vec!["sage", "gcn", "gin", "gat", "mlp"]), 1_usize..4),
        (1_usize..40, 1_usize..20, 1_usize..20, 1_usize..5),
        prop::sample::select(vec!["none", "batch", "layer"]),
        prop::sample::select(vec!["none", "cat", "max"]),
        any::<bool>(),
    )
        .prop_map(
            |((kind, layers), (features, hidden, outputs, heads), norm, jumping, residual)| {
                let heads = if kind == "gat" { heads } else { 1 };
                let jumping = if kind == "mlp" { "none" } else { jumping };
                let hidden = hidden * heads;
                Shape { kind, layers, features, hidden, outputs, heads, norm, jumping, residual }
            },
        )
}

/// Nodes whose features may affect a seed's logits.
fn reached(sampled: &Sampled, seed: usize) -> Vec<bool> {
    let edges = sampled.edges();
    let mut seen = vec![false; sampled.nodes.len()];
    let mut open = vec![seed];
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut seen[node], true) {
            open.extend(edges.get(node).into_iter().flatten());
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn logits_are_those_of_the_definition(shape in shapes(), seed in any::<u64>()) {
        let mut random = Random(seed);
        let draft = shape.random(&mut random);
        let sampled = Sampled::random(shape.hops(), &mut random);
        let x = random.numbers(sampled.nodes.len() * shape.features);
        let found = draft.model().forward(&sampled.view(), &x).unwrap();
        let expected: Vec<f64> = definition(&shape, &draft, &sampled, &x).concat();
        prop_assert_eq!(found.len(), expected.len());
        // Sums of values of any sign: the result may be far smaller than its terms.
        let size = expected.iter().fold(1.0, |most: f64, one| most.max(one.abs()));
        for (&one, other) in found.iter().zip(&expected) {
            prop_assert!((f64::from(one) - other).abs() < 1e-4 * size, "{:?}, {:?}", found, expected);
        }
    }

    #[test]
    fn int8_logits_are_those_of_rounded_weights(shape in shapes(), seed in any::<u64>()) {
        // With few values, layer normalisation can magnify rounding errors of its input without
        // limit.
        let norm = if shape.norm == "layer" { "batch" } else { shape.norm };
        let shape = Shape { norm, ..shape };
        let mut random = Random(seed);
        let draft = shape.random(&mut random);
        let sampled = Sampled::random(shape.hops(), &mut random);
        let x = random.numbers(sampled.nodes.len() * shape.features);
        let model = draft.open_as(Precision::Int8);
        prop_assert_eq!(model.precision(), Precision::Int8);
        let found = model.forward(&sampled.view(), &x).unwrap();
        // Attention scores use the weights before rounding, so `gat` is compared with those.
        let (compared, most) =
            if shape.kind == "gat" { (draft, 0.1) } else { (draft.rounded(), 1e-3) };
        let expected: Vec<f64> = definition(&shape, &compared, &sampled, &x).concat();
        let size = expected.iter().fold(1.0, |most: f64, one| most.max(one.abs()));
        for (&one, other) in found.iter().zip(&expected) {
            prop_assert!((f64::from(one) - other).abs() < most * size, "{:?}, {:?}", found, expected);
        }
    }

    #[test]
    fn a_seed_has_the_same_bits_whatever_the_other_seeds_are(shape in shapes(), seed in any::<u64>()) {
        let mut random = Random(seed);
        let draft = shape.random(&mut random);
        let model = if seed % 2 == 0 { draft.model() } else { draft.open_as(Precision::Int8) };
        let sampled = Sampled::random(shape.hops(), &mut random);
        let mut x = random.numbers(sampled.nodes.len() * shape.features);
        let before = model.forward(&sampled.view(), &x).unwrap();
        let mine = reached(&sampled, 0);
        for (row, mine) in x.chunks_mut(shape.features).zip(mine) {
            if !mine {
                row.fill(f32::NAN);
            }
        }
        let after = model.forward(&sampled.view(), &x).unwrap();
        prop_assert_eq!(&before[..shape.outputs], &after[..shape.outputs]);
    }

    #[test]
    fn states_known_after_the_first_layer_stand_for_their_edges(
        shape in shapes(), seed in any::<u64>(),
    ) {
        let mut random = Random(seed);
        let model = shape.random(&mut random).model();
        let sampled = Sampled::random(shape.hops(), &mut random);
        let x = random.numbers(sampled.nodes.len() * shape.features);
        let full = model.forward(&sampled.view(), &x).unwrap();
        let Some(width) = model.first_width() else {
            prop_assert!(shape.hops() < 2);
            prop_assert!(model.forward_from(&sampled.view(), &x, &[None]).is_err());
            return Ok(());
        };
        let frontier = sampled.nodes_per_hop[shape.hops() - 1] as usize;
        let all = model.forward_from(&sampled.view(), &x, &vec![None; frontier]).unwrap();
        prop_assert_eq!(&all.states, &full);
        prop_assert_eq!(all.first.len(), frontier * width);
        let known: Vec<Option<&[f32]>> =
            all.first.chunks(width).map(|row| (random.below(2) == 0).then_some(row)).collect();
        let rest = sampled.without_last_edges(|place| known[place].is_some());
        let some = model.forward_from(&rest.view(), &x, &known).unwrap();
        prop_assert_eq!(&some, &all);
    }
}
