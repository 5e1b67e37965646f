//! Which rows several batches may need together.

use std::sync::Arc;

use outercore_cache::ConstantPart;

/// What the slots hold at once: the rows of the constant part, and some others.
#[derive(Clone, Debug)]
pub struct RowRoom {
    constant: Arc<ConstantPart>,
    most_others: u64,
}

impl RowRoom {
    /// The room that a plan leaves. Others take half of the dynamic slots, so that the next group can
    /// be fetched while this one is consumed. Without dynamic slots there are no others.
    pub fn new(constant: Arc<ConstantPart>, dynamic_slots: u32) -> Self {
        let most_others = match dynamic_slots {
            0 => u64::MAX,
            slots => u64::from(slots) / 2,
        };
        Self { constant, most_others }
    }

    /// Where no rows are fetched.
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
        // As many as all slots have, and yet too many others.
        assert!(!room.holds(&[1, 2, 3, 4, 200, 201, 202, 203]));
        assert!(RowRoom::unlimited().holds(&[7; 1000]));
    }
}
