//! Arrays of a data set: features, labels, splits and named node arrays. They are copied from a
//! `.npy` file, registered in place, or pushed in batches, and checked on the way.

mod builder;
mod content;
mod labels;
mod number;
mod refusal;

use outercore_core::{Context, Error, Result, hint};
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

/// Purpose of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Node features: `[N, F]`, stored as `float32`, `float16` or `bfloat16`; `[N]` is one column.
    Features,
    /// Node labels, in the form of [`ArraySpec::task`]. Classes: `[N]` or `[N, 1]`, -1 or NaN for
    /// none, stored as `int64`. Multi-label targets: `[N, C]` of 0, 1, and NaN or -1 for none,
    /// stored as `float32`. Numbers: NaN for none, stored as `float64`.
    Labels,
    /// The named split: node ids, or one boolean for each node; stored as `int64` ids.
    Split(String),
    /// The named node array: `[N, …]` of any type.
    Node(String),
    /// The named edge array: one row for each input edge, by edge id, of any type.
    Edge(String),
    /// An array under a key of `names/`, of any length.
    Names(String),
}

/// Treatment of NaN and infinite values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// Count them, then refuse the array and name the first one.
    #[default]
    Refuse,
    /// Count them.
    Allow,
}

/// Treatment of ids that occur more than once in a split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Count them, then refuse the split and name the first one.
    #[default]
    Refuse,
    /// Count them; a node that occurs twice is a seed twice.
    Keep,
}

/// The expected and the stored form of an array to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Purpose of the array.
    pub target: Target,
    /// The node type or edge type of the array, in a graph with several types.
    pub of_type: Option<String>,
    /// Number of nodes of the graph; for an edge array, number of input edges.
    pub nodes: u64,
    /// Type to store: `float32`, `float16` or `bfloat16`. If absent, features of these types keep
    /// their type and others become `float32`; node arrays keep their type.
    pub dtype: Option<DType>,
    /// Element type, if the `.npy` header cannot express it: `bfloat16` for `uint16`.
    pub source_dtype: Option<DType>,
    /// Treatment of NaN and infinite values in float arrays.
    pub non_finite: NonFinite,
    /// Treatment of repeated ids in a split.
    pub duplicates: Duplicates,
    /// Number of classes, if known in advance: an upper bound for the labels.
    pub classes: Option<u64>,
    /// Task of the labels. If absent, several columns are multi-label targets, and integers `[N]`
    /// are classes. Floats are classes if every value is an integer from 0, -1 or NaN; otherwise
    /// they are numbers.
    pub task: Option<Task>,
    /// The form in batches, if it differs from the stored form.
    pub given: Option<Given>,
    /// Arrow's name for the type, if the array holds points in time.
    pub times: Option<String>,
}

impl ArraySpec {
    /// An array for `target` in a graph with `nodes` nodes; all other fields have their defaults.
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

    /// The name of the array in messages.
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

    /// Decides how rows of type `from` and shape `row_shape` are checked and stored.
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
                return Err(wrong("[nodes] for classification").hint(hint!(
                    "several columns are a target of " {task = "multi-label"} " or `regression`"
                )));
            }
            Some(Task::MultiLabel) if one => {
                return Err(wrong("[nodes, labels] for multi-label").hint(hint!(
                    "one column is a target of " {task = "classification"} " or `regression`"
                )));
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

    /// The requested type, or else the type of the file.
    fn type_to_store(&self, from: DType) -> Result<DType> {
        let to = self.dtype.unwrap_or(from);
        if to == from || to.is_float() {
            return Ok(to);
        }
        Err(Error::invalid(format!("cannot store {to}, expected the type of a float"))
            .hint("convert it in NumPy with astype"))
    }
}

/// The check of an array, and its stored form.
struct ContentPlan {
    content: Content,
    dtype: DType,
    row_shape: Vec<u64>,
    /// A second form as `float64` numbers, while only the last row can decide whether the labels
    /// are classes.
    numbers: Option<Labels>,
}

/// Counts of an imported array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySummary {
    /// Rows of the stored array.
    pub rows: u64,
    /// NaN values of a float array.
    pub nan: u64,
    /// Infinite values of a float array.
    pub infinite: u64,
    /// Number of nodes without a label.
    pub unlabelled: u64,
    /// Number of classes: the highest label plus one, or the columns of multi-label targets.
    pub classes: Option<u64>,
    /// Task of the labels.
    #[serde(default)]
    pub task: Option<Task>,
    /// Repeated ids of a split.
    pub duplicates: u64,
}

/// An array that is on disk and synced, but not yet in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedArray {
    /// Its purpose.
    pub target: Target,
    /// Its key.
    pub key: String,
    /// Its entry for the manifest.
    pub entry: ArrayEntry,
    /// Its counts.
    pub summary: ArraySummary,
    /// As [`ArraySpec::given`].
    pub given: Option<Given>,
    /// As [`ArraySpec::times`].
    pub times: Option<String>,
}

impl ImportedArray {
    /// Adds the array and its role to a manifest.
    pub fn add_to(&self, manifest: &mut Manifest) {
        manifest.replace(&self.key, self.entry.clone());
        let roles = &mut manifest.roles;
        // An older array under this key may have had another form in batches.
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

/// Adds the name of the array to an error, and the name of its file if there is one.
fn named<T>(spec: &ArraySpec, file: Option<&std::path::Path>, result: Result<T>) -> Result<T> {
    result.with_context(|| match file {
        Some(file) => format!("{} from `{}`", spec.name(), file.display()),
        None => spec.name(),
    })
}
