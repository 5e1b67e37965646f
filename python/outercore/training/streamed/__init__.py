"""Exact inference: layers that run for all nodes, and read their input once and in order."""
