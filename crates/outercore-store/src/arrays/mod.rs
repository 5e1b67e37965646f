//! Adding arrays to a data set: features, labels, splits and named node arrays, copied from a
//! `.npy` file, registered in place, or pushed in batches; checked while they pass.

mod builder;
mod content;
mod labels;
mod number;
mod refusal;

use outercore_core::{Context, Error, Result};
use outercore_format::keys::{self, Group};
use outercore_format::{ArrayEntry, DType, Given, Manifest};
use serde::{Deserialize, Serialize};

pub(crate) use builder::second_file;
pub use builder::{ArrayBuilder, import_npy, register_npy};
pub(crate) use content::node_id;
pub(crate) use labels::LabelRule;
pub use labels::Task;
pub(crate) use number::{Number, number};
pub use number::{append_f32, append_f64};

use content::{Content, Matrix, Split};
use labels::Labels;

/// What an array is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Node features: `[N, F]`, stored as `float32`, `float16` or `bfloat16`; `[N]` is one column.
    Features,
    /// Node labels: classes `[N]` or `[N, 1]` with -1 (or NaN) for none, stored as `int64`;
    /// multi-label targets `[N, C]` of 0, 1 and NaN or -1, stored as `float32`; or numbers with NaN
    /// for none, stored as `float64`. [`ArraySpec::task`] says which.
    Labels,
    /// The named split: node ids, or one boolean for each node; stored as `int64` ids.
    Split(String),
    /// The named node array: `[N, …]` of any type.
    Node(String),
    /// The named edge array: a row for each edge of the input, by edge id, of any type.
    Edge(String),
    /// An array under a key of `names/`, of any length.
    Names(String),
}

/// What to do about NaN and infinite values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// Count them, then refuse the array and say where the first one is.
    #[default]
    Refuse,
    /// Count them.
    Allow,
}

/// What to do about ids that a split lists more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Count them, then refuse the split and say where the first one is.
    #[default]
    Refuse,
    /// Count them; a node that comes twice is a seed twice.
    Keep,
}

/// What is expected of an array that is added, and how it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// What it is for.
    pub target: Target,
    /// The node type that it belongs to, or edge type, in a graph of several.
    pub of_type: Option<String>,
    /// Nodes of the graph; of an edge array, edges of the input.
    pub nodes: u64,
    /// Type to store: `float32`, `float16` or `bfloat16`. Where absent, features keep these and
    /// become `float32` otherwise, and node arrays keep their type.
    pub dtype: Option<DType>,
    /// What the elements are where a `.npy` header cannot say it: `bfloat16` for `uint16`.
    pub source_dtype: Option<DType>,
    /// What to do about NaN and infinite values of float arrays.
    pub non_finite: NonFinite,
    /// What to do about repeated ids of a split.
    pub duplicates: Duplicates,
    /// Number of classes, where it is known beforehand: a bound for the labels.
    pub classes: Option<u64>,
    /// What labels are. Where absent, integers `[N]` are classes, and so are floats if all are
    /// whole numbers from 0 on, -1 or NaN, else they are numbers; several columns are multi-label
    /// targets.
    pub task: Option<Task>,
    /// The form that batches have, where it is another one than the stored form.
    pub given: Option<Given>,
    /// The type of points in time, in Arrow's notation; absent for everything else.
    pub times: Option<String>,
}

impl ArraySpec {
    /// An array for `target` in a graph of `nodes` nodes, with everything else at its default.
    pub fn new(target: Target, nodes: u64) -> Self {
        Self {
            target,
            of_type: None,
            nodes,
            dtype: None,
            source_dtype: None,
            non_finite: NonFinite::default(),
            duplicates: Duplicates::default(),
            classes: None,
            task: None,
            given: None,
            times: None,
        }
    }

    /// The array's key in the manifest.
    pub fn key(&self) -> String {
        let node = self.of_type.as_deref().unwrap_or(keys::NODE);
        match &self.target {
            Target::Features => format!("nodes/{node}/x"),
            Target::Labels => format!("nodes/{node}/y"),
            Target::Split(name) => keys::split(name),
            Target::Node(name) => format!("nodes/{node}/{name}"),
            Target::Edge(name) => {
                format!("edges/{}/{name}", self.of_type.as_deref().unwrap_or(keys::EDGE))
            }
            Target::Names(name) => format!("names/{name}"),
        }
    }

    /// What messages call the array.
    fn name(&self) -> String {
        let of = self.of_type.as_ref().map_or(String::new(), |name| format!(" of `{name}`"));
        match &self.target {
            Target::Features => format!("features{of}"),
            Target::Labels => format!("labels{of}"),
            Target::Split(name) => format!("split `{name}`"),
            Target::Node(name) => format!("node array `{name}`{of}"),
            Target::Edge(name) => format!("edge array `{name}`{of}"),
            Target::Names(name) => format!("names `{name}`"),
        }
    }

