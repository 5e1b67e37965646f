//! The Open Inference Protocol over gRPC: messages are converted to the requests of HTTP and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response as HttpResponse;
use serde_json::{Value, json};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use crate::access::Access;
use crate::asked::{Data, Input};
use crate::body::MOST_BODY;
use crate::json::Parameters;
use crate::message_size::size_of_infer;
use crate::messages::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use crate::messages::infer_parameter::ParameterChoice;
use crate::messages::model_infer_response::InferOutputTensor;
use crate::messages::model_metadata_response::TensorMetadata;
use crate::messages::repository_index_response::ModelIndex;
use crate::messages::*;
use crate::metrics::{Counted, GRPC};
use crate::protocol::{InferRequest, WantedOutput};
use crate::refusal::{Refusal, cut};
use crate::repository::{self, Indexed};
use crate::shared::Shared;
use crate::site::require_own_site;
use crate::tensors;
use crate::tls::Protocol;

/// The path of the service.
const SERVICE: &str = "/inference.GRPCInferenceService/";

/// Its methods.
const METHODS: [&str; 8] = [
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    INFER,
    "RepositoryIndex",
    LOAD,
];

/// The method with tensors.
const INFER: &str = "ModelInfer";

/// Longest message of the other methods.
const MOST_SMALL: usize = 16 << 10;

/// Bytes before each message: a compression flag and the length.
const PREFIX: usize = 5;

/// The method that changes the served model.
const LOAD: &str = "RepositoryModelLoad";

/// Methods without a token.
const FREE: [&str; 2] = ["ServerLive", "ServerReady"];

/// Header with the time that the client waits.
const TIMEOUT: &str = "grpc-timeout";

/// Routes and their handlers.
pub fn router(shared: Arc<Shared>) -> Router {
    let service = GrpcInferenceServiceServer::new(Grpc { shared: Arc::clone(&shared) })
        .max_decoding_message_size(MOST_BODY);
    Router::new()
        .route_service(&format!("{SERVICE}{{method}}"), service)
        .fallback(async || Status::unimplemented("no such service").into_http::<axum::body::Body>())
        .layer(from_fn_with_state(Arc::clone(&shared), read))
        .layer(from_fn_with_state(Arc::clone(&shared), require_token))
        .layer(from_fn_with_state((Arc::clone(&shared), Protocol::Http2), require_own_site))
        .layer(from_fn_with_state(shared, count))
}

/// Refuses calls without a token, if the server has tokens. The two health methods need none.
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

/// Counts calls by outcome.
async fn count(State(shared): State<Arc<Shared>>, call: HttpRequest, next: Next) -> HttpResponse {
    let method = call.uri().path().strip_prefix(SERVICE).unwrap_or_default();
    let method = METHODS.iter().find(|&&known| known == method).unwrap_or(&"other");
    let mut counted = Counted::new(&shared.metrics, GRPC, method);
    let answer = next.run(call).await;
    if answer.status() == StatusCode::OK {
        // A failed call has its code in the headers, because no message follows them.
        let failed = Status::from_header_map(answer.headers());
        counted.ended(&format!("{:?}", failed.map_or(Code::Ok, |status| status.code())));
    } else {
        counted.ended(answer.status().as_str());
    }
    answer
}

/// Reads the message of a call before any other work. Reserves the memory of the decoded message
/// before it is decoded.
async fn read(State(shared): State<Arc<Shared>>, call: HttpRequest, next: Next) -> HttpResponse {
    let (head, body) = call.into_parts();
    let is_infer = head.uri.path().strip_prefix(SERVICE) == Some(INFER);
    let most = if is_infer { shared.most_body() } else { MOST_SMALL };
    let read = async {
        let mut whole = shared.bodies.read(body, PREFIX + most).await?;
        let size = if is_infer { size_decoded(&whole.bytes)? } else { 0 };
        // Until the message is decoded, its bytes exist twice.
        whole.memory.take(whole.bytes.len() + size)?;
        Ok::<_, Refusal>((whole.bytes, whole.memory))
    };
    match read.await {
        Err(refusal) => Status::from(refusal).into_http(),
        Ok((bytes, memory)) => {
            let length = bytes.len();
            let call = HttpRequest::from_parts(head, bytes.into());
            let work = async move {
                let answer = next.run(call).await;
                drop(memory);
                answer
            };
            shared.bodies.run(length, work).await
        }
    }
}

/// Memory of a decoded `ModelInferRequest`; `bytes` begins with the prefix. A compressed message is
/// not decoded, because the call is refused.
fn size_decoded(bytes: &[u8]) -> Result<usize, Refusal> {
    match bytes.split_at_checked(PREFIX) {
        Some(([0, ..], message)) => size_of_infer(message),
        _ => Ok(0),
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
        let client = request.extensions().get().copied().unwrap_or_default();
        let message = request.into_inner();
        self.require(&message.model_name, &message.model_version)?;
        let question = {
            let mut memory = self.shared.bodies.memory();
            let request = request_of(&message, patience)?;
            (self.shared.question(&request, &mut memory)?, memory)
        };
        let version = Some(message.model_version).filter(|version| !version.is_empty());
        let answer = self.shared.infer(client, question, version.as_deref(), began).await?;
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
        repository::require_none(parameters.keys().next().map(String::as_str))?;
        self.shared.load().await?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }
}

