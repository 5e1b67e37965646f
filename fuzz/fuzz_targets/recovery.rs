#![no_main]

#[path = "../../crates/outercore-live/tests/recovery/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::recovery(bytes));
