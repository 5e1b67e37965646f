//! Message types generated from `proto/inference.proto`.
#![allow(missing_docs, clippy::all, clippy::pedantic)]

tonic::include_proto!("inference");
