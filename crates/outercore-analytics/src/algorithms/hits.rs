//! Hubs and authorities.

use outercore_core::{Bytes, Error, Result};
use serde::{Deserialize, Serialize};

use super::pagerank::Spread;
use crate::algorithm::{GraphAlgorithm, Scale};
use crate::output::{Isolated, Need, Raw};
use crate::partitions::all;
use crate::program::{Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// Which of the two scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Score {
    /// How well a node points at authorities.
    Hubs,
    /// How well hubs point at a node.
    #[default]
    Authorities,
}

/// Options of [`hits`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hits {
    /// Most iterations, at least 1.
    pub max_iterations: u32,
    /// Stop when the sum of all changes of scores is at most this; 0: run all iterations.
    pub tolerance: f64,
    /// Edge array of weights.
    pub weights: Option<String>,
    /// The score to return.
    pub score: Score,
}

impl Default for Hits {
    fn default() -> Self {
        Self { max_iterations: 100, tolerance: 1e-8, weights: None, score: Score::default() }
    }
}

impl GraphAlgorithm for Hits {
    fn validate(&self, _: u64) -> Result<()> {
        let Self { max_iterations, tolerance, .. } = *self;
        if tolerance.is_nan() || tolerance < 0.0 {
            return Err(Error::invalid(format!("hits: tolerance {tolerance}, expected 0 or more")));
        }
        if max_iterations == 0 {
            return Err(Error::invalid("hits: max_iterations 0, expected at least 1"));
        }
        Ok(())
    }

    fn weights(&self) -> Option<&str> {
        self.weights.as_deref()
    }

    fn need(&self, scale: &Scale<'_>) -> Need {
        Need {
            state_per_node: 24,
            output: Bytes(8 * scale.shape.nodes),
            passes: (self.tolerance == 0.0).then_some(2 * u64::from(self.max_iterations)),
            ..Need::default()
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        hits(run, self).map(AnyRaw::from)
    }
}

/// Hubs and authorities: a node is a better hub if it points at better authorities, and a better
/// authority if better hubs point at it. The scores of each kind sum to 1.
///
/// Starts with equal hubs; an iteration sums over arcs from hubs to authorities and back. Ends when
/// the hubs change by at most `tolerance` (sum of the absolute changes). If two parts of a graph
/// are equally strong, the scores are not unique, and the result depends on this start. Nodes
/// without arcs have the score 0. Facts: `iterations`, `change`.
///
/// # Cost
/// Two passes per iteration. State: 24 bytes per connected node.
///
/// # Errors
/// `Invalid`: an option out of range; the scores have not converged after `max_iterations`. Errors
/// of the passes.
///
/// # Source
/// Kleinberg, "Authoritative sources in a hyperlinked environment" (1999).
pub fn hits<R: Passes>(run: &mut R, options: &Hits) -> Result<Raw<f64>> {
    options.validate(run.shape().nodes)?;
    let shape = *run.shape();
    let everywhere = all(shape.partitions());
    let zeros = || -> Vec<Vec<f64>> {
        (0..shape.partitions()).map(|part| vec![0.0; shape.partition_len(part)]).collect()
    };
    let (mut hubs, mut authorities, mut next) = (zeros(), zeros(), zeros());
    let start = 1.0 / shape.connected.max(1) as f64;
    hubs.iter_mut().for_each(|hubs| hubs.fill(start));
    let spread = Spread { weighted: options.weights.is_some() };
    let select = |flow| Selection {
        sources: &everywhere,
        targets: &everywhere,
        flow,
        weights: options.weights.is_some(),
    };
    let (mut iterations, mut change) = (0, f64::INFINITY);
    while iterations < options.max_iterations {
        run.progress("iteration", u64::from(iterations), u64::from(options.max_iterations))?;
        authorities.iter_mut().for_each(|sums| sums.fill(0.0));
        run.expect(&select(Flow::Against));
        run.pass(&spread, &hubs, &mut authorities, &select(Flow::Along))?;
        share_out(&mut authorities);
        next.iter_mut().for_each(|sums| sums.fill(0.0));
        run.pass(&spread, &authorities, &mut next, &select(Flow::Against))?;
        share_out(&mut next);
        let both = hubs.iter().flatten().zip(next.iter().flatten());
        change = both.map(|(before, after)| (after - before).abs()).sum();
        std::mem::swap(&mut hubs, &mut next);
        iterations += 1;
        if options.tolerance > 0.0 && change <= options.tolerance {
            break;
        }
    }
    if options.tolerance > 0.0 && change > options.tolerance {
        return Err(Error::invalid(format!(
            "hits: change {change:.1e} after {iterations} iterations, wanted {:e}",
            options.tolerance
        ))
        .hint("raise max_iterations, or set tolerance=0 to take what they give"));
    }
    let mut facts = serde_json::Map::new();
    facts.insert("iterations".into(), iterations.into());
    facts.insert("change".into(), change.into());
    let by_partition = match options.score {
        Score::Hubs => hubs,
        Score::Authorities => authorities,
    };
    Ok(Raw { by_partition: Parts::Here(by_partition), isolated: Isolated::Same(0.0), facts })
}

/// Divides by the sum, unless it is 0.
fn share_out(scores: &mut [Vec<f64>]) {
    let sum: f64 = scores.iter().flatten().sum();
    if sum > 0.0 {
        scores.iter_mut().flatten().for_each(|score| *score /= sum);
    }
}
