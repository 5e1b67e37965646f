//! int8 beside float32 on a sample, before int8 is served.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use outercore_core::{Error, NodeId, Result};
use outercore_infer::{Answer, Model, Precision};
use outercore_pipeline::{Features, RequestConfig, Requests};

use crate::graph::View;
use crate::loss::Loss;
use crate::predictor::logits;
use crate::protocol::Asked;
use crate::sample::{Sample, Source};

/// Seed of the sampler.
const SEED: u64 = 0;

/// Opens the model in `directory` as int8 and what reads for it, and measures what it loses.
///
/// `reference` is the same model as float32. It is asked first, with the features as they were
/// imported, and let go before the other is opened: both together would not fit the budget.
///
/// **Cost** opens the data set twice and computes up to 1,000 nodes, pairs or graphs twice.
///
/// # Errors
/// `Invalid`: it loses more than `most` points. Those of [`Model::open`], [`Requests::open`] and
/// [`Requests::answer`].
pub fn compared(
    reference: Model,
    directory: &Path,
    source: &Source<'_>,
    wanted: &RequestConfig,
    most: f64,
) -> Result<(Model, Requests, Loss)> {
    let (sample, view) = (source.sample()?, source.view);
    let mut requests = Requests::open(view.data_set(), &exact(wanted))?;
    let expected = asked(&reference, &mut requests, view, &sample)?;
    drop((reference, requests));
    let model = Model::open(directory, Precision::Int8)?;
    let mut requests = Requests::open(view.data_set(), wanted)?;
    let found = asked(&model, &mut requests, view, &sample)?;
    let loss = Loss::of(&expected, &found, &sample.truth, model.outputs());
    // Where an answer is not finite neither is the loss.
    if loss.points <= most {
        return Ok((model, requests, loss));
    }
    Err(Error::invalid(format!(
        "precision int8: expected a loss of {most} at most, found {loss} beside float32"
    ))
    .hint("serve with `--precision float32`, or accept more by `--most-loss`"))
}

/// The same with the features as they were imported.
fn exact(wanted: &RequestConfig) -> RequestConfig {
    let features = wanted.features.as_ref().map(|features| Features {
        key: features.key.clone(),
        precision: outercore_pipeline::Precision::Exact,
    });
    RequestConfig { features, ..wanted.clone() }
}

/// What the model answers to all questions of the sample.
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
        requests.answer(view.delta(), SEED, nodes, &|place, neighbourhood| {
            let (logits, _) = logits(model, neighbourhood, &now[place].1)?;
            found.lock().unwrap_or_else(PoisonError::into_inner)[place] = logits;
            Ok(())
        })?;
        all.extend(found.into_inner().unwrap_or_else(PoisonError::into_inner).concat());
    }
    Ok(model.read_out(&all))
}

/// How many questions may be answered together; the first one always.
fn fitting(questions: &[(Vec<NodeId>, Asked)], window: u64) -> usize {
    let mut nodes = 0;
    let fits = questions.iter().take_while(|(asked, _)| {
        nodes += asked.len() as u64;
        nodes <= window
    });
    fits.count().max(1)
}
