//! PageRank by power iteration.

use outercore_core::{Bytes, Error, Result};
use outercore_grid::{Arcs, Side};
use serde::{Deserialize, Serialize};

use super::beyond;
use crate::algorithm::{GraphAlgorithm, Leaves, Scale};
use crate::checkpoint::FloatBits;
use crate::output::{Isolated, Need, Raw, ResultTable, SpillNeed};
use crate::partitions::{all, degrees_here};
use crate::program::{Degree, EdgeProgram, Flow, Passes, Selection, fetch};
use crate::result::AnyRaw;
use crate::state::{Closed, PerNode, Step, Stored, Table, Tables, Traffic};
pub use crate::teleport::Teleport;
use crate::teleport::isolated_shares;

/// Options of [`pagerank`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pagerank {
    /// Share of a rank that follows the arcs, in `0.0..1.0`.
    pub damping: f64,
    /// Most iterations, at least 1.
    pub max_iterations: u32,
    /// Stop when the sum of all changes of ranks is at most this; 0: run all iterations.
    pub tolerance: f64,
    /// Edge array of weights: ranks flow in proportion to them.
    pub weights: Option<String>,
    /// Whether ranks flow from targets to sources.
    pub reverse: bool,
}

impl Default for Pagerank {
    fn default() -> Self {
        Self { damping: 0.85, max_iterations: 100, tolerance: 1e-6, weights: None, reverse: false }
    }
}

impl GraphAlgorithm for Pagerank {
    fn validate(&self, _: u64) -> Result<()> {
        let Self { damping, max_iterations, tolerance, .. } = *self;
        if !(0.0..1.0).contains(&damping) {
            return Err(Error::invalid(format!(
                "pagerank: damping {damping}, expected 0 <= damping < 1"
            )));
        }
        if tolerance.is_nan() || tolerance < 0.0 {
            return Err(Error::invalid(format!(
                "pagerank: tolerance {tolerance}, expected 0 or more"
            )));
        }
        if max_iterations == 0 {
            return Err(Error::invalid("pagerank: max_iterations 0, expected at least 1"));
        }
        Ok(())
    }

    fn weights(&self) -> Option<&str> {
        self.weights.as_deref()
    }

    fn leaves_checkpoints(&self) -> Leaves {
        Leaves::Always
    }

    fn need(&self, &Scale { shape, personalized, .. }: &Scale<'_>) -> Need {
        let weighted = self.weights.is_some();
        let of_teleport = if personalized > 0 { 8 } else { 0 };
        Need {
            state_per_node: 20 + of_teleport + if weighted { 4 } else { 0 },
            fixed: Bytes(16 * personalized),
            output: Bytes(8 * shape.nodes),
            working: None,
            passes: (self.tolerance == 0.0)
                .then_some(u64::from(self.max_iterations) + u64::from(weighted)),
            spill: Some(SpillNeed {
                shown: PerNode::new(8, 0),
                fixed: PerNode::new(if weighted { 8 } else { 4 } + of_teleport, 0),
                own: PerNode::new(8, 0),
                target: PerNode::new(8, 0),
                traffic: TRAFFIC,
                writes_own: self.tolerance > 0.0,
                any_order: false,
                flow: if self.reverse { Flow::Against } else { Flow::Along },
                result: ResultTable::Own,
            }),
        }
    }

    fn run<R: Passes>(&self, run: &mut R, teleport: &Teleport) -> Result<AnyRaw> {
        pagerank(run, self, teleport).map(AnyRaw::from)
    }
}

/// Sums the values that arrive over the arcs; sums of rows stay in a register.
pub(super) struct Spread {
    pub(super) weighted: bool,
}

impl EdgeProgram for Spread {
    type Source = Vec<f64>;
    type Target = Vec<f64>;

    fn apply(&self, arcs: &Arcs<'_>, share: &Vec<f64>, sum: &mut Vec<f64>) {
        let (share, sum) = (&share[..], &mut sum[..]);
        let by_column = match arcs.side {
            Side::ToRows => share,
            Side::ToColumns => sum,
        };
        fetch(arcs, by_column);
        match (arcs.side, self.weighted) {
            (Side::ToRows, false) => arcs.each_row(|row, columns| {
                let mut total = 0.0;
                for &column in columns {
                    total += share[usize::from(column)];
                }
                sum[row] += total;
            }),
            (Side::ToColumns, false) => arcs.each_row(|row, columns| {
                let value = share[row];
                for &column in columns {
                    sum[usize::from(column)] += value;
                }
            }),
            (Side::ToRows, true) => {
                for (row, columns, weights) in arcs.rows() {
                    let mut total = 0.0;
                    for (&column, &weight) in columns.iter().zip(weights) {
                        total += share[usize::from(column)] * weight;
                    }
                    sum[row] += total;
                }
            }
            (Side::ToColumns, true) => {
                for (row, columns, weights) in arcs.rows() {
                    let value = share[row];
                    for (&column, &weight) in columns.iter().zip(weights) {
                        sum[usize::from(column)] += value * weight;
                    }
                }
            }
        }
    }
}

