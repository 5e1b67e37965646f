"""Side-by-side benchmarks; each module has `run(settings) -> Result`."""
