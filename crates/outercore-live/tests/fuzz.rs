//! A log of updates on disk, from any bytes.

mod recovery;

use outercore_testkit::fuzz::{keep, run};

#[test]
fn any_bytes_as_a_log_on_disk() {
    run("recovery", recovery::recovery);
}

#[test]
#[ignore = "writes `fuzz/corpus`"]
fn write_the_first_inputs() {
    for (name, bytes) in recovery::first_inputs() {
        keep("recovery", &name, &bytes);
    }
}