/// Sums the weights of the arcs and ignores the values.
struct Strength;

impl EdgeProgram for Strength {
    type Source = ();
    type Target = Vec<f64>;

    fn apply(&self, arcs: &Arcs<'_>, _: &(), strength: &mut Vec<f64>) {
        arcs.for_each(|_, to, weight| strength[to] += weight);
    }
}

/// The divisor of a node's rank: its degree, or the sum of its weights.
enum Divisor {
    Degrees(Vec<u32>),
    Strengths(Vec<f64>),
}

impl Divisor {
    fn of(&self, local: usize) -> f64 {
        match self {
            Self::Degrees(degrees) => f64::from(degrees[local]),
            Self::Strengths(strengths) => strengths[local],
        }
    }
}

impl Default for Divisor {
    fn default() -> Self {
        Self::Degrees(Vec::new())
    }
}

impl Stored for Divisor {
    fn like(&self, len: usize) -> Self {
        match self {
            Self::Degrees(degrees) => Self::Degrees(degrees.like(len)),
            Self::Strengths(strengths) => Self::Strengths(strengths.like(len)),
        }
    }

    fn columns(&self) -> Vec<&[u8]> {
        match self {
            Self::Degrees(degrees) => degrees.columns(),
            Self::Strengths(strengths) => strengths.columns(),
        }
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        match self {
            Self::Degrees(degrees) => degrees.columns_mut(),
            Self::Strengths(strengths) => strengths.columns_mut(),
        }
    }
}

/// An iteration: shares flow, sums become ranks, and ranks become shares.
struct Iteration<'a> {
    spread: Spread,
    damping: f64,
    teleport: &'a Teleport,
    scalar: f64,
    /// Whether it is certainly the last iteration, and whether it may be the last.
    is_last: bool,
    may_be_last: bool,
}

impl Step for Iteration<'_> {
    type Program = Spread;
    /// For a node with outgoing arcs, the value that each arc carries. For a node without, its
    /// rank, which no arc reads.
    type Shown = Vec<f64>;
    /// The divisors, and the teleport vector unless it is uniform.
    type Fixed = (Divisor, Option<Vec<f64>>);
    /// The ranks.
    type Own = Vec<f64>;
    type Target = Vec<f64>;
    /// The change of the ranks, and the rank at nodes without outgoing arcs.
    type Report = (f64, f64);
    const TRAFFIC: Traffic = TRAFFIC;
    const ANY_ORDER: bool = false;
    const QUIET: bool = false;

    fn program(&self) -> &Spread {
        &self.spread
    }

    fn open(&self, _: usize, _: &Vec<f64>, _: &Self::Fixed, ranks: &mut Vec<f64>) -> Vec<f64> {
        let mut sums = std::mem::take(ranks);
        sums.fill(0.0);
        sums
    }

    fn close(
        &self,
        _: usize,
        mut sums: Vec<f64>,
        shares: &mut Vec<f64>,
        (divisors, given): &Self::Fixed,
        ranks: &mut Vec<f64>,
    ) -> Closed<(f64, f64)> {
        let (mut change, mut lost) = (0.0, 0.0);
        let uniform = if let Teleport::Uniform(share) = self.teleport { *share } else { 0.0 };
        for (local, (share, sum)) in shares.iter_mut().zip(sums.iter_mut()).enumerate() {
            let teleport = given.as_ref().map_or(uniform, |given| given[local]);
            let rank = teleport * self.scalar + self.damping * *sum;
            *sum = rank;
            let divisor = divisors.of(local);
            if divisor > 0.0 {
                change += (rank - *share * divisor).abs();
                *share = rank / divisor;
            } else {
                change += (rank - *share).abs();
                *share = rank;
                lost += rank;
            }
        }
        *ranks = sums;
        Closed { report: (change, lost), shown: !self.is_last, own: self.may_be_last }
    }
}

