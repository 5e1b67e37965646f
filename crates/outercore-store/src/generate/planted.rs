use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use outercore_core::{Error, Permutation, Result, Stream};
use outercore_format::{DType, Manifest};
use outercore_io::Disk;
use rayon::ThreadPool;
use rayon::prelude::*;

use super::signal::{FEATURES_ALONE, centroid_norm};
use super::{EdgeSource, SEED_MASK, pool, push_edges};
use crate::arrays::{ArrayBuilder, ArraySpec, Target};
use crate::import::{
    Duplicates, GraphImport, GraphImportOptions, OnProgress, Phase, Progress, SelfLoops, Unit,
};

/// Options of a graph with planted communities, which are the classes of its nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlantedOptions {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Mean degree. The graph is undirected, and every node has at least half of this degree.
    pub degree: u64,
    /// Number of features of a node.
    pub features: u64,
    /// Number of communities, which is the number of classes.
    pub classes: u64,
    /// Share of edges whose ends are in the same community.
    pub homophily: f64,
    /// Standard deviation of the features around the centroid of their class. With 1, the features
    /// of a node alone reveal the class of 62 % of the nodes, for any number of classes.
    pub noise: f64,
    /// Random seed.
    pub seed: u64,
    /// Type of the features: `float32`, `float16` or `bfloat16`.
    pub dtype: DType,
    /// Shares of the nodes in the splits `train`, `valid` and `test`.
    pub splits: [f64; 3],
}

impl Default for PlantedOptions {
    fn default() -> Self {
        Self {
            nodes: 100_000,
            degree: 20,
            features: 128,
            classes: 10,
            homophily: 0.8,
            noise: 1.0,
            seed: 0,
            dtype: DType::F32,
            splits: [0.5, 0.25, 0.25],
        }
    }
}

/// Purposes of random draws; each has a separate stream.
#[derive(Clone, Copy)]
enum Purpose {
    Classes,
    Edges,
    Centroids,
    Features,
    Splits,
}

fn stream(seed: u64, purpose: Purpose) -> Stream {
    Stream::new(seed ^ SEED_MASK, purpose as u64)
}

/// A planted graph, computed by edge and by row.
///
/// An edge leads to a node of the same community with the probability `homophily`. Within a
/// community some nodes are chosen more often, so that degrees follow a power law. Features are the
/// centroid of the class plus normal noise. A single row reveals little about the class; the mean
/// over the neighbours reveals much.
///
/// # Example
/// ```
/// use outercore_store::generate::{Planted, PlantedOptions};
/// let graph = Planted::new(PlantedOptions::default()).unwrap();
/// let [source, target] = graph.edge(12);
/// assert!(graph.class(source) < 10 && target < 100_000);
/// ```
#[derive(Clone, Debug)]
pub struct Planted {
    options: PlantedOptions,
    edges: u64,
    /// Members of each community that edges can lead to.
    members: u64,
    /// Step through the members. It visits each member once, and consecutive steps are far apart.
    stride: u64,
    /// `[classes, features]`
    centroids: Vec<f32>,
}

impl Planted {
    /// Creates the graph for `options`.
    ///
    /// # Errors
    /// `Invalid`, naming the option.
    pub fn new(options: PlantedOptions) -> Result<Self> {
        validate(&options)?;
        let members = options.nodes / options.classes;
        Ok(Self {
            options,
            edges: (u128::from(options.nodes) * u128::from(options.degree) / 2).max(1) as u64,
            members,
            stride: stride(members),
            centroids: centroids(&options),
        })
    }

    /// Edges before self-loops and duplicates are dropped.
    pub fn num_edges(&self) -> u64 {
        self.edges
    }

    /// The class of a node. `classes` consecutive ids, starting at a multiple of `classes`, have
    /// different classes in a randomly rotated order.
    pub fn class(&self, node: u64) -> u64 {
        let classes = self.options.classes;
        (node % classes + self.rotation(node / classes)) % classes
    }

    fn rotation(&self, block: u64) -> u64 {
        stream(self.options.seed, Purpose::Classes).uniform(0, 0, block).below(self.options.classes)
    }

