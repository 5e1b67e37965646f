//! Results of trial batches, for the memory plan.

/// Results of the trial batches.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Distinct nodes of each trial batch, ascending.
    pub batches: Vec<Vec<u64>>,
    /// Most nodes of a batch.
    pub nodes: u64,
    /// Most bytes of a batch's assembled feature rows.
    pub row_bytes: u64,
    /// Most edges of a batch.
    pub edges: u64,
    /// Most columns of a batch that were looked up.
    pub columns: u64,
    /// Most additional bytes that the choice of a batch used.
    pub scratch: u64,
    /// Rows by falling heat; empty without a constant part.
    pub hot: Vec<u64>,
}

impl Trial {
    /// Number of batches, at least one.
    pub fn count(&self) -> u32 {
        self.batches.len().max(1) as u32
    }

    /// Most distinct rows of a batch.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.len() as u64).max().unwrap_or(0)
    }
}

/// The trial's rows with their ranks in the order of heat.
pub struct Ranked {
    /// `(row, rank)`, sorted by row.
    by_row: Vec<(u64, u32)>,
}

impl Ranked {
    /// Ranks the rows of a trial.
    pub fn new(trial: &Trial) -> Self {
        let mut by_row: Vec<(u64, u32)> =
            (0u32..).zip(&trial.hot).map(|(rank, &row)| (row, rank)).collect();
        by_row.sort_unstable();
        Self { by_row }
    }

    /// Distinct rows of the first `group` trial batches, ascending, with their ranks; `u32::MAX`
    /// for a cold row.
    pub fn distinct(&self, trial: &Trial, group: u32) -> Vec<(u64, u32)> {
        let mut rows: Vec<u64> =
            trial.batches.iter().take(group as usize).flatten().copied().collect();
        rows.sort_unstable();
        rows.dedup();
        let mut hot = self.by_row.iter().peekable();
        rows.into_iter()
            .map(|row| {
                while hot.next_if(|&&(hot_row, _)| hot_row < row).is_some() {}
                let rank = hot
                    .peek()
                    .filter(|&&&(hot_row, _)| hot_row == row)
                    .map_or(u32::MAX, |&&(_, rank)| rank);
                (row, rank)
            })
            .collect()
    }
}
