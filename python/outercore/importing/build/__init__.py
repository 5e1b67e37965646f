"""The calls of the core that write data sets: graphs, triples, dictionaries and additions."""
