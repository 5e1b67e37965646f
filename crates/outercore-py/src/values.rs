//! Values of the core as Python objects, and back: dictionaries, lists, texts and numbers. They cross
//! as values, never as text, so no number changes.

use outercore_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use pythonize::{
    PythonizeMappingType, PythonizeTypes, PythonizeUnnamedMappingAdapter, pythonize_custom,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

use crate::errors::to_python;

/// Deepest nesting of lists and dictionaries, so that one that contains itself is refused.
const DEEPEST: usize = 64;

/// A value of the core as a Python object. Dictionaries have the keys in the order of the fields.
///
/// Hold no lock: a collection of garbage meanwhile may run any Python code.
pub fn python_value<'py>(
    py: Python<'py>,
    value: &(impl Serialize + ?Sized),
) -> PyResult<Bound<'py, PyAny>> {
    Ok(pythonize_custom::<FiniteFields, _>(py, value)?)
}

/// The value of the core that a Python object describes.
///
/// # Errors
/// `InvalidError`, which names `what` the object is for.
pub fn core_value<T: DeserializeOwned>(what: &str, object: &Bound<'_, PyAny>) -> PyResult<T> {
    plain(object, DEEPEST)
        .map_err(|error| Error::invalid(format!("{what}: {error}")))
        .and_then(|value| parsed(what, value))
        .map_err(to_python)
}

/// As [`core_value`], with the fields of the dictionary, which the provenance records.
pub fn value_and_fields<T: DeserializeOwned>(
    what: &str,
    object: &Bound<'_, PyAny>,
) -> PyResult<(T, Map<String, Value>)> {
    let fields: Map<String, Value> = core_value(what, object)?;
    let value = parsed(what, Value::Object(fields.clone())).map_err(to_python)?;
    Ok((value, fields))
}

/// The value of the core that plain values describe; errors name `what` it is for.
pub fn parsed<T: DeserializeOwned>(what: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| Error::invalid(format!("{what}: {error}")))
}

/// Dictionaries that a file of JSON can hold: `None` for numbers that are not finite.
struct FiniteFields;

impl PythonizeMappingType for FiniteFields {
    type Builder<'py> = Bound<'py, PyDict>;

    fn builder<'py>(py: Python<'py>, _len: Option<usize>) -> PyResult<Self::Builder<'py>> {
        Ok(PyDict::new(py))
    }

    fn push_item<'py>(
        builder: &mut Self::Builder<'py>,
        key: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let number = value.cast::<PyFloat>();
        let endless = number.is_ok_and(|number| !number.value().is_finite());
        builder.set_item(key, (!endless).then_some(value))
    }

    fn finish<'py>(builder: Self::Builder<'py>) -> PyResult<Bound<'py, PyMapping>> {
        Ok(builder.into_mapping())
    }
}

impl PythonizeTypes for FiniteFields {
    type Map = Self;
    type NamedMap = PythonizeUnnamedMappingAdapter<Self>;
    type List = PyList;
}

/// An object of plain values. Unlike `depythonize`, it accepts numbers of NumPy and PyTorch, and
/// refuses numbers that are not finite.
fn plain(object: &Bound<'_, PyAny>, deepest: usize) -> Result<Value> {
    let Some(deeper) = deepest.checked_sub(1) else {
        return Err(Error::invalid("lists or dictionaries nested too deeply"));
    };
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(truth.is_true().into());
    }
    if let Ok(text) = object.cast::<PyString>() {
        return text_of(text).map(Value::String);
    }
    if object.is_instance_of::<PyInt>() {
        let whole = object.extract::<u64>().map(Number::from);
        let whole = whole.or_else(|_| object.extract::<i64>().map(Number::from));
        // One beyond 64 bits counts as a float, and overflows as infinity.
        let number = whole.ok().or_else(|| Number::from_f64(object.extract().ok()?));
        return number.map(Value::Number).ok_or_else(|| not_finite(object));
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return Number::from_f64(number.value())
            .map(Value::Number)
            .ok_or_else(|| not_finite(object));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object.try_iter().map_err(refused)?;
        let values = items.map(|item| plain(&item.map_err(refused)?, deeper));
        return values.collect::<Result<_>>().map(Value::Array);
    }
    if let Ok(fields) = object.cast::<PyDict>() {
        let values = fields.iter().map(|(key, value)| {
            let key = key.cast::<PyString>().map_err(|_| not_plain(&key))?;
            Ok((text_of(key)?, plain(&value, deeper)?))
        });
        return values.collect::<Result<Map<_, _>>>().map(Value::Object);
    }
    let dimensions = object.getattr("ndim").and_then(|count| count.extract::<usize>());
    match dimensions {
        Ok(0) => plain(&object.call_method0("item").map_err(refused)?, deeper),
        _ => Err(not_plain(object)),
    }
}

fn text_of(text: &Bound<'_, PyString>) -> Result<String> {
    text.to_cow().map(|text| text.into_owned()).map_err(refused)
}

fn not_finite(number: &Bound<'_, PyAny>) -> Error {
    Error::invalid(format!("expected a finite number, found {number}"))
}

fn not_plain(object: &Bound<'_, PyAny>) -> Error {
    let shown: String = object.repr().map_or_else(
        |_| object.get_type().to_string(),
        |shown| shown.to_string_lossy().chars().take(80).collect(),
    );
    Error::invalid(format!("expected a text, a number or a list of them, found {shown}"))
}

fn refused(error: PyErr) -> Error {
    Error::invalid(error.to_string())
}
