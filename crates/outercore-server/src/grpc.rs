//! The Open Inference Protocol over gRPC: messages become the requests of HTTP, and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response as HttpResponse;
use serde_json::{Map, Value, json};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use self::messages::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use self::messages::infer_parameter::ParameterChoice;
use self::messages::model_infer_response::InferOutputTensor;
use self::messages::model_metadata_response::TensorMetadata;
use self::messages::repository_index_response::ModelIndex;
use self::messages::*;
use crate::access::Access;
use crate::asked::cut;
use crate::metrics::{Counted, GRPC};
use crate::protocol::InferRequest;
use crate::refusal::Refusal;
use crate::repository::{self, Indexed};
use crate::routes::require_loopback;
use crate::shared::Shared;
use crate::tensors;

/// What `proto/inference.proto` describes.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
mod messages {
    tonic::include_proto!("inference");
}

/// The path of the service.
const SERVICE: &str = "/inference.GRPCInferenceService/";

/// Its methods.
const METHODS: [&str; 8] = [
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "RepositoryIndex",
    LOAD,
];

/// The one that changes what is answered.
const LOAD: &str = "RepositoryModelLoad";

/// Those that need no token.
const FREE: [&str; 2] = ["ServerLive", "ServerReady"];

/// Says how long the client waits.
const TIMEOUT: &str = "grpc-timeout";

/// Routes and their handlers.
pub fn router(shared: Arc<Shared>) -> Router {
    let service = GrpcInferenceServiceServer::new(Grpc { shared: Arc::clone(&shared) })
        .max_decoding_message_size(shared.most_body());
    Router::new()
        .route_service(&format!("{SERVICE}{{method}}"), service)
        .fallback(async || Status::unimplemented("no such service").into_http::<axum::body::Body>())
        .layer(from_fn_with_state(Arc::clone(&shared), bound))
        .layer(from_fn_with_state(Arc::clone(&shared), require_token))
        .layer(from_fn_with_state(Arc::clone(&shared), require_loopback))
        .layer(from_fn_with_state(shared, count))
}

/// Refuses calls without a token, where there are tokens; the two about the server's health need
/// none.
async fn require_token(
    State(shared): State<Arc<Shared>>,
    call: HttpRequest,
    next: Next,
) -> HttpResponse {
    let method = call.uri().path().strip_prefix(SERVICE).unwrap_or_default();
    let needed = if method == LOAD { Access::Update } else { Access::Read };
    if !FREE.contains(&method)
        && let Err(refusal) = shared.require_access(call.headers(), needed)
    {
        return Status::from(refusal).into_http();
    }
    next.run(call).await
}

/// Counts a call by its outcome.
async fn count(State(shared): State<Arc<Shared>>, call: HttpRequest, next: Next) -> HttpResponse {
    let method = call.uri().path().strip_prefix(SERVICE).unwrap_or_default();
    let method = METHODS.iter().find(|&&known| known == method).unwrap_or(&"other");
    let mut counted = Counted::new(&shared.metrics, GRPC, method);
    let answer = next.run(call).await;
    if answer.status() == StatusCode::OK {
        // A call that fails has its code in the headers, since no message follows them.
        let failed = Status::from_header_map(answer.headers());
        counted.ended(&format!("{:?}", failed.map_or(Code::Ok, |status| status.code())));
    } else {
        counted.ended(answer.status().as_str());
    }
    answer
}

/// Refuses calls beyond those that may wait, whose messages would take memory; ends calls whose
/// message comes too slowly.
async fn bound(State(shared): State<Arc<Shared>>, call: HttpRequest, next: Next) -> HttpResponse {
    let Ok(_permit) = shared.calls.try_acquire() else {
        return Status::from(Refusal::overloaded()).into_http();
    };
    match tokio::time::timeout(shared.limits.body + shared.deadline, next.run(call)).await {
        Ok(answer) => answer,
        Err(_) => Status::from(Refusal::late()).into_http(),
    }
}

struct Grpc {
    shared: Arc<Shared>,
}

