//! Manifests, `.npy` headers, updates and frames of the log, from any bytes.

use std::path::PathBuf;

use outercore_format::log::{FRAME_HEADER, SEGMENT_HEADER};
use outercore_format::{DType, NpyHeader, fuzz};
use outercore_testkit::fuzz::{keep, run};

#[test]
fn any_bytes_as_a_manifest() {
    run("manifest", fuzz::manifest);
}

#[test]
fn any_bytes_as_an_npy_header() {
    run("npy_header", fuzz::npy_header);
}

#[test]
fn any_bytes_as_updates() {
    run("updates", fuzz::updates);
}

#[test]
fn any_bytes_as_frames_of_the_log() {
    run("log_frames", fuzz::log_frames);
}

#[test]
#[ignore = "writes `fuzz/corpus`"]
fn write_the_first_inputs() {
    for version in 1..=4 {
        let root = frozen(version);
        let manifest = std::fs::read(root.join("graph.json")).unwrap();
        keep("manifest", &format!("format-{version}"), &manifest);
        // Without a checksum, so that changes reach the later checks.
        let text = String::from_utf8(manifest).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.contains("\"checksum\": \"xxh3:") || line.starts_with("    "));
        let bare: Vec<&str> = lines.collect();
        keep("manifest", &format!("format-{version}-bare"), bare.join("\n").as_bytes());
    }
    let text =
        |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    for (name, version, shape) in
        [("one", 1u8, "(7,)"), ("two", 2, "(3, 4)"), ("long", 3, "(3L, 0L, )"), ("scalar", 1, "()")]
    {
        let text = text(shape);
        let mut header = b"\x93NUMPY".to_vec();
        header.extend([version, 0]);
        match version {
            1 => header.extend((text.len() as u16).to_le_bytes()),
            _ => header.extend((text.len() as u32).to_le_bytes()),
        }
        header.extend(text.as_bytes());
        keep("npy_header", name, &header);
    }
    let ours = NpyHeader::encode(DType::F16, &[1000, 128]);
    keep("npy_header", "ours", &ours[..256]);
    for version in [2, 3] {
        let log = std::fs::read(frozen(version).join("live/00000000000000000001.log")).unwrap();
        keep("log_frames", &format!("segment-{version}"), &log[..SEGMENT_HEADER]);
        keep("log_frames", &format!("frame-{version}"), &log[SEGMENT_HEADER..]);
        let frame = &log[SEGMENT_HEADER..];
        let len = u32::from_le_bytes(frame[4..8].try_into().unwrap()) as usize;
        let body = &frame[FRAME_HEADER..FRAME_HEADER + len];
        keep("updates", &format!("body-{version}"), body);
        keep("log_frames", &format!("body-{version}"), &[&frame[32..33], body].concat());
    }
}

fn frozen(version: u32) -> PathBuf {
    PathBuf::from(format!("{}/../../tests/data/format-{version}", env!("CARGO_MANIFEST_DIR")))
}
