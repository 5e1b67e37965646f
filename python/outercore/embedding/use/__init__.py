"""Finished embeddings: tables opened for reading, and what is done with them."""
