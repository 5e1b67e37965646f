//! Scores of a candidate and a query, where a query combines an anchor and a relation; and the
//! regularisation cost of a row.
//!
//! Complex rows hold all real parts, then all imaginary parts. In SimplE, an entity's row has its
//! embedding as head, then as tail; a relation's row has the relation, then its inverse.

use crate::distance::Distance;
use crate::lanes::Lanes;
use crate::scalar::sine_and_cosine;

/// A score function; `outercore.embedding.gradients.models` is the same in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The query is the anchor: relations are not used, and their rows are empty.
    Dot,
    /// Anchor times relation.
    DistMult,
    /// Complex product of anchor and relation; the relation is conjugated for predicting heads.
    ComplEx,
    /// The anchor with exchanged roles, times half of the relation, in the order of the side.
    SimplE,
    /// Anchor plus relation, or minus relation for predicting heads; compared by distance.
    TransE(Norm),
    /// Complex product of the anchor and a number of modulus 1 whose angle is the relation;
    /// conjugated for predicting heads. Compared by the sum of moduli.
    RotatE,
}

/// The distance of TransE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// The sum of absolute differences.
    Manhattan,
    /// The root of the sum of squares.
    Euclidean,
}

/// How to compare a candidate with a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Similarity {
    /// By the inner product.
    Inner,
    /// By the negative Euclidean distance, mostly computed by an inner product. A distance below
    /// the rounding error of that product has no gradient, because its direction would be noise.
    Euclidean,
    /// By a negative distance that cannot be computed from inner products.
    Apart(Distance),
}

/// The end of a triple to predict; the other end is the anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Predict heads.
    Head,
    /// Predict tails.
    Tail,
}

impl Model {
    /// How to compare candidates.
    pub(crate) fn similarity(self) -> Similarity {
        match self {
            Self::Dot | Self::DistMult | Self::ComplEx | Self::SimplE => Similarity::Inner,
            Self::TransE(Norm::Euclidean) => Similarity::Euclidean,
            Self::TransE(Norm::Manhattan) => Similarity::Apart(Distance::Manhattan),
            Self::RotatE => Similarity::Apart(Distance::Modulus),
        }
    }

    /// Floats per relation row, for entity rows of `width` floats.
    #[must_use]
    pub fn relation_width(self, width: usize) -> usize {
        match self {
            Self::Dot => 0,
            Self::RotatE => width / 2,
            _ => width,
        }
    }

    /// Whether a row's width must be even.
    #[must_use]
    pub fn halves(self) -> bool {
        matches!(self, Self::ComplEx | Self::SimplE | Self::RotatE)
    }

