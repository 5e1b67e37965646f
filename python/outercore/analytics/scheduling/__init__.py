"""Scheduling of several graph algorithms on one machine: start times, cores and memory.

`decide` is pure. The other modules measure, inspect the machine, and start and end processes.

**Source**: the Fargraph+ paper, section 7.
"""
