"""Several graph algorithms at once: which start when, on which cores, with how much memory.

`decide` is pure; the other modules measure, look at the machine, and start and end processes.

**Source**: Fargraph+ 7.
"""
