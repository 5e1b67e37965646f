"""Layouts of other tools, a file a format: OGB, PyG, DGL, GraphBolt, Neo4j, TU and others."""
