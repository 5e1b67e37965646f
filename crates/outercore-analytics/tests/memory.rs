//! Peak memory of runs, each in a separate process.

use std::process::Command;

use outercore_analytics::{Algorithm, Inputs, RunConfig, run};
use outercore_core::Bytes;
use outercore_far::{FarOptions, ServerConfig, Token, serve};
use outercore_grid::{BuildOptions, build};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_testkit::{Csc, Width, write_data_set};

/// Memory of the program without data: its code, its stacks, the allocator's rounding.
const PROGRAM: Bytes = Bytes::mib(16);

#[test]
fn peak_memory_stays_within_the_budget() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let graph = Csc::random(600_000, 6_000_000, 7);
    let data_set = write_data_set(directory.path(), &graph, Width::Narrow);
    build(&RealDisk, &data_set, &BuildOptions::default(), &mut |_, _, _, _| Ok(())).unwrap();
    let token = directory.path().join("token");
    let lent = Token::create_file(&token).unwrap();
    let server = ServerConfig::new("127.0.0.1:0".parse().unwrap(), Bytes::mib(256), lent);
    let server = serve(server).unwrap();
    let address = server.addresses()[0].to_string();
    for (request, budget, far) in [
        (
            r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":4,"tolerance":0,"weights":null,"reverse":false}"#,
            Bytes::mib(22),
            false,
        ),
        (r#"{"algorithm":"bfs","source":1,"direction":"both"}"#, Bytes::mib(16), false),
        (r#"{"algorithm":"bfs","source":1,"direction":"both"}"#, Bytes::mib(16), true),
        (r#"{"algorithm":"wcc"}"#, Bytes::mib(20), false),
        // Below the size of the state: 12 MB of ranks, shares and degrees, and a result of 4.8 MB.
        (
            r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":4,"tolerance":0,"weights":null,"reverse":false}"#,
            Bytes::mib(8),
            false,
        ),
        (
            r#"{"algorithm":"sssp","source":1,"weights":null,"direction":"both"}"#,
            Bytes::mib(8),
            false,
        ),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "run_in_a_process", "--nocapture"])
            .current_dir(directory.path())
            .env("RUN_REQUEST", request)
            .env("RUN_BUDGET", budget.0.to_string())
            .envs(far.then_some(("RUN_FAR", &address)))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let peak = text.lines().find_map(|line| line.split_once("peak ")?.1.parse::<u64>().ok());
        let peak = Bytes::kib(peak.unwrap_or_else(|| panic!("{text}{:?}", output.stderr)));
        println!("{request} {far}: peak {peak} with a budget of {budget}");
        assert!(peak.0 <= budget.0 + PROGRAM.0, "{request} {far}: peak {peak}, budget {budget}");
    }
}

/// Not a separate test: the test above starts this as a process and measures it.
#[test]
#[ignore = "run by peak_memory_stays_within_the_budget"]
fn run_in_a_process() {
    let Ok(request) = std::env::var("RUN_REQUEST") else { return };
    let memory = Bytes(std::env::var("RUN_BUDGET").unwrap().parse().unwrap());
    let data_set = DataSet::open(std::env::current_dir().unwrap()).unwrap();
    let algorithm: Algorithm = serde_json::from_str(&request).unwrap();
    let far = std::env::var("RUN_FAR").ok().map(|address| FarOptions {
        token_file: Some("token".into()),
        ..FarOptions::new(address.parse().unwrap())
    });
    let is_far = far.is_some();
    let config = RunConfig { memory, threads: Some(2), build: false, far, ..RunConfig::default() };
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    let outcome = run(&data_set, &algorithm, Inputs::default(), &config, &mut quiet).unwrap();
    assert_eq!(outcome.plan.spill.is_some(), memory < Bytes::mib(9));
    assert!(outcome.plan.pinned_segments < outcome.plan.segments, "all was pinned");
    assert_eq!(outcome.counters.far.is_some_and(|far| far.far_requests > 0), is_far);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {}", line.trim().trim_end_matches(" kB"));
}
