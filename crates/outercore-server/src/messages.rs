//! What `proto/inference.proto` describes.
#![allow(missing_docs, clippy::all, clippy::pedantic)]

tonic::include_proto!("inference");
