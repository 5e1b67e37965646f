//! A piece of the grid with a direction, as the unit of work of a pass.

use outercore_grid::Side;

/// A piece and a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task(u32);

impl Task {
    /// The task for a piece number and a direction.
    pub fn new(piece: usize, side: Side) -> Self {
        Self(2 * piece as u32 + u32::from(side == Side::ToColumns))
    }

    /// The number of the piece.
    pub fn piece(self) -> usize {
        self.0 as usize / 2
    }

    /// The direction of flow.
    pub fn side(self) -> Side {
        if self.0 & 1 == 0 { Side::ToRows } else { Side::ToColumns }
    }
}