    /// The `index`-th node of a class; the inverse of [`Planted::class`].
    fn member(&self, class: u64, index: u64) -> u64 {
        let classes = self.options.classes;
        index * classes + (class + classes - self.rotation(index)) % classes
    }

    /// The member of `class` that is chosen `rank`-th most often. Popular members are spread over
    /// all ids, and differ from the popular members of other classes, so that hubs share no page.
    fn of_rank(&self, class: u64, rank: u64) -> u64 {
        let members = u128::from(self.members);
        let shift = u128::from(class) * members / u128::from(self.options.classes);
        ((u128::from(rank) * u128::from(self.stride) + shift) % members) as u64
    }

    /// Source and target of edge `number`.
    pub fn edge(&self, number: u64) -> [u64; 2] {
        let PlantedOptions { nodes, classes, homophily, seed, .. } = self.options;
        let source = (u128::from(number) * u128::from(nodes) / u128::from(self.edges)) as u64;
        let mut draws = stream(seed, Purpose::Edges).uniform(0, 0, number);
        let own = self.class(source);
        let class = if draws.unit() < homophily {
            own
        } else {
            (own + 1 + draws.below(classes - 1)) % classes
        };
        // The square of a uniform number chooses the node of rank r with probability proportional
        // to r^-0.5.
        let rank = (draws.unit().powi(2) * self.members as f64) as u64;
        [source, self.member(class, self.of_rank(class, rank))]
    }

    /// Fills `row` with the features of `node`.
    ///
    /// **Shapes** float32 `[features]`, independent of the stored type.
    pub fn features(&self, node: u64, row: &mut [f32]) {
        let first = (self.class(node) * self.options.features) as usize;
        let centroid = &self.centroids[first..first + row.len()];
        let noise = self.options.noise as f32;
        let mut draws = stream(self.options.seed, Purpose::Features).uniform(0, 0, node);
        for (value, &mean) in row.iter_mut().zip(centroid) {
            *value = mean + noise * standard_normal(draws.next_u64());
        }
    }

    /// For each split, its range in the shuffled order of nodes.
    fn split_ranges(&self) -> [(&'static str, std::ops::Range<u64>); 3] {
        let [train, valid, test] = self.options.splits;
        let place = |share: f64| {
            let nodes = self.options.nodes;
            ((share * nodes as f64).round() as u64).min(nodes)
        };
        let ends = [place(train), place(train + valid), place(train + valid + test)];
        [("train", 0..ends[0]), ("valid", ends[0]..ends[1]), ("test", ends[1]..ends[2])]
    }
}

impl EdgeSource for Planted {
    fn num_edges(&self) -> u64 {
        self.edges
    }

