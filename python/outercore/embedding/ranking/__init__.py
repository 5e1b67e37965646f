"""Ranking of true triples among candidates: figures of runs, and what they cost."""
