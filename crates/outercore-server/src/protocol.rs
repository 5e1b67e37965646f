//! Open Inference Protocol 2: what requests and answers look like.

use outercore_core::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::predictor::Prediction;
use crate::refusal::Refusal;

/// The input of a request.
const NODE_IDS: &str = "node_ids";

/// Characters of what a client wrote that an answer repeats.
const MOST_ECHOED: usize = 80;

/// Types of input that hold ids.
const ID_TYPES: [&str; 4] = ["INT64", "UINT64", "INT32", "UINT32"];

/// An inference request.
#[derive(Debug, Deserialize, ToSchema)]
pub struct InferRequest {
    /// Repeated in the answer.
    pub id: Option<String>,
    #[serde(default)]
    #[schema(value_type = crate::openapi::Parameters)]
    parameters: Map<String, Value>,
    #[serde(default)]
    inputs: Vec<Input>,
    #[serde(default)]
    outputs: Vec<WantedOutput>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct Input {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    #[schema(value_type = Vec<Value>)]
    data: Value,
}

#[derive(Debug, Deserialize, ToSchema)]
struct WantedOutput {
    name: String,
}

/// A request after it was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Nodes, in the order of the answer.
    pub nodes: Vec<NodeId>,
    /// Seed of the sampler.
    pub seed: u64,
    /// Number of the oldest update that the answer must have seen.
    pub min_lsn: u64,
    /// How long the answer may take; the server's own limit where absent.
    pub deadline_ms: Option<u64>,
    /// Outputs wanted; all where empty.
    pub outputs: Vec<String>,
}

impl InferRequest {
    /// What is asked.
    ///
    /// # Errors
    /// A sentence for the client: an input that is missing, unknown or of another type or shape, a
    /// node out of range, too many of them, an unknown parameter.
    pub fn question(
        &self,
        num_nodes: u64,
        most_nodes: u64,
        outputs: &[&str],
    ) -> Result<Question, Refusal> {
        let [input] = &self.inputs[..] else {
            return Err(Refusal::wrong(format!(
                "inputs: expected one, `{NODE_IDS}`, found {}",
                self.inputs.len()
            )));
        };
        if input.name != NODE_IDS {
            return Err(Refusal::wrong(format!(
                "input `{}`: expected `{NODE_IDS}`",
                cut(&input.name)
            )));
        }
        if !ID_TYPES.contains(&input.datatype.as_str()) {
            return Err(Refusal::wrong(format!(
                "{NODE_IDS}: datatype {}, expected INT64",
                cut(&input.datatype)
            )));
        }
        let nodes = input.ids(num_nodes)?;
        if nodes.is_empty() || nodes.len() as u64 > most_nodes {
            return Err(Refusal::wrong(format!(
                "{NODE_IDS}: {} nodes, expected 1 to {most_nodes}",
                nodes.len()
            )));
        }
        if self.outputs.len() > outputs.len() {
            return Err(Refusal::wrong(format!(
                "outputs: {}, expected {} at most",
                self.outputs.len(),
                outputs.len()
            )));
        }
        for wanted in &self.outputs {
            if !outputs.contains(&wanted.name.as_str()) {
                return Err(Refusal::wrong(format!(
                    "output `{}`: expected one of {}",
                    cut(&wanted.name),
                    outputs.join(", ")
                )));
            }
        }
        let mut question = Question {
            nodes,
            outputs: self.outputs.iter().map(|wanted| wanted.name.clone()).collect(),
            ..Question::default()
        };
        for (name, value) in &self.parameters {
            let number = || {
                value.as_u64().ok_or_else(|| {
                    let found = cut(&value.to_string());
                    Refusal::wrong(format!("{name}: {found}, expected a whole number from 0"))
                })
            };
            match name.as_str() {
                "seed" => question.seed = number()?,
                "min_lsn" => question.min_lsn = number()?,
                "deadline_ms" => question.deadline_ms = Some(number()?),
                _ => {
                    return Err(Refusal::wrong(format!(
                        "parameter `{}`: expected seed, min_lsn or deadline_ms",
                        cut(name)
                    )));
                }
            }
        }
        Ok(question)
    }
}

impl Input {
    fn ids(&self, num_nodes: u64) -> Result<Vec<NodeId>, Refusal> {
        let mut ids = Vec::new();
        flatten(&self.data, num_nodes, &mut ids)?;
        let said = self
            .shape
            .iter()
            .try_fold(1i64, |product, &extent| product.checked_mul(extent).filter(|_| extent >= 0));
        if self.shape.is_empty() || said != Some(ids.len() as i64) {
            return Err(Refusal::wrong(format!(
                "{NODE_IDS}: shape {} for {} values",
                cut(&format!("{:?}", self.shape)),
                ids.len()
            )));
        }
        Ok(ids)
    }
}