impl Grpc {
    fn require(&self, name: &str, version: &str) -> Result<(), Refusal> {
        self.shared.require(name, Some(version).filter(|version| !version.is_empty()))
    }
}

/// How long the client waits: a number of up to 8 digits and a unit.
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

/// Converts a message to a request of HTTP. The bytes of the tensors are borrowed from the message.
///
/// # Errors
/// Fewer or more tensors as bytes than inputs.
pub fn request_of(
    message: &ModelInferRequest,
    patience: Option<Duration>,
) -> Result<InferRequest<'_>, Refusal> {
    let ModelInferRequest { id, parameters, inputs, outputs, raw_input_contents: raw, .. } =
        message;
    if !raw.is_empty() && raw.len() != inputs.len() {
        let text = format!("raw_input_contents: {}, for {} inputs", raw.len(), inputs.len());
        return Err(Refusal::wrong(text));
    }
    let has_contents = |contents: &InferTensorContents| *contents != InferTensorContents::default();
    if !raw.is_empty()
        && let Some(both) =
            inputs.iter().find(|input| input.contents.as_ref().is_some_and(has_contents))
    {
        let name = cut(&both.name);
        return Err(Refusal::wrong(format!(
            "{name}: expected either contents or raw_input_contents, found both"
        )));
    }
    let mut raw = raw.iter();
    let tensors = inputs.iter().map(|input| Input {
        name: input.name.clone(),
        datatype: input.datatype.clone(),
        shape: input.shape.clone(),
        data: match (raw.next(), &input.contents) {
            (Some(bytes), _) => Data::Bytes(bytes),
            (None, Some(contents)) => Data::Message(contents),
            // A tensor without values has no contents either; it counts as zero bytes.
            (None, None) => Data::Bytes(&[]),
        },
        parameters: Parameters::default(),
    });
    let known = parameters.iter().filter_map(|(name, value)| {
        Some((name.clone(), parameter(value.parameter_choice.as_ref()?).to_string().into()))
    });
    let mut request = InferRequest {
        id: Some(id.clone()).filter(|id| !id.is_empty()),
        parameters: Parameters(known.collect()),
        inputs: tensors.collect(),
        outputs: outputs
            .iter()
            .map(|output| WantedOutput {
                name: output.name.clone(),
                parameters: Parameters::default(),
            })
            .collect(),
    };
    if let Some(patience) = patience {
        let patience = patience.as_millis() as u64;
        let asked = request.parameters.get("deadline_ms").map(str::parse::<u64>);
        // A timeout that is not a number is refused later.
        if let Ok(asked) = asked.unwrap_or(Ok(u64::MAX)) {
            request.parameters.take("deadline_ms");
            let sooner = asked.min(patience).to_string();
            request.parameters.0.push(("deadline_ms".into(), sooner.into()));
        }
    }
    Ok(request)
}

fn parameter(choice: &ParameterChoice) -> Value {
    match choice {
        ParameterChoice::BoolParam(value) => json!(value),
        ParameterChoice::Int64Param(value) => json!(value),
        ParameterChoice::StringParam(value) => json!(value),
        ParameterChoice::DoubleParam(value) => json!(value),
        ParameterChoice::Uint64Param(value) => json!(value),
    }
}

/// Converts an answer of HTTP to a message.
///
/// # Errors
/// Only for an answer that cannot be converted, which does not occur.
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
    use crate::body::Memory;

    #[test]
    fn only_a_message_that_is_decoded_is_measured() {
        let message = |flag: u8, bytes: &[u8]| [&[flag, 0, 0, 0, 0][..], bytes].concat();
        assert!(size_decoded(&message(0, &[0xff; 20])).is_err());
        assert!(size_decoded(&message(0, &[0x2a, 0])).unwrap() > 0);
        assert_eq!(size_decoded(&message(1, &[0xff; 20])), Ok(0));
        assert_eq!(size_decoded(&[0, 0]), Ok(0));
    }

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
            let request = request_of(&message, patience).unwrap();
            let scope = Scope {
                subject: Subject::Nodes,
                num_nodes: 10,
                is_undirected: true,
                num_graphs: 0,
                most_nodes: 4,
                features: None,
                outputs: &[],
            };
            request.question(&scope, &mut Memory::unlimited()).unwrap().deadline_ms
        };
        let patience = Some(Duration::from_millis(20));
        assert_eq!(deadline(None, None), None);
        assert_eq!(deadline(Some(5), None), Some(5));
        assert_eq!(deadline(None, patience), Some(20));
        assert_eq!(deadline(Some(5), patience), Some(5));
        assert_eq!(deadline(Some(50), patience), Some(20));
    }
}
