//! The OpenAPI description, assembled from the descriptions of the handlers.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi as Description, Required};
use utoipa::{Modify, OpenApi};

use crate::api_types::AnyRefusal;
use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::{analyses_http, graph_http, http, repository};

/// Path prefix of the routes about a model.
const MODEL: &str = "/v2/models/{model}";

/// Name of the only security scheme.
const BEARER: &str = "bearer";

/// Paths that need no token.
const FREE: [&str; 2] = ["/v2/health/live", "/v2/health/ready"];

/// Builds the description, including the routes that name a version of a model. With `has_tokens`,
/// most routes need a token.
pub fn description(has_tokens: bool) -> Description {
    let mut description = Api::openapi();
    if has_tokens {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        description.components.get_or_insert_default().add_security_scheme(BEARER, scheme);
        let needed = || vec![SecurityRequirement::new(BEARER, [""; 0])];
        for (path, item) in &mut description.paths.paths {
            for operation in [&mut item.get, &mut item.post, &mut item.delete].into_iter().flatten()
            {
                operation.security = (!FREE.contains(&path.as_str())).then(needed);
            }
        }
    }
    description
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Outercore",
        description = "Predictions next to the data, and updates of the graph.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        http::server,
        http::live,
        http::ready,
        http::model,
        http::model_ready,
        http::infer,
        http::metrics,
        openapi,
        graph_http::graph,
        graph_http::update,
        graph_http::compact,
        analyses_http::start,
        analyses_http::all,
        analyses_http::one,
        analyses_http::remove,
        analyses_http::values,
        repository::index,
        repository::load
    ),
    modifiers(&Versions)
)]
struct Api;

/// Adds the routes with a version. They have the same handlers as the routes without one.
struct Versions;

impl Modify for Versions {
    fn modify(&self, description: &mut Description) {
        let paths = &mut description.paths.paths;
        let of_models: Vec<String> =
            paths.keys().filter(|path| path.starts_with(MODEL)).cloned().collect();
        for path in of_models {
            let mut item = paths[&path].clone();
            for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
                operation.parameters.get_or_insert_default().push(version().into());
                if let Some(id) = &mut operation.operation_id {
                    id.push_str("_of_version");
                }
            }
            let rest = &path[MODEL.len()..];
            paths.insert(format!("{MODEL}/versions/{{version}}{rest}"), item);
        }
    }
}

fn version() -> Parameter {
    ParameterBuilder::new()
        .name("version")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("Version of the model"))
        .schema(Some(utoipa::schema!(String)))
        .build()
}

/// Returns this OpenAPI description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "operation",
    responses((status = 200, body = Object, description = "OpenAPI 3.1"), AnyRefusal)
)]
pub async fn openapi(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    // Built once, because it takes as long as many predictions.
    static TEXTS: [OnceLock<Bytes>; 2] = [OnceLock::new(), OnceLock::new()];
    let has_tokens = shared.tokens.is_some();
    let known = &TEXTS[usize::from(has_tokens)];
    let text = match known.get() {
        Some(text) => text.clone(),
        None => {
            let made = serde_json::to_vec(&description(has_tokens));
            let made = made.map_err(|_| Refusal::failed())?;
            known.get_or_init(|| made.into()).clone()
        }
    };
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}
