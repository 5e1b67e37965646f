//! Defence against requests that web pages of other sites send.
//!
//! A browser sends requests to any address, including addresses of its own machine. Headers that no
//! page can change say where a request comes from. One layer checks them before every route.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::refusal::Refusal;
use crate::shared::Shared;
use crate::tls::Protocol;

/// Headers in which a browser says from which site a request comes, and in which mode.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Content types of bodies.
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
const GRPC: &str = "application/grpc";

/// Path prefix of the Open Inference Protocol, and path suffix of its requests that may carry
/// bytes.
const OF_PROTOCOL: &str = "/v2/";
const INFER: &str = "/infer";

/// Refuses requests that another site sends through a browser. `Host` reveals DNS rebinding;
/// `Origin` and `Sec-Fetch-Site` reveal other pages. Bodies of types that a page may send without
/// asking are refused, too. A browser never adds a token, so a server with tokens checks only the
/// type.
pub async fn require_own_site(
    State((shared, protocol)): State<(Arc<Shared>, Protocol)>,
    request: Request,
    next: Next,
) -> Response {
    match check(&request, protocol, shared.tokens.is_some()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn check<B: HttpBody>(
    request: &axum::http::Request<B>,
    protocol: Protocol,
    has_tokens: bool,
) -> Result<(), Refusal> {
    let (method, headers) = (request.method(), request.headers());
    if !has_tokens {
        let host = match headers.get(HOST) {
            Some(_) => Some(text(headers, &HOST).and_then(|host| host.parse::<Authority>().ok())),
            // HTTP/2 has the host in the address.
            None => request.uri().authority().map(|host| Some(host.clone())),
        };
        require_loopback(host.as_ref().map(Option::as_ref))?;
        require_same_origin(method, headers, host.flatten().as_ref())?;
    }
    if method == Method::POST {
        let is_empty = request.body().is_end_stream();
        require_type(headers, request.uri().path(), protocol, is_empty)?;
    }
    Ok(())
}

/// Refuses another host, which is a sign of DNS rebinding. `Some(None)` is a host that cannot be
/// read.
fn require_loopback(host: Option<Option<&Authority>>) -> Result<(), Refusal> {
    let is_loopback = |authority: &Authority| {
        let name = authority.host().trim_matches(['[', ']']);
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    match host {
        Some(host) if !host.is_some_and(is_loopback) => {
            let text = "host: expected localhost or a loopback address";
            Err(Refusal::new(StatusCode::FORBIDDEN, text))
        }
        _ => Ok(()),
    }
}

/// Refuses requests from a page of another origin. Following a link to the server is allowed.
fn require_same_origin(
    method: &Method,
    headers: &HeaderMap,
    host: Option<&Authority>,
) -> Result<(), Refusal> {
    let is_link = method == Method::GET && text(headers, &MODE) == Some("navigate");
    let is_own_site = match headers.get(&SITE) {
        None => true,
        Some(_) => is_link || matches!(text(headers, &SITE), Some("same-origin" | "none")),
    };
    let is_own_origin = match headers.get(ORIGIN) {
        None => true,
        Some(_) => text(headers, &ORIGIN)
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(_, origin)| host.is_some_and(|host| origin == host.as_str())),
    };
    if is_own_site && is_own_origin {
        return Ok(());
    }
    let text = "web pages of other sites may not ask this server; start it with `tokens` for those";
    Err(Refusal::new(StatusCode::FORBIDDEN, text))
}

/// Refuses bodies of types that the route does not take. Pages of other sites may send some of
/// these types without the server's consent. Clients of the protocol name no type, and no body
/// needs one.
fn require_type(
    headers: &HeaderMap,
    path: &str,
    protocol: Protocol,
    is_empty: bool,
) -> Result<(), Refusal> {
    let is_of_protocol = path.starts_with(OF_PROTOCOL);
    let takes_bytes = is_of_protocol && path.ends_with(INFER);
    let is_known = match headers.get(CONTENT_TYPE) {
        None => protocol == Protocol::Http1 && (is_of_protocol || is_empty),
        Some(_) => text(headers, &CONTENT_TYPE).is_some_and(|found| {
            let found = found.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            match protocol {
                Protocol::Http1 => found == JSON || (found == BYTES && takes_bytes),
                Protocol::Http2 => found == GRPC || found.starts_with("application/grpc+"),
            }
        }),
    };
    if is_known {
        return Ok(());
    }
    let expected = match protocol {
        Protocol::Http1 if takes_bytes => format!("{JSON}` or `{BYTES}"),
        Protocol::Http1 => JSON.to_owned(),
        Protocol::Http2 => GRPC.to_owned(),
    };
    let text = format!("expected the header `Content-Type` to be `{expected}`");
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;

    use super::*;

    /// Whether a request with a body passes. `line` is its method and path; each header is
    /// `name: value`.
    fn passes(line: &str, headers: &[&str], protocol: Protocol, has_tokens: bool) -> bool {
        checked(line, headers, "{}", protocol, has_tokens).is_ok()
    }

    fn checked(
        line: &str,
        headers: &[&str],
        body: &'static str,
        protocol: Protocol,
        has_tokens: bool,
    ) -> Result<(), Refusal> {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for header in headers {
            let (name, value) = header.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        check(&request.body(Body::from(body)).unwrap(), protocol, has_tokens)
    }

    const UPDATE: &str = "POST /graph/updates";
    const TYPE: &str = "content-type: application/json";

    #[test]
    fn only_the_server_s_own_pages_and_other_programs_may_ask_without_tokens() {
        let update = |more: &[&str]| {
            let headers = [&["host: localhost:8100", TYPE], more].concat();
            let with_tokens = passes(UPDATE, &headers, Protocol::Http1, true);
            assert!(with_tokens, "{more:?} with tokens");
            passes(UPDATE, &headers, Protocol::Http1, false)
        };
        for own in [
            &[][..],
            &["origin: http://localhost:8100"],
            &["origin: https://localhost:8100", "sec-fetch-site: same-origin"],
            &["sec-fetch-site: none"],
        ] {
            assert!(update(own), "{own:?}");
        }
        for foreign in [
            &["origin: http://evil.example"][..],
            &["origin: null"],
            &["origin: http://localhost:3000"],
            &["origin: http://127.0.0.1:8100"],
            &["origin: http://localhost:8100.evil.example"],
            &["sec-fetch-site: cross-site"],
            &["sec-fetch-site: same-site"],
            &["sec-fetch-site: cross-site", "sec-fetch-mode: navigate"],
            &["origin: http://localhost:8100", "sec-fetch-site: cross-site"],
        ] {
            assert!(!update(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn a_link_to_a_page_may_be_followed() {
        let from = |mode| {
            let headers = ["host: localhost", "sec-fetch-site: cross-site", mode];
            passes("GET /metrics", &headers, Protocol::Http1, false)
        };
        assert!(from("sec-fetch-mode: navigate"));
        assert!(!from("sec-fetch-mode: no-cors"));
    }

    #[test]
    fn another_host_is_refused_without_tokens() {
        for (host, is_known) in [
            ("localhost", true),
            ("LOCALHOST:8100", true),
            ("127.0.0.1:8100", true),
            ("127.9.9.9", true),
            ("[::1]:8100", true),
            ("graph.example", false),
            ("localhost.evil.example", false),
            ("192.168.0.1", false),
            ("a b", false),
        ] {
            let header = format!("host: {host}");
            let found = passes("GET /graph", &[&header], Protocol::Http1, false);
            assert_eq!(found, is_known, "{host}");
            assert!(passes("GET /graph", &[&header], Protocol::Http1, true), "{host}");
        }
    }

    #[test]
    fn a_request_without_a_body_needs_no_type_and_still_comes_from_the_own_site() {
        let sent = |headers: &[&str], body, protocol| {
            checked("POST /graph/compact", headers, body, protocol, false).is_ok()
        };
        assert!(sent(&[], "", Protocol::Http1));
        assert!(!sent(&[], "{}", Protocol::Http1));
        assert!(!sent(&[], "", Protocol::Http2));
        for foreign in ["origin: http://evil.example", "content-type: text/plain"] {
            assert!(!sent(&[foreign], "", Protocol::Http1), "{foreign}");
        }
    }

    #[test]
    fn a_refusal_names_the_types_that_the_route_takes() {
        for (line, protocol, types) in [
            (UPDATE, Protocol::Http1, "`application/json`"),
            (
                "POST /v2/models/a/infer",
                Protocol::Http1,
                "`application/json` or `application/octet-stream`",
            ),
            ("POST /inference", Protocol::Http2, "`application/grpc`"),
        ] {
            let refused = checked(line, &["content-type: text/plain"], "{}", protocol, true);
            let refused = format!("{:?}", refused.unwrap_err());
            assert!(refused.contains(&format!("to be {types}")), "{refused}");
        }
    }

    #[test]
    fn a_body_has_the_type_that_its_route_takes() {
        let sent = |line: &str, kind: Option<&str>, protocol| {
            let kind = kind.map(|kind| format!("content-type: {kind}"));
            let headers: Vec<&str> = kind.as_deref().into_iter().collect();
            // The result must not depend on tokens.
            let (with, without) =
                (passes(line, &headers, protocol, true), passes(line, &headers, protocol, false));
            assert_eq!(with, without);
            with
        };
        let infer = "POST /v2/models/a/infer";
        for kind in ["application/json", "Application/JSON; charset=utf-8"] {
            for line in [UPDATE, "POST /graph/compact", infer, "POST /v2/repository/index"] {
                assert!(sent(line, Some(kind), Protocol::Http1), "{line} {kind}");
            }
        }
        assert!(sent(infer, Some("application/octet-stream"), Protocol::Http1));
        assert!(!sent(UPDATE, Some("application/octet-stream"), Protocol::Http1));
        assert!(sent(infer, None, Protocol::Http1));
        assert!(!sent(UPDATE, None, Protocol::Http1));
        for kind in [
            "text/plain",
            "text/plain; application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=application/json",
            "application/grpc",
        ] {
            for line in [UPDATE, infer, "POST /v2/repository/models/a/load"] {
                assert!(!sent(line, Some(kind), Protocol::Http1), "{line} {kind}");
            }
        }
        let call = "POST /inference.GRPCInferenceService/ModelInfer";
        for (kind, is_known) in [
            (Some("application/grpc"), true),
            (Some("application/grpc+proto"), true),
            (Some("text/plain"), false),
            (Some("application/json"), false),
            (None, false),
        ] {
            assert_eq!(sent(call, kind, Protocol::Http2), is_known, "{kind:?}");
        }
    }
}
