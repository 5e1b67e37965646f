"""The data of a run: triples for training, validation and test, and rows from another run."""