    fn edge(&self, number: u64) -> [u64; 2] {
        Planted::edge(self, number)
    }
}

/// A number near the golden section of `count`, without a common divisor with `count`.
fn stride(count: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (count as f64 * 0.618_033_988_75) as u64;
    (golden..).find(|&stride| divisor(stride, count) == 1).unwrap_or(1)
}

fn validate(options: &PlantedOptions) -> Result<()> {
    let PlantedOptions {
        nodes, degree, features, classes, homophily, noise, splits, dtype, ..
    } = *options;
    let fail = |what: String| Err(Error::invalid(format!("planted graph: {what}")));
    if classes < 2 || classes > nodes {
        return fail(format!(
            "{classes} classes for {nodes} nodes, expected 2 to the number of nodes"
        ));
    }
    if degree == 0 || u128::from(nodes) * u128::from(degree) > 1 << 60 {
        return fail(format!("degree {degree}, expected at least 1 and at most 2^60 edges in all"));
    }
    if features == 0 || features.saturating_mul(classes) > 1 << 28 {
        return fail(format!(
            "{features} features, expected at least 1 and at most 2^28 over all classes"
        ));
    }
    if ![DType::F32, DType::F16, DType::BF16].contains(&dtype) {
        return fail(format!("features of {dtype}, expected float32, float16 or bfloat16"));
    }
    if !(0.0..=1.0).contains(&homophily) {
        return fail(format!("homophily {homophily}, expected 0 to 1"));
    }
    if !(0.0..=1e6).contains(&noise) {
        return fail(format!("noise {noise}, expected 0 or more"));
    }
    if splits.iter().any(|share| !(0.0..=1.0).contains(share))
        || splits.iter().sum::<f64>() > 1.0 + 1e-9
    {
        return fail(format!("split shares {splits:?}, expected 0 to 1 each and at most 1 in all"));
    }
    Ok(())
}

/// Random directions, scaled so that the features reveal the classes as often as intended.
fn centroids(options: &PlantedOptions) -> Vec<f32> {
    let norm = centroid_norm(options.classes, FEATURES_ALONE);
    let mut centroids = Vec::with_capacity((options.classes * options.features) as usize);
    for class in 0..options.classes {
        let mut draws = stream(options.seed, Purpose::Centroids).uniform(0, 0, class);
        let row: Vec<f32> =
            (0..options.features).map(|_| standard_normal(draws.next_u64())).collect();
        let length = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let scale = if length > 0.0 { norm / length } else { 0.0 };
        centroids.extend(row.iter().map(|value| value * scale as f32));
    }
    centroids
}

/// An approximately normal number with mean 0 and variance 1: the sum of four uniform 16-bit
/// numbers.
#[inline(always)]
fn standard_normal(word: u64) -> f32 {
    const MEAN: f32 = 2.0 * 65_535.0;
    /// One over the root of `4 (2^32 - 1) / 12`, the variance of the sum.
    const SCALE: f32 = 1.0 / 37_837.227;
    let sum = (word & 0xFFFF) + (word >> 16 & 0xFFFF) + (word >> 32 & 0xFFFF) + (word >> 48);
    (sum as f32 - MEAN) * SCALE
}

/// Creates a data set of a planted graph, with features, labels and splits, in the directory
/// `root`.
///
/// **Cost** As an import of its edges, and one write of every array. An interrupted call can be
/// resumed.
///
/// # Errors
/// As [`Planted::new`] and [`GraphImport`].
pub fn planted(
    disk: Arc<dyn Disk>,
    root: &Path,
    options: PlantedOptions,
    mut import: GraphImportOptions,
    on_progress: OnProgress<'_>,
) -> Result<Manifest> {
    let graph = Planted::new(options)?;
    import.edges.num_nodes = Some(options.nodes);
    import.edges.undirected = true;
    import.edges.self_loops = SelfLoops::Drop;
    import.edges.duplicates = Duplicates::Drop;
    let pool = pool(import.edges.threads)?;
    let input = format!("{options:?}");
    let mut import = GraphImport::begin(disk, root, import, &input)?;
    push_edges(&graph, &pool, import.edges(), &mut *on_progress)?;
    import.finish_edges(&mut *on_progress)?;

    let spec = ArraySpec {
        dtype: Some(options.dtype),
        source_dtype: Some(options.dtype),
        ..ArraySpec::new(Target::Features, options.nodes)
    };
    if !import.reuse(&spec, &input)? {
        let mut builder = import.builder(&spec, options.dtype, &[options.features])?;
        write_features(&graph, &pool, &mut builder, &mut *on_progress)?;
        import.add(builder, &input)?;
    }
    let mut labels = ArraySpec::new(Target::Labels, options.nodes);
    labels.classes = Some(options.classes);
    write_integers(&mut import, &pool, &labels, &input, 0..options.nodes, &|node| {
        graph.class(node)
    })?;
    let shuffle = Permutation::new(options.nodes, options.seed ^ SEED_MASK, Purpose::Splits as u64);
    for (name, places) in graph.split_ranges() {
        let spec = ArraySpec::new(Target::Split(name.to_owned()), options.nodes);
        write_integers(&mut import, &pool, &spec, &input, places, &|place| shuffle.at(place))?;
    }
    import.commit()
}

/// Bytes of float32 rows that are generated at once.
const ROWS_BLOCK: u64 = 4 << 20;

fn write_features(
    graph: &Planted,
    pool: &ThreadPool,
    builder: &mut ArrayBuilder,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let PlantedOptions { nodes, features, dtype, .. } = graph.options;
    let rows = (ROWS_BLOCK / (features * 4)).max(1);
    let row_bytes = features as usize * dtype.size();
    let fill = |first: u64, bytes: &mut Vec<u8>| {
        let count = rows.min(nodes.saturating_sub(first));
        bytes.resize(count as usize * row_bytes, 0);
        bytes.par_chunks_mut(row_bytes).enumerate().with_min_len(16).for_each_init(
            || vec![0.0; features as usize],
            |row, (index, bytes)| {
                graph.features(first + index as u64, row);
                encode(row, dtype, bytes);
            },
        );
    };
    let (mut ready, mut next) = (Vec::new(), Vec::new());
    pool.install(|| fill(0, &mut ready));
    for first in (0..nodes).step_by(rows as usize) {
        let count = (ready.len() / row_bytes) as u64;
        // Write one block while the next one is generated.
        let write = || builder.push_rows(&ready, count);
        let (written, ()) = pool.install(|| rayon::join(write, || fill(first + rows, &mut next)));
        written?;
        std::mem::swap(&mut ready, &mut next);
        let done = first + count;
        on_progress(Progress { phase: Phase::Array, done, total: nodes, unit: Unit::Rows })?;
    }
    Ok(())
}

fn encode(row: &[f32], dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::F16 => {
            for (place, value) in bytes.chunks_exact_mut(2).zip(row) {
                place.copy_from_slice(&f16::from_f32(*value).to_le_bytes());
            }
        }
        DType::BF16 => {
            for (place, value) in bytes.chunks_exact_mut(2).zip(row) {
                place.copy_from_slice(&bf16::from_f32(*value).to_le_bytes());
            }
        }
        _ => bytes.copy_from_slice(bytemuck::cast_slice(row)),
    }
}

