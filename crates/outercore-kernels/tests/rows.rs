//! Compares steps of rows with a naive implementation.

use outercore_kernels::{Step, step_rows};
use proptest::prelude::*;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_move_the_rows_that_are_named_and_no_other(
        rows in prop::collection::btree_set(0_i64..900, 0..700),
        width in 1_usize..20,
        threads in 1_usize..4,
    ) {
        let rows: Vec<i64> = rows.into_iter().collect();
        let gradients = numbers(rows.len() * width, 5);
        for step in [Step::Adagrad, Step::RowAdagrad] {
            let state_width = step.state_width(width);
            let mut table = numbers(900 * width, 1);
            let mut state: Vec<f32> =
                numbers(900 * state_width, 2).iter().map(|value| value * value).collect();
            let (old_table, old_state) = (table.clone(), state.clone());
            step_rows(step, &mut table, &mut state, &rows, &gradients, 0.1, threads)
                .expect("sizes that fit");
            let mut given = rows.iter().zip(gradients.chunks(width)).peekable();
            for row in 0..900 {
                let now = &table[row * width..][..width];
                let before = &old_table[row * width..][..width];
                let now_state = &state[row * state_width..][..state_width];
                let before_state = &old_state[row * state_width..][..state_width];
                let Some((_, gradient)) = given.next_if(|(given, _)| **given == row as i64) else {
                    prop_assert_eq!(now, before);
                    prop_assert_eq!(now_state, before_state);
                    continue;
                };
                let mean = gradient.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>()
                    / width as f64;
                for place in 0..width {
                    let own = f64::from(gradient[place]).powi(2);
                    let square = if step == Step::Adagrad { own } else { mean };
                    let at = place.min(state_width - 1);
                    let sum = f64::from(before_state[at]) + square;
                    prop_assert!((f64::from(now_state[at]) - sum).abs() < 1e-6);
                    let moved = f64::from(before[place])
                        - 0.1 * f64::from(gradient[place]) / (sum.sqrt() + 1e-10);
                    prop_assert!((f64::from(now[place]) - moved).abs() < 1e-6);
                }
            }
        }
    }
}

#[test]
fn adam_counts_the_steps_of_each_row() {
    let (width, rate) = (5, 0.1);
    let mut table = numbers(3 * width, 1);
    let mut state = vec![0.0; 3 * Step::Adam.state_width(width)];
    let before = doubles(&table);
    let (mut mean, mut square) = ([[0.0; 5]; 3], [[0.0; 5]; 3]);
    let mut expected = before.clone();
    let mut steps = [0; 3];
    for turn in 0..4 {
        // Only every second batch uses the first row.
        let rows: &[i64] = if turn % 2 == 0 { &[0, 2] } else { &[2] };
        let gradients = numbers(rows.len() * width, 7 + turn);
        step_rows(Step::Adam, &mut table, &mut state, rows, &gradients, rate, 2)
            .expect("sizes that fit");
        for (&row, gradient) in rows.iter().zip(gradients.chunks(width)) {
            let row = row as usize;
            steps[row] += 1;
            for place in 0..width {
                let slope = f64::from(gradient[place]);
                let (mean, square) = (&mut mean[row][place], &mut square[row][place]);
                *mean = 0.9 * *mean + 0.1 * slope;
                *square = 0.999 * *square + 0.001 * slope * slope;
                let size = (*square / (1.0 - 0.999_f64.powi(steps[row]))).sqrt() + 1e-8;
                expected[row * width + place] -=
                    0.1 * *mean / (1.0 - 0.9_f64.powi(steps[row])) / size;
            }
        }
    }
    for (place, (&one, other)) in table.iter().zip(&expected).enumerate() {
        assert!((f64::from(one) - other).abs() < 1e-4, "place {place}: {one}, {other}");
    }
    assert_eq!(state[10], 2.0);
    assert_eq!(table[width..2 * width], numbers(3 * width, 1)[width..2 * width]);
}

fn doubles(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&number| f64::from(number)).collect()
}

#[test]
fn rows_that_do_not_exist_are_refused() {
    let step = |rows: &[i64]| {
        let (mut table, mut state) = (numbers(12, 1), vec![0.0; 12]);
        let gradients = vec![1.0; rows.len() * 3];
        step_rows(Step::Adagrad, &mut table, &mut state, rows, &gradients, 0.1, 1)
    };
    assert!(step(&[0, 3]).is_ok());
    assert!(step(&[0, 4]).is_err());
    assert!(step(&[2, 1]).is_err());
    assert!(step(&[2, 2]).is_err());
}