    /// A relation's row in the form for [`query`](Self::query) and [`backward`](Self::backward):
    /// the row itself, or cosines and sines of its angles, written to `space`, which has room for a
    /// row of entities.
    #[inline(always)]
    pub fn relation<'a, L: Lanes>(
        self,
        lanes: L,
        relation: &'a [f32],
        space: &'a mut [f32],
    ) -> &'a [f32] {
        if self == Self::RotatE {
            turns(lanes, relation, space);
            return space;
        }
        relation
    }

    /// Writes the query that candidates are compared with.
    #[inline(always)]
    pub fn query(self, side: Side, anchor: &[f32], relation: &[f32], query: &mut [f32]) {
        match self {
            Self::Dot => query.copy_from_slice(anchor),
            Self::DistMult => {
                for ((out, one), other) in query.iter_mut().zip(anchor).zip(relation) {
                    *out = one * other;
                }
            }
            Self::ComplEx | Self::RotatE => {
                let half = query.len() / 2;
                let sign = sign(side);
                let (real, imaginary) = (&anchor[..half], &anchor[half..][..half]);
                let (by_real, by_imaginary) = (&relation[..half], &relation[half..][..half]);
                let (to_real, to_imaginary) = query.split_at_mut(half);
                let to_imaginary = &mut to_imaginary[..half];
                for place in 0..half {
                    let turned = sign * by_imaginary[place];
                    to_real[place] = real[place] * by_real[place] - imaginary[place] * turned;
                    to_imaginary[place] = imaginary[place] * by_real[place] + real[place] * turned;
                }
            }
            Self::SimplE => {
                let half = query.len() / 2;
                let (own, inverse) = in_order(side, relation, half);
                let (head, tail) = (&anchor[..half], &anchor[half..][..half]);
                let (first, second) = query.split_at_mut(half);
                let second = &mut second[..half];
                for place in 0..half {
                    first[place] = 0.5 * tail[place] * own[place];
                    second[place] = 0.5 * head[place] * inverse[place];
                }
            }
            Self::TransE(_) => {
                let sign = sign(side);
                for ((out, one), other) in query.iter_mut().zip(anchor).zip(relation) {
                    *out = one + sign * other;
                }
            }
        }
    }

    /// Converts the gradient of a query to the gradient of the anchor, and writes the gradient of
    /// the relation.
    #[inline(always)]
    pub fn backward(
        self,
        side: Side,
        anchor: &[f32],
        relation: &[f32],
        gradient: &mut [f32],
        to_relation: &mut [f32],
    ) {
        let half = gradient.len() / 2;
        match self {
            Self::Dot => {}
            Self::DistMult => {
                let width = gradient.len();
                let (anchor, relation) = (&anchor[..width], &relation[..width]);
                let to_relation = &mut to_relation[..width];
                for place in 0..width {
                    to_relation[place] = gradient[place] * anchor[place];
                    gradient[place] *= relation[place];
                }
            }
            Self::ComplEx => {
                let sign = sign(side);
                let (real, imaginary) = (&anchor[..half], &anchor[half..][..half]);
                let (by_real, by_imaginary) = (&relation[..half], &relation[half..][..half]);
                let (first, second) = gradient.split_at_mut(half);
                let second = &mut second[..half];
                let (to_real, to_imaginary) = to_relation.split_at_mut(half);
                let to_imaginary = &mut to_imaginary[..half];
                for place in 0..half {
                    let (x, y) = (first[place], second[place]);
                    let turned = sign * by_imaginary[place];
                    first[place] = x * by_real[place] + y * turned;
                    second[place] = y * by_real[place] - x * turned;
                    to_real[place] = x * real[place] + y * imaginary[place];
                    to_imaginary[place] = sign * (y * real[place] - x * imaginary[place]);
                }
            }
            Self::RotatE => {
                let sign = sign(side);
                let (real, imaginary) = (&anchor[..half], &anchor[half..][..half]);
                let (by_real, by_imaginary) = (&relation[..half], &relation[half..][..half]);
                let (first, second) = gradient.split_at_mut(half);
                let (second, to_relation) = (&mut second[..half], &mut to_relation[..half]);
                for place in 0..half {
                    let (x, y) = (first[place], second[place]);
                    let turned = sign * by_imaginary[place];
                    first[place] = x * by_real[place] + y * turned;
                    second[place] = y * by_real[place] - x * turned;
                    // A change of the angle moves the query at a right angle to itself; the query
                    // turned back is the anchor.
                    let moved = real[place] * second[place] - imaginary[place] * first[place];
                    to_relation[place] = sign * moved;
                }
            }
            Self::SimplE => simple_backward(side, anchor, relation, gradient, to_relation),
            Self::TransE(_) => {
                let sign = sign(side);
                for (to, number) in to_relation.iter_mut().zip(&*gradient) {
                    *to = sign * number;
                }
            }
        }
    }
}

/// [`Model::backward`] of SimplE.
#[inline(always)]
fn simple_backward(
    side: Side,
    anchor: &[f32],
    relation: &[f32],
    gradient: &mut [f32],
    to_relation: &mut [f32],
) {
    let half = gradient.len() / 2;
    let (own, inverse) = in_order(side, relation, half);
    let (head, tail) = (&anchor[..half], &anchor[half..][..half]);
    let (first, second) = gradient.split_at_mut(half);
    let second = &mut second[..half];
    let (forth, back) = to_relation.split_at_mut(half);
    let (to_own, to_inverse) = match side {
        Side::Head => (forth, back),
        Side::Tail => (back, forth),
    };
    let (to_own, to_inverse) = (&mut to_own[..half], &mut to_inverse[..half]);
    for place in 0..half {
        let (x, y) = (0.5 * first[place], 0.5 * second[place]);
        first[place] = y * inverse[place];
        second[place] = x * own[place];
        to_own[place] = x * tail[place];
        to_inverse[place] = y * head[place];
    }
}

#[inline(always)]
fn sign(side: Side) -> f32 {
    match side {
        Side::Head => -1.0,
        Side::Tail => 1.0,
    }
}

/// The halves of SimplE's relation in the order of the query's halves.
#[inline(always)]
fn in_order(side: Side, relation: &[f32], half: usize) -> (&[f32], &[f32]) {
    let (forth, back) = (&relation[..half], &relation[half..][..half]);
    match side {
        Side::Head => (forth, back),
        Side::Tail => (back, forth),
    }
}

