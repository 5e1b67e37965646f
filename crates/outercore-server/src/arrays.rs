//! The arrays that requests read, opened within the budget.

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_infer::Model;
use outercore_pipeline::{Features, Precision, RequestConfig, Requests};
use outercore_store::dataset::DataSet;

use crate::config::ServerConfig;
use crate::graph::View;
use crate::states::States;

/// Shares of the budget to try for cached states: one eighth, one sixteenth, one thirty-second, and
/// none.
const STATE_SHARES: [Option<u64>; 4] = [Some(8), Some(16), Some(32), None];

/// The opened arrays, and the division of the budget between them.
pub struct Opened {
    /// Reads neighbourhoods.
    pub requests: Requests,
    wanted: RequestConfig,
    states: States,
}

impl Opened {
    /// Opens the arrays and reserves a part of the budget for cached states.
    ///
    /// The reserve shrinks if it would push the features out of memory.
    ///
    /// # Errors
    /// As [`Requests::open`], if the budget is too small even without cached states.
    pub fn open(
        dataset: &DataSet,
        wanted: &RequestConfig,
        model: &Model,
        config: &ServerConfig,
    ) -> Result<Self> {
        let Some(width) = model.first_width() else {
            return Self::with(dataset, wanted, 0, Bytes(0));
        };
        if let Some(states) = config.states {
            return Self::with(dataset, wanted, width, states);
        }
        let may_fit = match &wanted.features {
            Some(Features { key, precision }) => {
                let array = dataset.array(key)?;
                let row = match precision {
                    Precision::Exact => array.row_bytes(),
                    Precision::Int8 => array.row_elements(),
                };
                row * dataset.num_nodes() <= config.memory.0
            }
            None => false,
        };
        let mut room = None;
        for share in STATE_SHARES {
            let states = share.map_or(Bytes(0), |share| Bytes(config.memory.0 / share));
            match Self::with(dataset, wanted, width, states) {
                Ok(opened) if !may_fit || opened.requests.plan().holds_all_rows() => {
                    return Ok(opened);
                }
                // The opened arrays are freed first: two sets of them would not fit the budget.
                Ok(_) => room = room.or(Some(states)),
                Err(error) if error.kind() == ErrorKind::Budget => {}
                Err(error) => return Err(error),
            }
        }
        Self::with(dataset, wanted, width, room.unwrap_or_default())
    }

    fn with(
        dataset: &DataSet,
        wanted: &RequestConfig,
        width: usize,
        states: Bytes,
    ) -> Result<Self> {
        let reserved = Bytes(wanted.reserved.0 + states.0);
        let wanted = RequestConfig { reserved, ..wanted.clone() };
        let requests = Requests::open(dataset, &wanted)?;
        let features = wanted.features.as_ref().map(|features| features.key.clone());
        let states = States::new(width, states, requests.row_memory(), features);
        Ok(Self { requests, wanted, states })
    }

    /// Splits this into the reader, which follows the graph, and the states.
    pub fn into_parts(self) -> (OpenArrays, States) {
        let Self { requests, wanted, states } = self;
        (OpenArrays { requests: Some(requests), generation: 0, wanted }, states)
    }
}

/// The reader of neighbourhoods, opened on the current arrays of the graph.
pub struct OpenArrays {
    /// `None` if the last attempt to open the arrays failed.
    requests: Option<Requests>,
    /// Generation of the arrays.
    generation: u64,
    wanted: RequestConfig,
}

impl OpenArrays {
    /// The reader for the arrays of `view`. After one exchange of the arrays, the open reader
    /// follows it. After more, the reader is freed before a new one is opened, so both are never in
    /// memory together.
    ///
    /// # Errors
    /// As [`Requests::open`] and [`Requests::follow`].
    pub fn of(&mut self, view: &View<'_>) -> Result<&mut Requests> {
        let generation = view.generation();
        if self.generation != generation
            && let Some(before) = self.requests.take()
            && let Some(replaced) = view.replaced()
            && self.generation + 1 == generation
        {
            self.requests = before.follow(view.data_set(), replaced)?;
        }
        if self.requests.is_none() {
            self.requests = Some(Requests::open(view.data_set(), &self.wanted)?);
        }
        self.generation = generation;
        self.requests.as_mut().ok_or_else(|| Error::internal("a reader that was just opened"))
    }

    /// Key of the features that the model reads.
    pub fn features(&self) -> Option<&str> {
        self.wanted.features.as_ref().map(|features| features.key.as_str())
    }

    /// Most nodes of a request.
    pub fn most_nodes(&self) -> u64 {
        self.wanted.most_nodes
    }

    /// Most nodes in a window of requests that are answered together.
    pub fn window(&self) -> u64 {
        self.requests.as_ref().map_or(1, Requests::window)
    }
}
