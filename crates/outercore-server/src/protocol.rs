//! Requests and answers of the Open Inference Protocol 2.

use std::time::Duration;

use outercore_core::NodeId;
use outercore_live::NEW_NODE;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::asked::{Asked, Input, Scope, Subject};
use crate::body::Memory;
use crate::compute::Prediction;
use crate::directions::{Directions, EDGES};
use crate::inline::{self, Inline};
use crate::json::{NULL, Parameters, few};
use crate::output::Output;
use crate::question::Question;
use crate::refusal::{Refusal, cut};

/// An inference request. The values of tensors stay in the text of the client until they are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct InferRequest<'a> {
    /// Repeated in the answer.
    pub id: Option<String>,
    /// Parameters of the request.
    #[serde(borrow)]
    pub parameters: Parameters<'a>,
    /// Its tensors.
    #[serde(borrow, deserialize_with = "few")]
    pub inputs: Vec<Input<'a>>,
    /// The outputs that the client wants; empty stands for all.
    #[serde(borrow, deserialize_with = "few")]
    pub outputs: Vec<WantedOutput<'a>>,
}

/// An output that a request wants.
#[derive(Debug, Deserialize)]
pub struct WantedOutput<'a> {
    /// Its name.
    pub name: String,
    /// Parameters of the output.
    #[serde(borrow, default)]
    pub parameters: Parameters<'a>,
}

