"""Where the rows of a table are while they are trained: the seam between training and storage.

A store yields pools: triples whose entities are all in memory, with the memory they are in.
Training knows rows of that memory and no entity; a store knows where entities are and no model.
"""
