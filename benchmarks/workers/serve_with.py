"""Serve a model with settings that are not options of the command line.

    python serve_with.py DATASET RUN CONFIG

CONFIG is JSON with the fields of `outercore.serving.server.ServerConfig`. Prints the line of
`outercore serve --json`, and runs until SIGTERM.
"""

import json
import os
import signal
import sys

from outercore.serving.server import Server, ServerConfig

data_set, run, config = sys.argv[1:]
with Server(data_set, run, ServerConfig(**json.loads(config))) as server:
    described = {"url": server.url, "model": server.name, "process": os.getpid()}
    print(json.dumps(described), flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
