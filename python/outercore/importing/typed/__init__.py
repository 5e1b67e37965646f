"""Tables of several types of nodes and edges, as one data set."""
