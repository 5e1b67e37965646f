"""Finished embeddings: tables opened for reading, and their uses."""
