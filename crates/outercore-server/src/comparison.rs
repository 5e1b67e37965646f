//! Compares int8 with float32 on a sample before int8 is served.

use std::sync::{Mutex, PoisonError};

use outercore_core::{Error, NodeId, Result, hint};
use outercore_infer::{Answer, Model};
use outercore_pipeline::{Ask, Features, RequestConfig, Requests};

use crate::asked::Asked;
use crate::compute::{Frontier, compute};
use crate::graph::View;
use crate::loss::Loss;
use crate::sample::{Sample, Source};

/// Seed of the sampler.
const SEED: u64 = 0;

/// A comparison in two steps. float32 answers first, with the features as imported, and is freed
/// before int8 is opened: both together would not fit the budget.
pub struct Comparison<'a> {
    source: Source<'a>,
    sample: Sample,
    /// The answers of float32.
    reference: Answer,
}

impl<'a> Comparison<'a> {
    /// Draws the sample and runs `model`, which computes in float32. Takes `model` by value to free
    /// it: a model with learnable rows can be as large as the budget allows.
    ///
    /// **Cost** opens the data set and computes up to 1,000 nodes, pairs or graphs.
    ///
    /// # Errors
    /// Errors of [`Requests::open`] and [`Requests::answer`].
    pub fn begin(source: Source<'a>, model: Model, wanted: &RequestConfig) -> Result<Self> {
        let sample = source.sample()?;
        let features = wanted.features.as_ref().map(|features| Features {
            key: features.key.clone(),
            precision: outercore_pipeline::Precision::Exact,
        });
        let wanted = RequestConfig { features, ..wanted.clone() };
        let mut requests = Requests::open(source.view.data_set(), &wanted)?;
        let reference = asked(&model, &mut requests, source.view, &sample)?;
        Ok(Self { source, sample, reference })
    }

    /// Runs the model in int8 and returns its loss.
    ///
    /// # Errors
    /// `Invalid` if the loss exceeds `most` points; errors of [`Requests::answer`].
    pub fn end(self, model: &Model, requests: &mut Requests, most: f64) -> Result<Loss> {
        let found = asked(model, requests, self.source.view, &self.sample)?;
        let loss = Loss::of(&self.reference, &found, &self.sample.truth, model.outputs());
        // NaN fails this comparison: if an answer is not finite, neither is the loss.
        if loss.points <= most {
            return Ok(loss);
        }
        Err(Error::invalid(format!(
            "precision int8: expected a loss of {most} at most, found {loss} beside float32"
        ))
        .hint(hint!("serve with " {precision = "float32"} ", or accept more by " {most_loss})))
    }
}

/// The answers of the model to all questions of the sample.
fn asked(
    model: &Model,
    requests: &mut Requests,
    view: &View<'_>,
    sample: &Sample,
) -> Result<Answer> {
    let mut all = Vec::new();
    let mut rest = &sample.questions[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest, requests.window()));
        rest = later;
        let nodes = now.iter().map(|(nodes, _)| nodes.clone()).collect();
        let found: Mutex<Vec<Vec<f32>>> = Mutex::new(vec![Vec::new(); now.len()]);
        let delta = view.delta();
        let ask = Ask { delta, seed: SEED, requests: nodes, is_known: &|_| false };
        requests.answer(ask, &|place, neighbourhood| {
            let computed = compute(model, neighbourhood, &Frontier::default(), &now[place].1)?;
            found.lock().unwrap_or_else(PoisonError::into_inner)[place] = computed.logits;
            Ok(())
        })?;
        all.extend(found.into_inner().unwrap_or_else(PoisonError::into_inner).concat());
    }
    Ok(model.read_out(&all))
}

/// How many questions fit into one window; at least one.
fn fitting(questions: &[(Vec<NodeId>, Asked)], window: u64) -> usize {
    let mut nodes = 0;
    let fits = questions.iter().take_while(|(asked, _)| {
        nodes += asked.len() as u64;
        nodes <= window
    });
    fits.count().max(1)
}
