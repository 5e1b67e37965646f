"""The lowest package: calls of the Rust core, configurations, sizes, and texts for users."""
