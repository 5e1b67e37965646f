"""Layers of networks for all nodes, which read their input once and in order."""
