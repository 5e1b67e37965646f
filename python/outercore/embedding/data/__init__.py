"""What is embedded: triples by part, and first rows from another run."""
