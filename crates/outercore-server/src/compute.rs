//! Runs the model on a sampled neighbourhood: node states, logits, and the outputs for the client.

use std::ops::Range;
use std::sync::Arc;

use outercore_core::{Error, NodeId, Result};
use outercore_infer::{Answer, Forward, Model, Subgraph};
use outercore_pipeline::Neighbourhood;

use crate::asked::Asked;
use crate::output::Output;
use crate::states::{NewState, States};

/// Output with the predicted classes, labels or values.
pub const PREDICTION: &str = "prediction";
/// Output for classes, labels and edges.
pub const PROBABILITY: &str = "probability";
/// Output for edges.
pub const SCORE: &str = "score";

/// Outputs of a model for one request.
#[derive(Debug)]
pub struct Prediction {
    /// In the order of the model's description.
    pub outputs: Vec<Output>,
    /// LSN of the last update that the outputs include.
    pub lsn: u64,
    /// Version of the model.
    pub version: Arc<str>,
}

/// The nodes whose in-edges the last hop samples, with their cached states.
#[derive(Default)]
pub struct Frontier<'a> {
    /// Places of the nodes; empty if no states are cached.
    places: Range<usize>,
    /// The cached first-layer states.
    pub known: Vec<Option<&'a [f32]>>,
}

impl<'a> Frontier<'a> {
    /// The frontier of a neighbourhood; `known` looks up the cached states.
    pub fn of(
        found: &Neighbourhood<'_>,
        states: &States,
        known: impl Fn(NodeId) -> Option<&'a [f32]>,
    ) -> Self {
        let hops = found.sampled.edges_per_hop.len();
        if states.is_off() || hops < 2 {
            return Self::default();
        }
        let before: u64 = found.sampled.nodes_per_hop[..hops - 1].iter().sum();
        let count = found.sampled.nodes_per_hop[hops - 1] as usize;
        let places = before as usize..before as usize + count;
        let nodes = found.sampled.nodes.iter().skip(places.start).take(count);
        Self { places, known: nodes.map(known).collect() }
    }

    /// The newly computed states in `first` that are worth caching.
    pub fn computed(
        &self,
        found: &Neighbourhood<'_>,
        first: &[f32],
        states: &States,
    ) -> Vec<NewState> {
        if self.known.is_empty() {
            return Vec::new();
        }
        let width = first.len() / self.known.len();
        let nodes: Vec<NodeId> = found.sampled.nodes.iter().collect();
        let mut edges = found.sampled.starts().skip(self.places.start);
        let mut start = edges.next().unwrap_or_default() as usize;
        let mut new = Vec::new();
        let rows = self.places.clone().zip(first.chunks_exact(width)).zip(&self.known);
        for (((place, state), known), end) in rows.zip(edges) {
            let own = &found.sampled.sources[start..end as usize];
            start = end as usize;
            if known.is_none() && states.wants(own.len()) {
                let sources = own.iter().map(|&source| nodes[source as usize]).collect();
                new.push(NewState { node: nodes[place], sources, state: state.to_vec() });
            }
        }
        new
    }
}

/// Result of the model for a neighbourhood.
pub struct Computed {
    /// Logits of all rows, row-major.
    pub logits: Vec<f32>,
    /// Number of nodes, pairs or graphs.
    rows: usize,
    /// First-layer states of the frontier's nodes.
    first: Vec<f32>,
}

/// Computes the logits, given the known states of `frontier`.
///
/// # Errors
/// As [`Model::forward`].
pub fn compute(
    model: &Model,
    found: &Neighbourhood<'_>,
    frontier: &Frontier<'_>,
    asked: &Asked,
) -> Result<Computed> {
    let sampled = found.sampled;
    let nodes: Vec<u64> = sampled.nodes.iter().collect();
    let subgraph = Subgraph {
        nodes: &nodes,
        nodes_per_hop: &sampled.nodes_per_hop,
        edges_per_hop: &sampled.edges_per_hop,
        sources: &sampled.sources,
        picked: &sampled.picked,
        degrees: found.degrees.as_deref(),
    };
    let Forward { states, first } = model.forward_from(&subgraph, found.x, &frontier.known)?;
    // The embedding phase ends here; the prediction phase begins.
    let (logits, rows) = match asked {
        Asked::Nodes => (states, sampled.num_seeds),
        Asked::Edges(pairs) => (model.score(&states, pairs)?, pairs.len()),
        Asked::Graphs { sizes, .. } => (model.of_graphs(&states, sizes)?, sizes.len()),
    };
    Ok(Computed { logits, rows, first })
}

/// Computes the outputs for the client, and the first-layer states of the frontier's nodes.
///
/// # Errors
/// As [`compute`]; `Internal` if a number is not finite.
pub fn predict(
    model: &Model,
    found: &Neighbourhood<'_>,
    frontier: &Frontier<'_>,
    asked: &Asked,
) -> Result<(Vec<Output>, Vec<f32>)> {
    let Computed { logits, rows, first } = compute(model, found, frontier, asked)?;
    let answer = model.read_out(&logits);
    let numbers = match &answer {
        Answer::Classes { probabilities, .. } | Answer::Labels { probabilities, .. } => {
            probabilities
        }
        Answer::Links { scores, .. } => scores,
        Answer::Values { values } => values,
    };
    if numbers.iter().any(|number| !number.is_finite()) {
        // JSON has no NaN.
        return Err(Error::internal("the model's outputs for these nodes are not finite")
            .hint("look for NaN in the features of the nodes and of their neighbours"));
    }
    let outputs = match answer {
        Answer::Classes { classes, probabilities } => vec![
            Output::whole(PREDICTION, vec![rows], classes.into_iter().map(i64::from).collect()),
            Output::single(PROBABILITY, vec![rows, model.outputs()], probabilities),
        ],
        Answer::Labels { labels, probabilities } => vec![
            Output::whole(
                PREDICTION,
                vec![rows, model.outputs()],
                labels.into_iter().map(i64::from).collect(),
            ),
            Output::single(PROBABILITY, vec![rows, model.outputs()], probabilities),
        ],
        Answer::Links { scores, probabilities } => vec![
            Output::single(SCORE, vec![rows], scores),
            Output::single(PROBABILITY, vec![rows], probabilities),
        ],
        Answer::Values { values } => {
            vec![Output::single(PREDICTION, vec![rows, model.outputs()], values)]
        }
    };
    Ok((outputs, first))
}
