//! Compiles the gRPC service; no `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/inference.proto");
    let files = protox::compile(["proto/inference.proto"], ["proto"])?;
    tonic_prost_build::configure().build_client(false).compile_fds(files)?;
    Ok(())
}
