#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outercore_format::fuzz::manifest(bytes));
