"""Ranking of true triples among candidates: metrics of runs, and their cost."""
