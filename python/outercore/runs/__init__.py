"""One life of a run: its directory, identity, record, scalars and end, for every job."""