const TRAFFIC: Traffic = Traffic {
    open_shown: false,
    open_fixed: false,
    open_own: false,
    close_shown: true,
    close_fixed: true,
};

/// State of the loop between two iterations.
#[derive(Serialize, Deserialize)]
struct At {
    iterations: u32,
    dangling: FloatBits,
    scalar: FloatBits,
    change: FloatBits,
}

/// The ranks of a random walk. It follows an arc with probability `damping`, and otherwise restarts
/// according to `teleport`. It also restarts at nodes without outgoing arcs. The ranks sum to 1.
///
/// Starts with equal ranks and iterates until the ranks change by at most `tolerance` (sum of the
/// absolute changes). Sums are computed in file order, so the result has the same bits for every
/// budget and number of threads.
///
/// Facts: `iterations`, `change`.
///
/// **Cost**: one pass per iteration, and one more with weights.
///
/// # Errors
/// `Invalid`: an option out of range; the ranks have not converged after `max_iterations`; the sum
/// of a node's weights overflows. Errors of the passes.
///
/// **Source**: Page, Brin, Motwani, Winograd, "The PageRank citation ranking" (1999); dangling
/// nodes as in networkx.
pub fn pagerank<R: Passes>(
    run: &mut R,
    options: &Pagerank,
    teleport: &Teleport,
) -> Result<Raw<f64>> {
    options.validate(run.shape().nodes)?;
    let (nodes, connected) = (run.shape().nodes, run.shape().connected);
    let weighted = options.weights.is_some();
    let everywhere = all(run.shape().partitions());
    let flow = if options.reverse { Flow::Against } else { Flow::Along };
    let select = Selection { sources: &everywhere, targets: &everywhere, flow, weights: weighted };
    let fixed = fixed(run, options, teleport)?;
    let isolated = isolated_shares(run, teleport)?;

    let start = 1.0 / nodes.max(1) as f64;
    let mut lost = Vec::with_capacity(everywhere.len());
    let (mut tables, at) = Tables::<Iteration<'_>>::begin(
        run,
        fixed,
        |run, part, (divisors, _)| {
            let mut shares = vec![start; run.shape().partition_len(part)];
            let mut lost_here = 0.0;
            for (local, share) in shares.iter_mut().enumerate() {
                let divisor = divisors.of(local);
                if divisor > 0.0 { *share /= divisor } else { lost_here += *share }
            }
            lost.push(lost_here);
            Ok(shares)
        },
        |_, _| Ok(Vec::new()),
    )?;
    let mut at = at
        .unwrap_or_else(|| start_of(lost.iter().sum::<f64>() + start * (nodes - connected) as f64));
    if at.iterations >= options.max_iterations {
        return Err(beyond("pagerank", u64::from(at.iterations), options.max_iterations));
    }
    while at.iterations < options.max_iterations {
        tables.checkpoint(run, &at)?;
        run.progress("iteration", u64::from(at.iterations), u64::from(options.max_iterations))?;
        // Each iteration shrinks the change at least by the factor `damping`, so this iteration may
        // be known to be the last.
        let may_rest =
            options.tolerance > 0.0 && options.damping * at.change.value() <= options.tolerance;
        let is_last = at.iterations + 1 == options.max_iterations;
        let scalar = (1.0 - options.damping) + options.damping * at.dangling.value();
        let step = Iteration {
            spread: Spread { weighted },
            damping: options.damping,
            teleport,
            scalar,
            is_last,
            may_be_last: is_last || options.tolerance > 0.0,
        };
        let parts = tables.sweep(run, &step, &select, !is_last && !may_rest)?;
        let reports = || parts.iter().flatten();
        let before = std::mem::replace(&mut at.scalar, scalar.into()).value();
        let change = reports().map(|part| part.0).sum::<f64>()
            + if before.is_nan() {
                isolated.first_change(start, scalar)
            } else {
                isolated.total * (scalar - before).abs()
            };
        at.change = change.into();
        let dangling = reports().map(|part| part.1).sum::<f64>() + isolated.total * scalar;
        at.dangling = dangling.into();
        at.iterations += 1;
        if options.tolerance > 0.0 && change <= options.tolerance {
            break;
        }
    }
    let (iterations, change) = (at.iterations, at.change.value());
    if options.tolerance > 0.0 && change > options.tolerance {
        return Err(cut_off(run, &at, options.tolerance));
    }
    let mut facts = serde_json::Map::new();
    facts.insert("iterations".into(), iterations.into());
    facts.insert("change".into(), change.into());
    let isolated = Isolated::Teleport(at.scalar.value());
    Ok(Raw { by_partition: tables.own.into_parts(|ranks| ranks), isolated, facts })
}

