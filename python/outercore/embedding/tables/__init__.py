"""Stores of the tables of a run: the boundary between training and storage.

A store yields pools: triples whose entities are all in memory, with the arrays that hold them.
Training knows rows of these arrays, but not entities; a store does not know the model.
"""
