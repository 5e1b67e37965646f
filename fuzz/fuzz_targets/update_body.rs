#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outercore_server::fuzz::update_bodies(bytes));
