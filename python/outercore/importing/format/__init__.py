"""Readers for formats of other tools: OGB, PyG, DGL, GraphBolt, Neo4j, TU and others."""