    /// How rows of `from` and `row_shape` are checked and stored.
    fn plan(&self, from: DType, row_shape: &[u64]) -> Result<ContentPlan> {
        keys::validate(&self.key())?;
        let columns = row_shape.iter().product::<u64>();
        if columns == 0 {
            return Err(Error::invalid(format!("rows of shape {row_shape:?} hold nothing")));
        }
        let wrong = |expected: &str| {
            let extents: String = row_shape.iter().map(|extent| format!(", {extent}")).collect();
            Error::invalid(format!("shape [rows{extents}], expected {expected}"))
        };
        let matrix = |to, row_shape: Vec<u64>| ContentPlan {
            content: Content::Matrix(Matrix::new(from, to, columns, self.non_finite)),
            dtype: to,
            row_shape,
            numbers: None,
        };
        match (&self.target, row_shape) {
            (Target::Features, [] | [_]) => Ok(matrix(self.type_to_store(from)?, vec![columns])),
            (Target::Features, _) => Err(wrong("[nodes, features]")),
            (Target::Labels, [] | [_]) => self.plan_labels(from, columns, wrong),
            (Target::Labels, _) => Err(wrong("[nodes] or [nodes, labels]")),
            (Target::Split(_), [] | [1]) if !from.is_float() => Ok(ContentPlan {
                content: Content::Split(Split::new(from, self.nodes, self.duplicates)),
                dtype: DType::I64,
                row_shape: Vec::new(),
                numbers: None,
            }),
            (Target::Split(_), [] | [1]) => {
                Err(Error::invalid(format!("type {from}, expected integers or booleans")))
            }
            (Target::Split(_), _) => Err(wrong("[ids], or [nodes] booleans")),
            (Target::Names(_), _) => Ok(matrix(from, row_shape.to_vec())),
            (Target::Node(_) | Target::Edge(_), _) => {
                Ok(matrix(self.type_to_store(from)?, row_shape.to_vec()))
            }
        }
    }

    fn plan_labels(
        &self,
        from: DType,
        columns: u64,
        wrong: impl Fn(&str) -> Error,
    ) -> Result<ContentPlan> {
        let one = columns == 1;
        let task = match self.task {
            Some(Task::Classification) if !one => {
                return Err(wrong("[nodes] for classification")
                    .hint("several columns are a target of `--task multi-label` or `regression`"));
            }
            Some(Task::MultiLabel) if one => {
                return Err(wrong("[nodes, labels] for multi-label")
                    .hint("one column is a target of `--task classification` or `regression`"));
            }
            Some(task) => task,
            None if one => Task::Classification,
            None => Task::MultiLabel,
        };
        let content = |task| Labels::new(task, from, columns, self.classes);
        let undecided = self.task.is_none() && one && from.is_float();
        Ok(ContentPlan {
            content: Content::Labels(content(task)),
            dtype: match task {
                Task::Classification => DType::I64,
                Task::MultiLabel => DType::F32,
                Task::Regression => DType::F64,
            },
            row_shape: if one { Vec::new() } else { vec![columns] },
            numbers: undecided.then(|| content(Task::Regression)),
        })
    }

    /// The type asked for, else the file's own.
    fn type_to_store(&self, from: DType) -> Result<DType> {
        let to = self.dtype.unwrap_or(from);
        if to == from || to.is_float() {
            return Ok(to);
        }
        Err(Error::invalid(format!("cannot store {to}, expected the type of a float"))
            .hint("convert it in NumPy with astype"))
    }
}

/// The running check of an array and the form in which it is stored.
struct ContentPlan {
    content: Content,
    dtype: DType,
    row_shape: Vec<u64>,
    /// Besides as numbers, of `float64`: only the last row says whether these are classes.
    numbers: Option<Labels>,
}

/// What was found in an array while it passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySummary {
    /// Rows of the stored array.
    pub rows: u64,
    /// NaN values of a float array.
    pub nan: u64,
    /// Infinite values of a float array.
    pub infinite: u64,
    /// Nodes without a label.
    pub unlabelled: u64,
    /// Classes of the labels: the highest label plus one, or the columns of multi-label targets.
    pub classes: Option<u64>,
    /// What the labels are.
    #[serde(default)]
    pub task: Option<Task>,
    /// Ids of a split that had come before.
    pub duplicates: u64,
}

/// An array that is on disk and synced, but not yet in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedArray {
    /// What it is for.
    pub target: Target,
    /// Its key.
    pub key: String,
    /// Its entry.
    pub entry: ArrayEntry,
    /// What was found in it.
    pub summary: ArraySummary,
    /// As [`ArraySpec::given`].
    pub given: Option<Given>,
    /// The type of points in time, as [`ArraySpec::times`].
    pub times: Option<String>,
}

impl ImportedArray {
    /// Enters the array and its role.
    pub fn add_to(&self, manifest: &mut Manifest) {
        manifest.replace(&self.key, self.entry.clone());
        let roles = &mut manifest.roles;
        // The array before may have been given in another form.
        roles.given.remove(&self.key);
        roles.given.extend(self.given.clone().map(|given| (self.key.clone(), given)));
        match &self.times {
            Some(times) => roles.times.insert(self.key.clone(), times.clone()),
            None => roles.times.remove(&self.key),
        };
        match &self.target {
            Target::Features => match Group::of(&self.key) {
                Group::Node { node_type, .. } if node_type != keys::NODE => {
                    roles.typed_features.insert(node_type.to_owned(), self.key.clone());
                }
                _ => roles.features = Some(self.key.clone()),
            },
            Target::Labels => {
                roles.labels = Some(self.key.clone());
                roles.classes = self.summary.classes;
            }
            Target::Split(name) => {
                roles.splits.insert(name.clone(), self.key.clone());
            }
            Target::Node(_) | Target::Edge(_) | Target::Names(_) => {}
        }
    }
}

/// Adds the array's name to an error, and that of its file where there is one.
fn named<T>(spec: &ArraySpec, file: Option<&std::path::Path>, result: Result<T>) -> Result<T> {
    result.with_context(|| match file {
        Some(file) => format!("{} from `{}`", spec.name(), file.display()),
        None => spec.name(),
    })
}