/// Writes an int64 array; `value` computes each row from its number.
fn write_integers(
    import: &mut GraphImport,
    pool: &ThreadPool,
    spec: &ArraySpec,
    input: &str,
    rows: std::ops::Range<u64>,
    value: &(dyn Fn(u64) -> u64 + Sync),
) -> Result<()> {
    const BLOCK: usize = 128 << 10;
    if import.reuse(spec, input)? {
        return Ok(());
    }
    let mut builder = import.builder(spec, DType::I64, &[])?;
    let mut values: Vec<i64> = Vec::new();
    for first in rows.clone().step_by(BLOCK) {
        let end = (first + BLOCK as u64).min(rows.end);
        let numbers = (0..(end - first) as u32).into_par_iter().with_min_len(1024);
        pool.install(|| {
            numbers.map(|n| value(first + u64::from(n)) as i64).collect_into_vec(&mut values)
        });
        builder.push_rows(bytemuck::cast_slice(&values), end - first)?;
    }
    import.add(builder, input)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_member_of_its_own() {
        for nodes in [20, 21, 130, 1000, 9973] {
            let options = PlantedOptions { nodes, features: 1, ..PlantedOptions::default() };
            let graph = Planted::new(options).unwrap();
            for class in 0..10 {
                let ranks = 0..graph.members;
                let mut members: Vec<u64> = ranks.map(|rank| graph.of_rank(class, rank)).collect();
                members.sort_unstable();
                assert!(members.into_iter().eq(0..graph.members), "class {class}, {nodes} nodes");
            }
        }
    }

    #[test]
    fn the_hubs_of_different_classes_are_far_apart() {
        let graph = Planted::new(PlantedOptions::default()).unwrap();
        let mut hubs: Vec<u64> =
            (0..10).map(|class| graph.member(class, graph.of_rank(class, 0))).collect();
        hubs.sort_unstable();
        assert!(hubs.windows(2).all(|pair| pair[1] - pair[0] > 9_000), "{hubs:?}");
    }

    #[test]
    fn members_and_classes_are_inverse() {
        let graph =
            Planted::new(PlantedOptions { nodes: 1003, ..PlantedOptions::default() }).unwrap();
        for class in 0..10 {
            for index in 0..graph.members {
                let node = graph.member(class, index);
                assert_eq!((graph.class(node), node / 10), (class, index));
            }
        }
    }
}
