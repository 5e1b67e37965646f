/// A finite field whose size is a prime power. Its elements are numbered from 0, which is zero.
///
/// An element is a polynomial over the integers modulo a prime; the digits of its number are the
/// coefficients. Products are taken modulo an irreducible polynomial.
#[derive(Debug)]
pub struct Field {
    size: usize,
    prime: usize,
    degree: usize,
    /// Coefficients of the modulus without its leading 1, starting with the constant.
    modulus: &'static [usize],
}

/// Field sizes, their primes, and the moduli: x^2 + x + 1, x^3 + x + 1, x^2 + 1, x^4 + x + 1.
const FIELDS: [(usize, usize, &[usize]); 10] = [
    (2, 2, &[0]),
    (3, 3, &[0]),
    (4, 2, &[1, 1]),
    (5, 5, &[0]),
    (7, 7, &[0]),
    (8, 2, &[1, 1, 0]),
    (9, 3, &[1, 0]),
    (11, 11, &[0]),
    (13, 13, &[0]),
    (16, 2, &[1, 1, 0, 0]),
];

impl Field {
    /// The field with `size` elements, if `size` is a prime power up to 16.
    pub fn new(size: usize) -> Option<Self> {
        let &(size, prime, modulus) = FIELDS.iter().find(|&&(there, ..)| there == size)?;
        Some(Self { size, prime, degree: modulus.len(), modulus })
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The sum of two elements.
    pub fn add(&self, a: usize, b: usize) -> usize {
        let (a, b) = (self.digits(a), self.digits(b));
        self.number(a.iter().zip(&b).map(|(a, b)| (a + b) % self.prime))
    }

    /// The product of two elements.
    pub fn multiply(&self, a: usize, b: usize) -> usize {
        let (a, b) = (self.digits(a), self.digits(b));
        let mut product = vec![0; 2 * self.degree];
        for (i, a) in a.iter().enumerate() {
            for (j, b) in b.iter().enumerate() {
                product[i + j] = (product[i + j] + a * b) % self.prime;
            }
        }
        if self.degree == 1 {
            return product[0];
        }
        for high in (self.degree..product.len()).rev() {
            let lead = product[high];
            for (power, coefficient) in self.modulus.iter().enumerate() {
                let place = high - self.degree + power;
                let taken = lead * coefficient % self.prime;
                product[place] = (product[place] + self.prime - taken) % self.prime;
            }
        }
        self.number(product.into_iter().take(self.degree))
    }

    fn digits(&self, mut number: usize) -> Vec<usize> {
        let mut digits = Vec::with_capacity(self.degree);
        for _ in 0..self.degree {
            digits.push(number % self.prime);
            number /= self.prime;
        }
        digits
    }

    fn number(&self, digits: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator) -> usize {
        digits.rev().fold(0, |number, digit| number * self.prime + digit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_adds_and_multiplies_like_one() {
        for (size, ..) in FIELDS {
            let field = Field::new(size).unwrap();
            for a in 0..size {
                let sums: Vec<usize> = (0..size).map(|b| field.add(a, b)).collect();
                assert!((0..size).all(|b| sums.contains(&b)), "{size}: {a} + b is {sums:?}");
                assert_eq!(field.multiply(a, 1), a, "{size}");
                let products: Vec<usize> = (0..size).map(|b| field.multiply(a, b)).collect();
                let reached = (0..size).all(|b| products.contains(&b));
                assert_eq!(reached, a != 0, "{size}: {a} * b is {products:?}");
                for (b, &product) in products.iter().enumerate() {
                    let c = (a + b) % size;
                    let together = field.multiply(a, field.add(b, c));
                    assert_eq!(together, field.add(product, field.multiply(a, c)), "{size}");
                }
            }
        }
        assert!(Field::new(6).is_none() && Field::new(12).is_none());
    }
}
