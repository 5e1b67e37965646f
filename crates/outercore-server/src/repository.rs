//! Routes of the protocol's model repository: list the model and load its newer weights.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api_types::{
    AnyRefusal, BodyRefusal, LoadRefusal, Model, ModelRefusal, TypeRefusal, WorkRefusal,
};
use crate::json::{Parameters, check_sizes};
use crate::refusal::{Refusal, cut};
use crate::shared::Shared;

/// Name of this extension in the protocol.
pub const EXTENSION: &str = "model_repository";

/// Longest body of these requests.
const MOST_BODY: usize = 64 << 10;

/// A model of the repository.
#[derive(Serialize, ToSchema)]
pub struct Indexed {
    pub name: String,
    pub version: String,
    /// `READY`, or `UNAVAILABLE` while the server stops.
    pub state: &'static str,
    /// Why the model is unavailable.
    pub reason: &'static str,
}

/// Body of a load request.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a description")]
pub struct LoadRequest {
    /// Must be absent or empty: the model always comes from the server's own directory.
    parameters: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Load<'a> {
    #[serde(borrow)]
    parameters: Parameters<'a>,
}

/// The models of the server.
pub fn indexed(shared: &Shared) -> Indexed {
    let (state, reason) = match shared.is_ready() {
        true => ("READY", ""),
        false => ("UNAVAILABLE", "the server is stopping"),
    };
    let version = shared.served.version().to_string();
    Indexed { name: shared.name.clone(), version, state, reason }
}

/// Lists the models.
#[utoipa::path(
    post,
    path = "/v2/repository/index",
    tag = "models",
    responses((status = 200, body = Vec<Indexed>), AnyRefusal, TypeRefusal)
)]
pub async fn index(State(shared): State<Arc<Shared>>) -> Json<Vec<Indexed>> {
    Json(vec![indexed(&shared)])
}

/// Reads the model again and answers with its newer weights from then on.
#[utoipa::path(
    post,
    path = "/v2/repository/models/{model}/load",
    tag = "models",
    params(Model),
    request_body(content = Option<LoadRequest>, example = json!({})),
    responses(
        (status = 200, body = Object, description = "The new version answers"),
        AnyRefusal,
        BodyRefusal,
        TypeRefusal,
        ModelRefusal,
        LoadRefusal,
        WorkRefusal
    )
)]
pub async fn load(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
    body: Body,
) -> Result<Json<Value>, Refusal> {
    let Path(name) = path.map_err(|_| Refusal::unknown("the model in the path is not UTF-8"))?;
    shared.require(&name, None)?;
    let body = shared.bodies.read(body, MOST_BODY).await?;
    let decode = |body: &[u8], _: &mut _| {
        check_sizes(body)?;
        let request = match body.is_empty() {
            true => Load::default(),
            false => serde_json::from_slice(body)
                .map_err(|error| Refusal::wrong(format!("the body is no load request: {error}")))?,
        };
        require_none(request.parameters.0.first().map(|(name, _)| &**name))
    };
    shared.bodies.decode(body, decode).await?;
    shared.load().await?;
    Ok(Json(json!({})))
}

/// Refuses any parameter.
///
/// # Errors
/// A parameter is given.
pub fn require_none(parameter: Option<&str>) -> Result<(), Refusal> {
    let Some(name) = parameter else { return Ok(()) };
    Err(Refusal::wrong(format!(
        "parameter `{}`: a load takes none; the model comes from the server's directory",
        cut(name)
    )))
}
