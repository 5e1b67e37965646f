"""Stores for the rows of a table during training: the boundary between training and storage.

A store yields pools: triples whose entities are all in memory, with the arrays that hold them.
Training knows rows of these arrays, but not entities. A store knows the places of entities, but not
the model.
"""
