use outercore_core::{Error, Result};

use super::field::Field;
use super::{Order, OrderConfig, Swap};

/// COVER: one block after the other. The partitions of a block replace the partitions that were
/// loaded first; partitions that two blocks share stay.
///
/// # Errors
/// The number of partitions is not a power of the number of slots, or the number of slots is not a
/// prime power.
pub fn order(config: &OrderConfig, resident: usize) -> Result<Order> {
    let blocks = blocks(config.partitions, resident)?;
    let first = blocks[0].clone();
    // The oldest partition first.
    let mut buffer = first.clone();
    let mut swaps = Vec::new();
    for block in &blocks[1..] {
        for &loaded in block {
            if buffer.contains(&loaded) {
                continue;
            }
            let oldest = buffer.iter().position(|there| !block.contains(there));
            let evicted = buffer.remove(oldest.expect("a block has as many as there are slots"));
            swaps.push(Swap { evicted, loaded });
            buffer.push(loaded);
        }
    }
    Ok(Order::new(config, first, &swaps))
}

/// The lines of the affine space with `partitions` points and `size` points per line, grouped by
/// direction. Any two points are on exactly one line.
pub fn blocks(partitions: usize, size: usize) -> Result<Vec<Vec<usize>>> {
    let dimension = (1..).find(|&power| size.pow(power) >= partitions);
    let space =
        Field::new(size).zip(dimension).filter(|&(_, dimension)| size.pow(dimension) == partitions);
    let Some((field, dimension)) = space else {
        return Err(Error::invalid(format!(
            "order `cover`: {partitions} partitions with {size} in memory, expected a prime power \
             up to 16 in memory and a power of it of partitions"
        ))
        .hint("choose 16 or 64 partitions with 4 in memory, or the order `optimal`"));
    };
    let mut blocks = Vec::new();
    for direction in 1..partitions {
        let direction = coordinates(direction, &field, dimension);
        // Directions that differ by a factor give the same lines. Use the one whose leading
        // coordinate is 1.
        if direction.iter().rev().find(|&&coordinate| coordinate != 0) != Some(&1) {
            continue;
        }
        let mut on_line = vec![false; partitions];
        for point in 0..partitions {
            if on_line[point] {
                continue;
            }
            let start = coordinates(point, &field, dimension);
            let line: Vec<usize> = (0..size)
                .map(|step| {
                    let moved = start.iter().zip(&direction);
                    moved.rev().fold(0, |number, (&start, &along)| {
                        number * size + field.add(start, field.multiply(step, along))
                    })
                })
                .collect();
            line.iter().for_each(|&point| on_line[point] = true);
            blocks.push(line);
        }
    }
    Ok(blocks)
}

fn coordinates(mut point: usize, field: &Field, dimension: u32) -> Vec<usize> {
    let mut coordinates = Vec::new();
    for _ in 0..dimension {
        coordinates.push(point % field.size());
        point /= field.size();
    }
    coordinates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_partitions_are_in_exactly_one_block() {
        for (partitions, size) in [(9, 3), (16, 4), (64, 4), (64, 8), (25, 5), (32, 2), (256, 16)] {
            let blocks = blocks(partitions, size).unwrap();
            let mut met = vec![0; partitions * partitions];
            for block in &blocks {
                for &a in block {
                    for &b in block {
                        met[a * partitions + b] += usize::from(a != b);
                    }
                }
            }
            for (pair, &times) in met.iter().enumerate() {
                let expected = usize::from(pair / partitions != pair % partitions);
                assert_eq!(times, expected, "{partitions} in blocks of {size}, pair {pair}");
            }
        }
    }

    /// Legend, table 8, counts every partition that COVER loads and keeps none between two blocks:
    /// 80 partitions, or 5 times the whole state.
    #[test]
    fn sixteen_partitions_make_the_eighty_loads_of_the_paper() {
        let blocks = blocks(16, 4).unwrap();
        assert_eq!(blocks.iter().map(Vec::len).sum::<usize>(), 80);
    }

    #[test]
    fn other_numbers_of_partitions_are_refused_with_ones_that_work() {
        for (partitions, size) in [(12, 4), (36, 6), (17, 16)] {
            let error = blocks(partitions, size).unwrap_err().to_string();
            assert!(error.contains(&format!("{partitions} partitions")), "{error}");
            assert!(error.contains("hint: choose 16 or 64"), "{error}");
        }
    }
}