/// The error if ranks still change by more than `tolerance`.
fn cut_off<R: Passes>(run: &mut R, at: &At, tolerance: f64) -> Error {
    let (iterations, change) = (at.iterations, at.change.value());
    Error::invalid(format!(
        "pagerank: change {change:.1e} after {iterations} iterations, wanted {tolerance:e}"
    ))
    .hint(match run.checkpoints().is_some_and(|checkpoints| checkpoints.is_there()) {
        true => "resume the run with a higher max_iterations",
        false => "raise max_iterations, or set tolerance=0 to take what they give",
    })
}

/// State of the loop before the first iteration; `lost` is the rank of nodes without arcs.
fn start_of(lost: f64) -> At {
    At {
        iterations: 0,
        dangling: lost.into(),
        scalar: f64::NAN.into(),
        change: f64::INFINITY.into(),
    }
}

/// The divisors of ranks, and the teleport vector in the grid's numbering.
fn fixed<R: Passes>(
    run: &mut R,
    options: &Pagerank,
    teleport: &Teleport,
) -> Result<Table<(Divisor, Option<Vec<f64>>)>> {
    let given = |run: &mut R, part: usize| -> Result<Option<Vec<f64>>> {
        if matches!(teleport, Teleport::Uniform(_)) {
            return Ok(None);
        }
        let ids = run.nodes(part)?;
        Ok(Some(ids.iter().map(|&id| teleport.of(u64::from(id))).collect()))
    };
    let mut divisors = divisors(run, options)?;
    // One array after the other, because a run reads the array for many partitions at once.
    let mut given = Table::build(run, 1, given)?;
    Table::build(run, 1, |_, part| Ok((divisors.take(part)?, given.take(part)?)))
}

fn divisors<R: Passes>(run: &mut R, options: &Pagerank) -> Result<Table<Divisor>> {
    if options.weights.is_none() {
        let which = if options.reverse { Degree::In } else { Degree::Out };
        if run.spill().is_none() {
            let degrees = degrees_here(run, which)?;
            return Ok(Table::Here(degrees.into_iter().map(Divisor::Degrees).collect()));
        }
        return Table::build(run, 1, |run, part| run.degrees(which, part).map(Divisor::Degrees));
    }
    let everywhere = all(run.shape().partitions());
    // Strengths belong to the source of an arc, so they are gathered in the opposite direction.
    let flow = if options.reverse { Flow::Along } else { Flow::Against };
    let select = Selection { sources: &everywhere, targets: &everywhere, flow, weights: true };
    let mut tables = Tables::<Strengths>::once(run, &Divisor::Strengths(Vec::new()))?;
    tables.sweep(run, &Strengths, &select, false)?;
    let mut wrong = None;
    tables.own.each(|part, divisor| {
        if let Divisor::Strengths(strengths) = divisor
            && wrong.is_none()
            && let Some(local) = strengths.iter().position(|strength| !strength.is_finite())
        {
            wrong = Some((part, local, strengths[local]));
        }
        Ok(false)
    })?;
    if let Some((part, local, strength)) = wrong {
        let node = run.nodes(part)?[local];
        return Err(Error::invalid(format!(
            "pagerank: the weights of node {node} sum to {strength}"
        )));
    }
    Ok(tables.own)
}

/// The sums of weights, in one pass.
struct Strengths;

impl Step for Strengths {
    type Program = Strength;
    type Shown = ();
    type Fixed = ();
    type Own = Divisor;
    type Target = Vec<f64>;
    type Report = ();
    const TRAFFIC: Traffic = Traffic {
        open_shown: false,
        open_fixed: false,
        open_own: false,
        close_shown: false,
        close_fixed: false,
    };
    const ANY_ORDER: bool = false;
    const QUIET: bool = false;

    fn program(&self) -> &Strength {
        &Strength
    }

    fn open(&self, _: usize, (): &(), (): &(), own: &mut Divisor) -> Vec<f64> {
        match std::mem::take(own) {
            Divisor::Strengths(strengths) => strengths,
            Divisor::Degrees(_) => Vec::new(),
        }
    }

    fn close(
        &self,
        _: usize,
        strengths: Vec<f64>,
        (): &mut (),
        (): &(),
        own: &mut Divisor,
    ) -> Closed<()> {
        *own = Divisor::Strengths(strengths);
        Closed { report: (), shown: false, own: true }
    }
}
