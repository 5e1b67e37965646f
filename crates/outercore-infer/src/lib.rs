//! Trained networks as data: computes the logits of a sampled subgraph from a manifest and weights.
//!
//! Layer 1. A model is a directory with `model.json` and `model.safetensors`, written by `outercore
//! export-model`; `docs/design/0019-models-as-data.md` describes their content. The set of layers
//! is fixed, so a model never contains code. All content is checked before use.
//!
//! A forward pass runs on the calling thread and shares no state, so a server may call it from many
//! threads.
#![forbid(unsafe_code)]

mod answer;
mod convolution;
mod ends;
#[doc(hidden)]
pub mod fuzz;
mod linear;
mod manifest;
mod matrix;
mod model;
mod norm;
mod precision;
mod subgraph;
mod tensors;

pub use answer::Answer;
pub use manifest::{
    Head, Input, Jumping, Kind, Manifest, Network, NormKind, PairScore, Readout, Task, TaskKind,
};
pub use model::{Forward, Model};
pub use precision::Precision;
pub use subgraph::Subgraph;