impl InferRequest<'_> {
    /// Checks the request and returns its question.
    ///
    /// # Errors
    /// A sentence for the client: a missing or unknown input, a wrong type or shape, a node out of
    /// range, too many nodes, or an unknown parameter. Also if no memory is free.
    pub fn question(&self, scope: &Scope<'_>, memory: &mut Memory) -> Result<Question, Refusal> {
        let (name, outputs) = (scope.subject.input(), scope.outputs);
        let (nodes, asked, inline) = self.asked(scope, memory)?;
        let (count, what) = match &asked {
            Asked::Graphs { graphs, .. } => {
                (graphs.len() + inline.as_ref().map_or(0, Inline::num_graphs), "graphs")
            }
            _ => (nodes.len(), "nodes"),
        };
        if count == 0 || count as u64 > scope.most_nodes {
            return Err(Refusal::wrong(format!(
                "{name}: {count} {what}, expected 1 to {}",
                scope.most_nodes
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
            id: self.id.clone(),
            nodes,
            asked,
            inline,
            outputs: self.outputs.iter().map(|wanted| wanted.name.clone()).collect(),
            ..Question::default()
        };
        for (name, value) in &self.parameters.0 {
            let number = || {
                serde_json::from_str::<u64>(value).map_err(|_| {
                    let found = cut(value);
                    Refusal::wrong(format!("{name}: {found}, expected a whole number from 0"))
                })
            };
            match name.as_str() {
                // `null` counts as absent, but only under a known name.
                "seed" | "min_lsn" | "deadline_ms" | Directions::PARAMETER if value == NULL => {}
                "seed" => question.seed = number()?,
                "min_lsn" => question.min_lsn = number()?,
                "deadline_ms" => question.deadline_ms = Some(number()?),
                // Already read with the inline edges.
                Directions::PARAMETER if question.inline.is_some() => {}
                Directions::PARAMETER => {
                    let text = format!("{name}: expected {EDGES} with it");
                    return Err(Refusal::wrong(text));
                }
                _ => {
                    return Err(Refusal::wrong(format!(
                        "parameter `{}`: expected seed, min_lsn, deadline_ms or {}",
                        cut(name),
                        Directions::PARAMETER
                    )));
                }
            }
        }
        Ok(question)
    }
}

impl InferRequest<'_> {
    /// The nodes to compute, the predictions to make for them, and the inline part of the request.
    fn asked(
        &self,
        scope: &Scope<'_>,
        memory: &mut Memory,
    ) -> Result<(Vec<NodeId>, Asked, Option<Inline>), Refusal> {
        let name = scope.subject.input();
        let of_inline = [inline::FEATURES, EDGES, inline::GRAPHS];
        let mut is_inline = false;
        for (place, input) in self.inputs.iter().enumerate() {
            is_inline |= of_inline.contains(&input.name.as_str());
            if input.name != name && !of_inline.contains(&input.name.as_str()) {
                let found = cut(&input.name);
                return Err(Refusal::wrong(format!("input `{found}`: expected `{name}`")));
            }
            if self.inputs[..place].iter().any(|other| other.name == input.name) {
                return Err(Refusal::wrong(format!("input `{}`: found twice", input.name)));
            }
        }
        let ids = self.inputs.iter().find(|input| input.name == name);
        let (mut nodes, asked) = match ids {
            Some(_) if is_inline && scope.subject == Subject::Graphs => {
                let text = format!("expected either {name} or inline graphs, found both");
                return Err(Refusal::wrong(text));
            }
            Some(input) => input.asked(scope, is_inline, memory)?,
            None if is_inline && scope.subject == Subject::Nodes => (Vec::new(), Asked::Nodes),
            None if is_inline && scope.subject == Subject::Graphs => {
                (Vec::new(), Asked::Graphs { graphs: Vec::new(), sizes: Vec::new() })
            }
            None => {
                return Err(Refusal::wrong(format!(
                    "inputs: expected one, `{name}`, found {}",
                    self.inputs.len()
                )));
            }
        };
        if !is_inline {
            return Ok((nodes, asked, None));
        }
        let named = nodes.iter().filter_map(|node| node.checked_sub(NEW_NODE)).max();
        let named = named.map_or(0, |new| new + 1);
        let directions = self.parameters.get(Directions::PARAMETER).map(Directions::parse);
        let directions = directions.transpose()?.unwrap_or_default();
        let inline = Inline::read(&self.inputs, scope, named, directions, memory)?;
        if named > inline.num_nodes() {
            return Err(Refusal::wrong(format!(
                "{name}: -{named}, expected one of {} inline nodes",
                inline.num_nodes()
            )));
        }
        if ids.is_none() {
            nodes = (NEW_NODE..NEW_NODE + inline.num_nodes()).collect();
        }
        Ok((nodes, asked, Some(inline)))
    }
}

/// Builds the answer to a request: `name` of the model, `id` of the request, its seed and wanted
/// outputs. `age` is the age of a graph that takes no updates.
pub fn answer(
    model: &str,
    id: Option<&str>,
    (seed, wanted): (u64, &[String]),
    age: Option<Duration>,
    prediction: Prediction,
) -> Value {
    let Prediction { outputs, lsn, version } = prediction;
    let outputs: Vec<Output> = outputs
        .into_iter()
        .filter(|output| wanted.is_empty() || wanted.iter().any(|name| name == output.name))
        .collect();
    let mut answer = json!({
        "model_name": model,
        "model_version": &*version,
        "parameters": {"seed": seed, "lsn": lsn},
        "outputs": outputs,
    });
    if let Some(age) = age {
        answer["parameters"]["age_ms"] = json!(age.as_millis() as u64);
    }
    if let Some(id) = id {
        answer["id"] = json!(id);
    }
    answer
}

#[cfg(test)]
mod tests {
    use outercore_store::delta::ArrayShape;

    use super::*;

    const OUTPUTS: [&str; 2] = ["prediction", "probability"];

    fn asked(body: &Value) -> Result<Question, Refusal> {
        asked_of(Subject::Nodes, body)
    }

    fn asked_of(subject: Subject, body: &Value) -> Result<Question, Refusal> {
        let body = body.to_string();
        let request: InferRequest<'_> = serde_json::from_str(&body).unwrap();
        let scope = Scope {
            subject,
            num_nodes: 10,
            is_undirected: true,
            num_graphs: 3,
            most_nodes: 4,
            features: Some(ArrayShape { dtype: outercore_format::DType::F32, columns: 2 }),
            outputs: &OUTPUTS,
        };
        request.question(&scope, &mut Memory::unlimited())
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
                id: None,
                nodes: vec![7, 9],
                asked: Asked::Nodes,
                inline: None,
                seed: 5,
                min_lsn: 3,
                deadline_ms: Some(20),
                outputs: vec!["prediction".into()],
            };
            assert_eq!(asked(&body), Ok(expected));
        }
    }

    fn input(name: &str, shape: Value, data: Value) -> Value {
        json!({"inputs": [
            {"name": name, "datatype": "INT64", "shape": shape, "data": data}
        ]})
    }

    #[test]
    fn edges_name_each_node_once_and_graphs_go_by_their_ids() {
        let body = input("edge_ids", json!([3, 2]), json!([[7, 9], [9, 1], [7, 7]]));
        let question = asked_of(Subject::Edges, &body).unwrap();
        assert_eq!(question.nodes, [7, 9, 1]);
        assert_eq!(question.asked, Asked::Edges(vec![(0, 1), (1, 2), (0, 0)]));
        let body = input("graph_ids", json!([2]), json!([1, 0]));
        let question = asked_of(Subject::Graphs, &body).unwrap();
        assert_eq!(question.asked, Asked::Graphs { graphs: vec![1, 0], sizes: Vec::new() });
        let text = |subject, body| format!("{:?}", asked_of(subject, &body).unwrap_err());
        let flat = input("edge_ids", json!([2]), json!([1, 2]));
        assert!(text(Subject::Edges, flat).contains("expected [n, 2]"));
        let odd = input("edge_ids", json!([1, 2]), json!([1, 2, 3]));
        assert!(text(Subject::Edges, odd).contains("shape [1, 2] for 3 values"));
        let nodes = input("node_ids", json!([1, 2]), json!([1, 2]));
        assert!(text(Subject::Edges, nodes).contains("expected `edge_ids`"));
        let many = input("graph_ids", json!([5]), json!([0, 1, 2, 0, 1]));
        assert!(text(Subject::Graphs, many).contains("5 graphs, expected 1 to 4"));
        let none = input("graph_ids", json!([1]), json!([3]));
        assert!(text(Subject::Graphs, none).contains("3, expected a graph below 3"));
    }

    #[test]
    fn lists_that_are_not_nested_as_the_shape_says_are_refused() {
        for (subject, body) in [
            (Subject::Edges, input("edge_ids", json!([3, 2]), json!([[7, 9, 1], [2, 3, 4]]))),
            (Subject::Edges, input("edge_ids", json!([2, 2]), json!([[7, 9, 1], [2]]))),
            (Subject::Nodes, input("node_ids", json!([4]), json!([[1, 2], [3, 4]]))),
            (Subject::Nodes, input("node_ids", json!([2, 2]), json!([[1, 2, 3, 4]]))),
            (Subject::Nodes, input("x", json!([3, 2]), json!([[1, 2, 3], [4, 5, 6]]))),
            (Subject::Nodes, input("x", json!([2, 2]), json!([[1, 2, 3], [4]]))),
            (Subject::Nodes, input("x", json!([2, 2]), json!([[1, 2], 3, 4]))),
        ] {
            let refused = format!("{:?}", asked_of(subject, &body).unwrap_err());
            assert!(refused.contains("expected numbers nested as the shape"), "{body}: {refused}");
        }
    }

    #[test]
    fn null_is_as_good_as_absent() {
        let plain = nodes(json!([1]), json!([7]));
        let mut body = plain.clone();
        for member in ["id", "parameters", "outputs"] {
            body[member] = json!(null);
        }
        body["inputs"][0]["parameters"] = json!(null);
        assert_eq!(asked(&body), asked(&plain));
        body["parameters"] = json!({"seed": null, "min_lsn": null, "deadline_ms": null});
        body["parameters"]["edge_directions"] = json!(null);
        body["inputs"][0]["parameters"] = json!({"binary_data_size": null});
        assert_eq!(asked(&body), asked(&plain));
        body["outputs"] = json!([{"name": "prediction", "parameters": null}]);
        assert_eq!(asked(&body).unwrap().outputs, ["prediction"]);
        let text = |body: Value| format!("{:?}", asked(&body).unwrap_err());
        let mut unknown = plain.clone();
        unknown["parameters"] = json!({"sed": null});
        assert!(text(unknown).contains("parameter `sed`"));
        assert!(text(json!({"inputs": null})).contains("expected one, `node_ids`, found 0"));
        assert!(text(nodes(json!([1]), json!(null))).contains("expected `data`"));
        assert!(text(nodes(json!(null), json!([7]))).contains("shape [] for 1 values"));
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
