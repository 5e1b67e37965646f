"""Far memory: the memory of another process or machine as one more tier (Fargraph+ paper).

`FarOptions` holds the address and the options of a memory server; algorithms, `NeighborLoader` and
training take it as ``far=``. `build_connection` is the low-level interface: it writes and reads
regions of far memory in chunks, with many transfers in flight.
"""

from __future__ import annotations

from outercore.data.far.connection import Connection, Receive, Region, build_connection
from outercore.data.far.data_sets import WHAT, What, arrays, holds, put
from outercore.data.far.options import Far, FarConfig, FarOptions, options_of
from outercore.data.far.probing import probe
from outercore.data.far.profile import probed_chunk, store_profile
from outercore.data.far.segments import FarSegment, add_transferable_flag
from outercore.data.far.server import DEFAULT_LISTEN, MemoryServer, new_token

__all__ = [
    "DEFAULT_LISTEN",
    "WHAT",
    "Connection",
    "Far",
    "FarConfig",
    "FarOptions",
    "FarSegment",
    "MemoryServer",
    "Receive",
    "Region",
    "What",
    "add_transferable_flag",
    "arrays",
    "build_connection",
    "holds",
    "new_token",
    "options_of",
    "probe",
    "probed_chunk",
    "put",
    "store_profile",
]
