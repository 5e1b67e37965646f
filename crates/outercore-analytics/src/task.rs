//! A piece of the grid in a pass.

use outercore_grid::Side;

/// A piece and a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task(u32);

impl Task {
    /// A piece by number, seen from a side.
    pub fn new(piece: usize, side: Side) -> Self {
        Self(2 * piece as u32 + u32::from(side == Side::ToColumns))
    }

    /// The number of the piece.
    pub fn piece(self) -> usize {
        self.0 as usize / 2
    }

    /// Which side its values come from.
    pub fn side(self) -> Side {
        if self.0 & 1 == 0 { Side::ToRows } else { Side::ToColumns }
    }
}
