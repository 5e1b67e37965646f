//! Trained networks as data: a manifest and weights in, logits of a sampled subgraph out.
//!
//! Layer 1. A model is a directory with `model.json` and `model.safetensors`, which
//! `outercore export-model` writes; `docs/design/0019-models-as-data.md` says what is in them. The
//! set of layers is closed, so a model never holds code. Nothing is trusted before it is checked.
//!
//! A forward pass runs on the calling thread and shares nothing: a server calls it from many.
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
