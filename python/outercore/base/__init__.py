"""Lowest room: the Rust core called from Python, configurations, sizes, and texts for people."""
