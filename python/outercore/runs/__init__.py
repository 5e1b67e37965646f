"""Parts of a run that all jobs share: directory, identity, record, scalars, stop and resume."""