#[tonic::async_trait]
impl GrpcInferenceService for Grpc {
    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: self.shared.is_ready() }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        self.require(&name, &version)?;
        Ok(Response::new(ModelReadyResponse { ready: self.shared.is_ready() }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(ServerMetadataResponse {
            name: "outercore".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: vec![repository::EXTENSION.into()],
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        self.require(&name, &version)?;
        let described = self.shared.described();
        let tensors = |key: &str| {
            items(&described[key]).iter().map(|tensor| TensorMetadata {
                name: text(&tensor["name"]),
                datatype: text(&tensor["datatype"]),
                shape: shape(&tensor["shape"]),
            })
        };
        Ok(Response::new(ModelMetadataResponse {
            name: text(&described["name"]),
            versions: items(&described["versions"]).iter().map(text).collect(),
            platform: text(&described["platform"]),
            inputs: tensors("inputs").collect(),
            outputs: tensors("outputs").collect(),
        }))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let began = Instant::now();
        let patience = timeout_of(request.metadata());
        let message = request.into_inner();
        self.require(&message.model_name, &message.model_version)?;
        let version = Some(message.model_version.clone()).filter(|version| !version.is_empty());
        let request = request_of(message, patience)?;
        let answer = self.shared.infer(request, version.as_deref(), began).await?;
        Ok(Response::new(answer_of(&answer)?))
    }

    async fn repository_index(
        &self,
        _: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let Indexed { name, version, state, reason } = repository::indexed(&self.shared);
        let (state, reason) = (state.to_owned(), reason.to_owned());
        let models = vec![ModelIndex { name, version, state, reason }];
        Ok(Response::new(RepositoryIndexResponse { models }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        let RepositoryModelLoadRequest { model_name, parameters, .. } = request.into_inner();
        self.require(&model_name, "")?;
        repository::require_none(parameters.keys().next())?;
        self.shared.load().await?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }
}

impl Grpc {
    fn require(&self, name: &str, version: &str) -> Result<(), Refusal> {
        self.shared.require(name, Some(version).filter(|version| !version.is_empty()))
    }
}

/// How long the client waits: a number of up to 8 digits, and a unit.
fn timeout_of(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get(TIMEOUT)?.to_str().ok()?;
    let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count = u64::from(count.parse::<u32>().ok()?);
    match unit {
        "H" => Some(Duration::from_secs(count * 60 * 60)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// A message as HTTP has it.
///
/// # Errors
/// Bytes that are no values; fewer or more of them than inputs.
fn request_of(
    message: ModelInferRequest,
    patience: Option<Duration>,
) -> Result<InferRequest, Refusal> {
    let ModelInferRequest { id, parameters, inputs, outputs, raw_input_contents: raw, .. } =
        message;
    if !raw.is_empty() && raw.len() != inputs.len() {
        let text = format!("raw_input_contents: {}, for {} inputs", raw.len(), inputs.len());
        return Err(Refusal::wrong(text));
    }
    let mut raw = raw.into_iter();
    let mut tensors = Vec::new();
    for input in inputs {
        let data = match (raw.next(), input.contents) {
            (Some(_), Some(given)) if given != InferTensorContents::default() => {
                let name = cut(&input.name);
                return Err(Refusal::wrong(format!(
                    "{name}: expected either contents or raw_input_contents, found both"
                )));
            }
            (Some(bytes), _) => tensors::decode(&input.name, &input.datatype, &bytes)?,
            (None, given) => contents(&input.name, &input.datatype, given.unwrap_or_default())?,
        };
        tensors.push(json!({
            "name": input.name,
            "datatype": input.datatype,
            "shape": input.shape,
            "data": data,
        }));
    }
    let parameters = parameters
        .into_iter()
        .filter_map(|(name, value)| Some((name, parameter(value.parameter_choice?))));
    let mut parameters: Map<String, Value> = parameters.collect();
    if let Some(patience) = patience {
        let patience = patience.as_millis() as u64;
        let asked = parameters.get("deadline_ms").map(Value::as_u64);
        // What is no number is refused later.
        if let Some(asked) = asked.unwrap_or(Some(u64::MAX)) {
            parameters.insert("deadline_ms".into(), json!(asked.min(patience)));
        }
    }
    let outputs: Vec<Value> =
        outputs.into_iter().map(|output| json!({"name": output.name})).collect();
    let request = json!({
        "id": Some(id).filter(|id| !id.is_empty()),
        "parameters": parameters,
        "inputs": tensors,
        "outputs": outputs,
    });
    serde_json::from_value(request)
        .map_err(|error| Refusal::wrong(format!("the message is no inference request: {error}")))
}

fn parameter(choice: ParameterChoice) -> Value {
    match choice {
        ParameterChoice::BoolParam(value) => json!(value),
        ParameterChoice::Int64Param(value) => json!(value),
        ParameterChoice::StringParam(value) => json!(value),
        ParameterChoice::DoubleParam(value) => json!(value),
        ParameterChoice::Uint64Param(value) => json!(value),
    }
}

/// The values of a tensor that are given as numbers, in the field that is for its datatype.
///
/// # Errors
/// Values in another field: those of two fields have no order.
fn contents(name: &str, datatype: &str, all: InferTensorContents) -> Result<Vec<Value>, Refusal> {
    fn values<T: Into<Value>>(numbers: Vec<T>) -> Vec<Value> {
        numbers.into_iter().map(Into::into).collect()
    }
    let fields = [
        ("bool_contents", values(all.bool_contents)),
        ("int_contents", values(all.int_contents)),
        ("int64_contents", values(all.int64_contents)),
        ("uint_contents", values(all.uint_contents)),
        ("uint64_contents", values(all.uint64_contents)),
        ("fp32_contents", values(all.fp32_contents)),
        ("fp64_contents", values(all.fp64_contents)),
        ("bytes_contents", all.bytes_contents.iter().map(|_| Value::Null).collect()),
    ];
    let own = match datatype {
        "BOOL" => "bool_contents",
        "INT8" | "INT16" | "INT32" => "int_contents",
        "INT64" => "int64_contents",
        "UINT8" | "UINT16" | "UINT32" => "uint_contents",
        "UINT64" => "uint64_contents",
        "FP32" => "fp32_contents",
        "FP64" => "fp64_contents",
        _ => {
            let (name, found) = (cut(name), cut(datatype));
            let text = format!("{name}: datatype {found} cannot be given as contents");
            return Err(Refusal::wrong(text));
        }
    };
    let mut found = Vec::new();
    for (field, values) in fields {
        if field == own {
            found = values;
        } else if !values.is_empty() {
            let name = cut(name);
            let text = format!("{name}: values in {field}, expected {own} for {datatype}");
            return Err(Refusal::wrong(text));
        }
    }
    if found.iter().any(Value::is_null) {
        // Numbers that are not finite become null.
        return Err(Refusal::wrong(format!("{}: expected finite numbers", cut(name))));
    }
    Ok(found)
}

/// An answer of HTTP as a message.
///
/// # Errors
/// None that an answer can have.
fn answer_of(answer: &Value) -> Result<ModelInferResponse, Refusal> {
    let outputs = items(&answer["outputs"]);
    let raw = outputs
        .iter()
        .map(|output| tensors::encode(&text(&output["datatype"]), items(&output["data"])));
    let described = outputs.iter().map(|output| InferOutputTensor {
        name: text(&output["name"]),
        datatype: text(&output["datatype"]),
        shape: shape(&output["shape"]),
        ..InferOutputTensor::default()
    });
    let parameters = answer["parameters"].as_object().into_iter().flatten();
    let parameters = parameters.map(|(name, value)| (name.clone(), parameter_of(value)));
    Ok(ModelInferResponse {
        model_name: text(&answer["model_name"]),
        model_version: text(&answer["model_version"]),
        id: text(&answer["id"]),
        parameters: parameters.collect(),
        outputs: described.collect(),
        raw_output_contents: raw.collect::<Result<_, _>>()?,
    })
}

fn parameter_of(value: &Value) -> InferParameter {
    let choice = match value {
        Value::Bool(value) => ParameterChoice::BoolParam(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => ParameterChoice::Int64Param(value),
            (_, Some(value), _) => ParameterChoice::Uint64Param(value),
            (.., value) => ParameterChoice::DoubleParam(value.unwrap_or_default()),
        },
        other => ParameterChoice::StringParam(text(other)),
    };
    InferParameter { parameter_choice: Some(choice) }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn shape(value: &Value) -> Vec<i64> {
    items(value).iter().filter_map(Value::as_i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::{Scope, Subject};

    #[test]
    fn the_deadline_of_a_call_is_read_in_every_unit() {
        let read = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(TIMEOUT, text.parse().unwrap());
            timeout_of(&metadata).map(|patience| patience.as_nanos())
        };
        assert_eq!(read("1H"), Some(3_600_000_000_000));
        assert_eq!(read("2M"), Some(120_000_000_000));
        assert_eq!(read("3S"), Some(3_000_000_000));
        assert_eq!(read("99999999m"), Some(99_999_999_000_000));
        assert_eq!(read("5u"), Some(5_000));
        assert_eq!(read("6n"), Some(6));
        assert_eq!(["", "7", "S", "-1S", "1x"].map(read), [None; 5]);
    }

    #[test]
    fn the_shorter_deadline_counts() {
        let deadline = |asked: Option<i64>, patience| {
            let choice = asked.map(ParameterChoice::Int64Param);
            let parameters = choice.map(|choice| {
                ("deadline_ms".to_owned(), InferParameter { parameter_choice: Some(choice) })
            });
            let input = model_infer_request::InferInputTensor {
                name: "node_ids".into(),
                datatype: "INT64".into(),
                shape: vec![1],
                ..Default::default()
            };
            let message = ModelInferRequest {
                parameters: parameters.into_iter().collect(),
                inputs: vec![input],
                raw_input_contents: vec![7_i64.to_le_bytes().to_vec()],
                ..ModelInferRequest::default()
            };
            let request = request_of(message, patience).unwrap();
            let scope = Scope {
                subject: Subject::Nodes,
                num_nodes: 10,
                is_undirected: true,
                num_graphs: 0,
                most_nodes: 4,
                features: None,
                outputs: &[],
            };
            request.question(&scope).unwrap().deadline_ms
        };
        let patience = Some(Duration::from_millis(20));
        assert_eq!(deadline(None, None), None);
        assert_eq!(deadline(Some(5), None), Some(5));
        assert_eq!(deadline(None, patience), Some(20));
        assert_eq!(deadline(Some(5), patience), Some(5));
        assert_eq!(deadline(Some(50), patience), Some(20));
    }
}