/// The beginning of what a client wrote.
fn cut(text: &str) -> String {
    text.chars().take(MOST_ECHOED).collect()
}

/// Tensors may be written flat, or as lists in lists.
fn flatten(data: &Value, num_nodes: u64, ids: &mut Vec<NodeId>) -> Result<(), Refusal> {
    if let Value::Array(items) = data {
        return items.iter().try_for_each(|item| flatten(item, num_nodes, ids));
    }
    let id = data.as_u64().filter(|&id| id < num_nodes).ok_or_else(|| {
        let found = cut(&data.to_string());
        Refusal::wrong(format!("{NODE_IDS}: {found}, expected a node below {num_nodes}"))
    })?;
    ids.push(id);
    Ok(())
}

/// A tensor of an answer.
#[derive(Debug, Serialize)]
pub struct Output {
    name: &'static str,
    datatype: &'static str,
    shape: Vec<usize>,
    data: Values,
}

/// Values as JSON numbers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Values {
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Single precision.
    Single(Vec<f32>),
}

impl Output {
    /// Whole numbers.
    pub fn whole(name: &'static str, shape: Vec<usize>, data: Vec<i64>) -> Self {
        Self { name, datatype: "INT64", shape, data: Values::Whole(data) }
    }

    /// Single precision.
    pub fn single(name: &'static str, shape: Vec<usize>, data: Vec<f32>) -> Self {
        Self { name, datatype: "FP32", shape, data: Values::Single(data) }
    }
}

/// The answer to a request: whose it is, the request's own id, what it asked for.
pub fn answer(
    (model, version): (&str, &str),
    id: Option<&str>,
    (seed, wanted): (u64, &[String]),
    prediction: Prediction,
) -> Value {
    let lsn = prediction.lsn;
    let outputs: Vec<Output> = prediction
        .outputs
        .into_iter()
        .filter(|output| wanted.is_empty() || wanted.iter().any(|name| name == output.name))
        .collect();
    let mut answer = json!({
        "model_name": model,
        "model_version": version,
        "parameters": {"seed": seed, "lsn": lsn},
        "outputs": outputs,
    });
    if let Some(id) = id {
        answer["id"] = json!(id);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUTS: [&str; 2] = ["prediction", "probability"];

    fn asked(body: &Value) -> Result<Question, Refusal> {
        let request: InferRequest = serde_json::from_value(body.clone()).unwrap();
        request.question(10, 4, &OUTPUTS)
    }

    fn nodes(shape: Value, data: Value) -> Value {
        json!({"inputs": [
            {"name": "node_ids", "datatype": "INT64", "shape": shape, "data": data}
        ]})
    }

    #[test]
    fn nodes_come_flat_or_in_lists_with_seed_and_deadline() {
        for (shape, data) in [
            (json!([2]), json!([7, 9])),
            (json!([2, 1]), json!([[7], [9]])),
            (json!([1, 2]), json!([7, 9])),
        ] {
            let mut body = nodes(shape, data);
            body["parameters"] = json!({"seed": 5, "deadline_ms": 20, "min_lsn": 3});
            body["outputs"] = json!([{"name": "prediction"}]);
            let expected = Question {
                nodes: vec![7, 9],
                seed: 5,
                min_lsn: 3,
                deadline_ms: Some(20),
                outputs: vec!["prediction".into()],
            };
            assert_eq!(asked(&body), Ok(expected));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let text = |body: Value| format!("{:?}", asked(&body).unwrap_err());
        let with = |key: &str, value: Value| {
            let mut body = nodes(json!([1]), json!([1]));
            body[key] = value;
            text(body)
        };
        assert!(text(json!({})).contains("expected one, `node_ids`, found 0"));
        assert!(text(nodes(json!([3]), json!([1, 2]))).contains("shape [3] for 2 values"));
        assert!(text(nodes(json!([-2]), json!([1, 2]))).contains("shape [-2] for 2 values"));
        assert!(text(nodes(json!([1]), json!([10]))).contains("10, expected a node below 10"));
        assert!(text(nodes(json!([1]), json!([-1]))).contains("-1, expected a node"));
        assert!(text(nodes(json!([1]), json!([1.5]))).contains("1.5, expected a node"));
        assert!(text(nodes(json!([1]), json!(["a"]))).contains("\"a\\\", expected a node"));
        assert!(text(nodes(json!([0]), json!([]))).contains("0 nodes, expected 1 to 4"));
        assert!(
            text(nodes(json!([5]), json!([1, 2, 3, 4, 5]))).contains("5 nodes, expected 1 to 4")
        );
        assert!(with("parameters", json!({"sed": 1})).contains("parameter `sed`"));
        assert!(with("parameters", json!({"seed": -1})).contains("seed: -1, expected"));
        assert!(with("outputs", json!([{"name": "x"}])).contains("output `x`: expected one of"));
    }
}
