//! Limits the rows that several batches may need together.

use std::sync::Arc;

use outercore_cache::ConstantPart;

/// The room for rows at one time: the rows of the constant part, and a number of other rows.
#[derive(Clone, Debug)]
pub struct RowRoom {
    constant: Arc<ConstantPart>,
    most_others: u64,
}

impl RowRoom {
    /// The room in a plan. Other rows may take half of the dynamic slots, so the next group can be
    /// fetched while this one is consumed. Without dynamic slots, every row is in the constant
    /// part.
    pub fn new(constant: Arc<ConstantPart>, dynamic_slots: u32) -> Self {
        let most_others = match dynamic_slots {
            0 => u64::MAX,
            slots => u64::from(slots) / 2,
        };
        Self { constant, most_others }
    }

    /// The room if no rows are fetched.
    pub fn unlimited() -> Self {
        Self { constant: Arc::default(), most_others: u64::MAX }
    }

    /// Whether there is room for `rows`, sorted and distinct.
    pub fn holds(&self, rows: &[u64]) -> bool {
        let most = self.most_others;
        if rows.len() as u64 <= most {
            return true;
        }
        let least = rows.len().saturating_sub(self.constant.len()) as u64;
        if least > most {
            return false;
        }
        let mut others = Vec::new();
        self.constant.split(rows, |_, _| (), &mut others);
        others.len() as u64 <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_constant_part_take_no_other_slots() {
        let room = RowRoom::new(Arc::new(ConstantPart::new((0..100).collect())), 7);
        assert!(room.holds(&[200, 201, 202]));
        assert!(!room.holds(&[200, 201, 202, 203]));
        assert!(room.holds(&[1, 2, 3, 4, 99, 200, 201, 202]));
        // As many rows as there are slots in total, but too many other rows.
        assert!(!room.holds(&[1, 2, 3, 4, 200, 201, 202, 203]));
        assert!(RowRoom::unlimited().holds(&[7; 1000]));
    }
}
