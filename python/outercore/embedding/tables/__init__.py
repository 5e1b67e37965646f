"""Stores of the tables of a run: the boundary between training and storage.

A store yields pools: triples whose entities are all in memory, with the arrays of their rows.
Training works with rows of these arrays and does not know entities. A store does not know the
model.
"""