/// Cosines of angles, then their sines.
#[inline(always)]
fn turns<L: Lanes>(lanes: L, angles: &[f32], turns: &mut [f32]) {
    let (cosines, sines) = turns.split_at_mut(angles.len());
    let places = (0..angles.len()).step_by(L::F32_LANES);
    for (start, end) in places.map(|start| (start, angles.len().min(start + L::F32_LANES))) {
        let (sine, cosine) = sine_and_cosine(lanes, lanes.partial_load_f32s(&angles[start..end]));
        lanes.partial_store_f32s(&mut cosines[start..end], cosine);
        lanes.partial_store_f32s(&mut sines[start..end], sine);
    }
}

/// The inner product of two rows.
#[inline(always)]
pub fn dot<L: Lanes>(lanes: L, one: &[f32], other: &[f32]) -> f32 {
    let (body, tail) = L::as_simd_f32s(one);
    let (other_body, other_tail) = L::as_simd_f32s(other);
    let mut sums = lanes.splat(0.0);
    for (&x, &y) in body.iter().zip(other_body) {
        sums = lanes.mul_add_f32s(x, y, sums);
    }
    tail.iter().zip(other_tail).fold(lanes.reduce_sum_f32s(sums), |sum, (x, y)| sum + x * y)
}

/// A regularisation cost of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The sum of cubes of absolute values.
    Cubes,
    /// The sum of cubes of moduli; the halves of a row are real and imaginary parts.
    CubesOfModuli,
    /// The sum of squares.
    Squares,
}

impl Size {
    /// The cost of a row times `weight`; adds the gradient of the cost to `gradient`.
    #[inline(always)]
    pub fn add<L: Lanes>(self, lanes: L, row: &[f32], weight: f32, gradient: &mut [f32]) -> f32 {
        let cost = match self {
            Self::Cubes => cubes(lanes, row, weight, gradient),
            Self::CubesOfModuli => cubes_of_moduli(lanes, row, weight, gradient),
            Self::Squares => {
                for (to, number) in gradient.iter_mut().zip(row) {
                    *to += 2.0 * weight * number;
                }
                dot(lanes, row, row)
            }
        };
        weight * cost
    }
}

#[inline(always)]
fn cubes<L: Lanes>(lanes: L, row: &[f32], weight: f32, gradient: &mut [f32]) -> f32 {
    let three = lanes.splat(3.0 * weight);
    let (body, tail) = L::as_simd_f32s(row);
    let (to, to_tail) = L::as_mut_simd_f32s(gradient);
    let mut sums = lanes.splat(0.0);
    for (&x, to) in body.iter().zip(to) {
        let size = lanes.absolute(x);
        sums = lanes.mul_add_f32s(lanes.mul_f32s(size, x), x, sums);
        *to = lanes.mul_add_f32s(lanes.mul_f32s(size, x), three, *to);
    }
    let mut sum = lanes.reduce_sum_f32s(sums);
    for (x, to) in tail.iter().zip(to_tail) {
        sum += x.abs() * x * x;
        *to += 3.0 * weight * x.abs() * x;
    }
    sum
}

#[inline(always)]
fn cubes_of_moduli<L: Lanes>(lanes: L, row: &[f32], weight: f32, gradient: &mut [f32]) -> f32 {
    let half = row.len() / 2;
    let three = lanes.splat(3.0 * weight);
    let (real, imaginary) = row.split_at(half);
    let (to_real, to_imaginary) = gradient.split_at_mut(half);
    let ((x_body, x_tail), (y_body, y_tail)) = (L::as_simd_f32s(real), L::as_simd_f32s(imaginary));
    let (to_x, to_x_tail) = L::as_mut_simd_f32s(to_real);
    let (to_y, to_y_tail) = L::as_mut_simd_f32s(to_imaginary);
    let mut sums = lanes.splat(0.0);
    for (((&x, &y), to_x), to_y) in x_body.iter().zip(y_body).zip(to_x).zip(to_y) {
        let squares = lanes.mul_add_f32s(x, x, lanes.mul_f32s(y, y));
        let size = lanes.sqrt_f32s(squares);
        sums = lanes.mul_add_f32s(size, squares, sums);
        let slope = lanes.mul_f32s(size, three);
        *to_x = lanes.mul_add_f32s(slope, x, *to_x);
        *to_y = lanes.mul_add_f32s(slope, y, *to_y);
    }
    let mut sum = lanes.reduce_sum_f32s(sums);
    for (((x, y), to_x), to_y) in x_tail.iter().zip(y_tail).zip(to_x_tail).zip(to_y_tail) {
        let squares = x * x + y * y;
        let size = squares.sqrt();
        sum += size * squares;
        *to_x += 3.0 * weight * size * x;
        *to_y += 3.0 * weight * size * y;
    }
    sum
}
