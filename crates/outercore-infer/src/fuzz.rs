//! Bodies of fuzz targets. Each accepts any bytes and panics if a property does not hold.

use outercore_core::{Error, ErrorKind};
use safetensors::SafeTensors;

use crate::manifest::Manifest;
use crate::model::Model;
use crate::precision::Precision;
use crate::tensors::{digest, most_bytes};

/// Limit for the file of weights, so that an input cannot allocate gigabytes.
const MOST: u64 = 4 << 20;

/// Two files of a model: a length in four bytes, `model.json` of that length, and the weights.
///
/// Digests are corrected first, because a random change would otherwise always fail there. A model
/// that opens must accept inputs and give outputs as described in its manifest.
pub fn model(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return };
    let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
    let (json, weights) = rest.split_at(length);
    let mut manifest = match Manifest::parse(json) {
        Ok(manifest) => manifest,
        Err(error) => return told(&error),
    };
    let most = most_bytes(&manifest);
    assert!(most > 8);
    assert!(manifest.outputs() > 0 || manifest.head.is_some());
    if weights.len() as u64 > most.min(MOST) {
        return;
    }
    let (data, version) = match SafeTensors::read_metadata(weights) {
        Ok((header, metadata)) => {
            let members = metadata.metadata().clone().unwrap_or_default();
            let version = members.get("manifest").cloned();
            (weights.get(8 + header..).unwrap_or_default(), version)
        }
        Err(_) => (&[][..], None),
    };
    manifest.weights = digest(data);
    let version = version.unwrap_or_default();
    for precision in [Precision::Float32, Precision::Int8] {
        match Model::build(manifest.clone(), version.clone(), weights, precision) {
            Ok(model) => {
                assert_eq!(model.features(), manifest.columns());
                assert_eq!(model.version(), version);
            }
            Err(error) => told(&error),
        }
    }
}

/// Bytes from outside never cause an internal error, and the error always has a message.
fn told(error: &Error) {
    assert!(error.kind() != ErrorKind::Internal, "internal error: {error}");
    assert!(!error.message().trim().is_empty(), "an error without a message");
}
