"""A memory server as a process of its own, for tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from outercore.far import FarOptions, new_token


@dataclass
class FarServer:
    """`outercore memory-server`, over TCP and a Unix socket."""

    directory: Path
    size: str = "64MiB"
    more: tuple[str, ...] = ()

    def __enter__(self) -> FarServer:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.token = self.directory / "token"
        if not self.token.exists():
            new_token(self.token)
        self.socket = self.directory / "far.sock"
        options = ["--size", self.size, "--token-file", str(self.token), *self.more, "--json"]
        listen = ["--listen", "127.0.0.1:0", "--listen", f"unix:{self.socket}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "outercore", "memory-server", *options, *listen],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.started = json.loads(line)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self.process.communicate()

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens, by transport."""
        tcp, unix = self.started["addresses"]
        return {"tcp": tcp, "unix": unix}

    def options(self, transport: str = "tcp", **more: object) -> FarOptions:
        """How to reach it."""
        chosen = {"token_file": str(self.token), "timeout_s": 2.0, **more}
        return FarOptions(self.addresses[transport], **chosen)  # type: ignore[arg-type]

    def flags(self, transport: str = "tcp") -> list[str]:
        """The same for a command line."""
        return ["--far", self.addresses[transport], "--far-token-file", str(self.token)]

    def kill(self) -> None:
        """The end without a word."""
        self.process.kill()
        self.process.wait(10)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """The end in good order: exit code, what was left of stdout, stderr."""
        os.kill(self.process.pid, number)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err
