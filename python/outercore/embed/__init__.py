"""Embeddings of graphs and knowledge graphs. Training needs the extra `torch`."""
