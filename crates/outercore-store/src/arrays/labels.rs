//! Labels of nodes: one class, several labels, or numbers to predict.

use std::str::FromStr;

use outercore_core::{Error, Hint, Result, hint};
use outercore_format::{DType, Manifest, keys};
use serde::{Deserialize, Serialize};

use super::number::{Number, number};
use super::refusal::Refusal;

/// Highest class. A higher number is an id, a hash or a mistake.
const MAX_LABEL: i128 = i32::MAX as i128;

/// The learning task of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One class per node: `int64 [N]`, -1 for none.
    Classification,
    /// Several labels per node: `float32 [N, C]` of 0 and 1, NaN for none.
    MultiLabel,
    /// Numbers: `float64 [N]` or `[N, C]`, NaN for none.
    Regression,
}

/// The allowed elements of stored labels, for `check` and for updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelRule {
    /// A class below this number, if it is known; -1 for no class.
    Classes(Option<u64>),
    /// 0 or 1 in each column, or NaN for none.
    Columns,
}

impl LabelRule {
    /// The rule of the array `key`; `None` if it holds no labels, or labels that may be any number.
    pub fn of(manifest: &Manifest, key: &str, dtype: DType) -> Option<Self> {
        let is_labels = manifest.roles.labels.as_deref() == Some(key);
        match dtype {
            DType::I64 if is_labels => Some(Self::Classes(manifest.roles.classes)),
            DType::F32 if is_labels => Some(Self::Columns),
            // The manifest does not record the number of classes of graphs.
            DType::I64 if key == keys::GRAPH_LABELS => Some(Self::Classes(None)),
            _ => None,
        }
    }

    /// Checks one element.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn check(self, number: Number) -> std::result::Result<(), String> {
        match (self, number) {
            (Self::Classes(classes), _) => {
                label(number, classes).map(drop).map_err(|(what, _hint)| what)
            }
            (Self::Columns, Number::Float(value))
                if !(value.is_nan() || [0.0, 1.0, -1.0].contains(&value)) =>
            {
                Err(format!("label {value}, expected 0, 1, or none (NaN, -1)"))
            }
            (Self::Columns, _) => Ok(()),
        }
    }
}

impl FromStr for Task {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "classification" => Ok(Self::Classification),
            "multi-label" => Ok(Self::MultiLabel),
            "regression" => Ok(Self::Regression),
            _ => Err(Error::invalid(format!(
                "task `{name}`, expected classification, multi-label or regression"
            ))),
        }
    }
}

/// The check of labels: their stored form, and their faults.
pub(crate) struct Labels {
    task: Task,
    from: DType,
    /// Number of classes, if it is given.
    bound: Option<u64>,
    columns: u64,
    /// Elements so far.
    seen: u64,
    /// Whether the current row has a label.
    row_has_label: bool,
    unlabelled: u64,
    max: i64,
    refusal: Option<Refusal>,
    is_number: bool,
    stored: Vec<u8>,
}

impl Labels {
    /// `bound` is the number of classes, if it is known in advance.
    pub fn new(task: Task, from: DType, columns: u64, bound: Option<u64>) -> Self {
        Self {
            task,
            from,
            bound,
            columns,
            seen: 0,
            row_has_label: false,
            unlabelled: 0,
            max: -1,
            refusal: None,
            is_number: false,
            stored: Vec::new(),
        }
    }

    /// Checks the next whole elements and returns them in their stored form.
    pub fn take(&mut self, bytes: &[u8]) -> &[u8] {
        self.stored.clear();
        for element in bytes.chunks_exact(self.from.size()) {
            let number = number(self.from, element);
            let has_label = match self.task {
                Task::Classification => self.class(number),
                Task::MultiLabel => self.column(number),
                Task::Regression => self.value(number),
            };
            self.row_has_label |= has_label;
            self.seen += 1;
            if self.seen.is_multiple_of(self.columns) {
                self.unlabelled += u64::from(!self.row_has_label);
                self.row_has_label = false;
            }
        }
        &self.stored
    }

