"""A data set on disk: its graph, names, arrays and edges, and its rows in far memory."""
