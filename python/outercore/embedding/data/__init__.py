"""The data of a run: triples by part, and first rows from another run."""
