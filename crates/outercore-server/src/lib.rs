//! Predictions next to the data. Requests arrive over HTTP or gRPC. The process that has the data
//! set open samples the neighbourhoods, gathers the features and computes the model. Only results
//! leave it.
//!
//! Layer 6. The protocol is the Open Inference Protocol, version 2 (`node_ids` in, `prediction` and
//! `probability` out). Waiting requests are answered together, but the answer to a request depends
//! only on its nodes and its seed.
//!
//! **Source** GLIST 3 (the store computes) and 4.1 (the requests of table 3).
#![forbid(unsafe_code)]

mod access;
mod analyses;
mod analyses_http;
mod api_types;
mod arrays;
mod asked;
mod binary;
mod body;
mod comparison;
mod compute;
mod config;
mod directions;
mod element;
#[doc(hidden)]
pub mod fuzz;
mod gauges;
mod graph;
mod graph_http;
mod grpc;
mod http;
mod inline;
mod json;
mod limits;
mod live_metrics;
mod loss;
mod message_size;
mod messages;
mod metrics;
mod openapi;
mod output;
mod patient;
mod predictor;
mod protocol;
mod question;
mod queue;
mod refusal;
mod repository;
mod routes;
mod sample;
mod served;
mod server;
mod shared;
mod site;
mod states;
mod tensors;
mod tls;
mod turns;
mod updates;

pub use config::ServerConfig;
pub use loss::{Loss, Measure};
pub use server::Server;
