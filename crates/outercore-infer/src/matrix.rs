/// Row starts are a multiple of this number of floats apart: whole vectors on any processor.
pub(crate) const LANES: usize = 16;

/// Rows of floats, each padded with zeros to whole vectors.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    numbers: Vec<f32>,
    rows: usize,
    width: usize,
}

/// Rows to read, `stride` floats apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub numbers: &'a [f32],
    pub stride: usize,
    pub count: usize,
    pub width: usize,
}

impl Matrix {
    pub fn zeros(rows: usize, width: usize) -> Self {
        Self { numbers: vec![0.0; rows * width.next_multiple_of(LANES)], rows, width }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn stride(&self) -> usize {
        self.width.next_multiple_of(LANES)
    }

    /// The first `count` rows.
    pub fn first(&self, count: usize) -> Rows<'_> {
        let stride = self.stride();
        let numbers = &self.numbers[..count * stride];
        Rows { numbers, stride, count, width: self.width }
    }

    /// All rows with their padding, which must stay zero.
    pub fn padded_mut(&mut self) -> &mut [f32] {
        &mut self.numbers
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (stride, width) = (self.stride(), self.width);
        self.numbers.chunks_exact_mut(stride).map(move |row| &mut row[..width])
    }
}

impl<'a> Rows<'a> {
    /// Rows without gaps.
    pub fn dense(numbers: &'a [f32], count: usize, width: usize) -> Self {
        Self { numbers: &numbers[..count * width], stride: width, count, width }
    }

    #[inline(always)]
    pub fn row(self, row: usize) -> &'a [f32] {
        &self.numbers[row * self.stride..][..self.width]
    }

    pub fn take(self, count: usize) -> Self {
        Self { numbers: &self.numbers[..count * self.stride], count, ..self }
    }

    pub fn iter(self) -> impl Iterator<Item = &'a [f32]> {
        (0..self.count).map(move |row| self.row(row))
    }
}