    fn class(&mut self, number: Number) -> bool {
        let label = match label(number, self.bound) {
            Ok(label) => label,
            Err((what, hint)) => {
                self.is_number |= is_number(number);
                self.refuse(what, hint);
                -1
            }
        };
        self.max = self.max.max(label);
        self.stored.extend_from_slice(&label.to_le_bytes());
        label >= 0
    }

    fn column(&mut self, number: Number) -> bool {
        let value = match number {
            Number::Int(value @ (-1..=1)) => value as f32,
            Number::Float(value) if value == 0.0 || value == 1.0 || value == -1.0 => value as f32,
            Number::Float(value) if value.is_nan() => f32::NAN,
            Number::Int(value) => self.no_label(&value.to_string()),
            Number::Float(value) => self.no_label(&value.to_string()),
        };
        let value = if value < 0.0 { f32::NAN } else { value };
        self.stored.extend_from_slice(&value.to_le_bytes());
        !value.is_nan()
    }

    fn no_label(&mut self, value: &str) -> f32 {
        self.refuse(format!("{value}, expected 0, 1, or none (NaN, -1)"), numbers());
        f32::NAN
    }

    fn value(&mut self, number: Number) -> bool {
        let value = match number {
            Number::Int(value) => {
                if (value as f64) as i128 != value {
                    let hint = "write them as floats, which are rounded knowingly";
                    self.refuse(format!("{value} has too many digits for a float64"), hint);
                }
                value as f64
            }
            Number::Float(value) => {
                if value.is_infinite() {
                    let hint = "write NaN for nodes without a label";
                    self.refuse(format!("{value}, expected a finite number"), hint);
                }
                value
            }
        };
        self.stored.extend_from_slice(&value.to_le_bytes());
        !value.is_nan()
    }

    fn refuse(&mut self, what: String, hint: impl Into<Hint>) {
        let hint = hint.into();
        let (row, column) = (self.seen / self.columns, self.seen % self.columns);
        let place = if self.columns == 1 {
            format!("row {row}")
        } else {
            format!("row {row}, column {column}")
        };
        self.refusal.get_or_insert(Refusal { what: format!("{place}: {what}"), hint });
    }

    /// The task of the labels.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Whether any fault was found.
    pub fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Whether any value is a number that cannot be a class.
    pub fn are_numbers(&self) -> bool {
        self.is_number
    }

    /// The error for the faults.
    pub fn refusal(&self) -> Option<Error> {
        self.refusal.as_ref().map(Refusal::error)
    }

    /// Number of nodes without a label.
    pub fn unlabelled(&self) -> u64 {
        self.unlabelled
    }

    /// Number of classes, or of label columns; `None` for numbers.
    pub fn classes(&self) -> Option<u64> {
        match self.task {
            Task::Classification => Some(self.bound.unwrap_or(0).max((self.max + 1) as u64)),
            Task::MultiLabel => Some(self.columns),
            Task::Regression => None,
        }
    }
}

/// Whether a value that is not a class may be a number to predict: a fraction, or below -1.
fn is_number(number: Number) -> bool {
    match number {
        Number::Float(value) => value.is_finite() && (value.fract() != 0.0 || value < -1.0),
        Number::Int(_) => false,
    }
}

/// Hint: the task for labels that are not classes.
fn numbers() -> Hint {
    hint!({task = "regression"} " takes numbers to predict")
}

/// The class that a number represents. NaN means no label, as in some published data sets.
fn label(number: Number, classes: Option<u64>) -> std::result::Result<i64, (String, Hint)> {
    let value = match number {
        Number::Float(value) if value.is_nan() => return Ok(-1),
        Number::Float(value) if value.fract() != 0.0 || value.is_infinite() => {
            return Err((format!("label {value} is not an integer"), numbers()));
        }
        Number::Float(value) => value as i128,
        Number::Int(value) => value,
    };
    let bound = classes.map_or(MAX_LABEL, |classes| i128::from(classes) - 1);
    if value < -1 {
        return Err((
            format!("label {value} is negative"),
            hint!("write -1 for nodes without a label; " {(numbers())}),
        ));
    }
    if value > bound {
        return Err((
            format!("label {value}, expected at most {bound}"),
            hint!("labels are numbers of classes, 0 and up: renumber them; " {(numbers())}),
        ));
    }
    Ok(value as i64)
}
