"""A memory server in a separate process, for tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from outercore.data.far import FarOptions, new_token

_FREEZES_S = 20.0


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
        """The addresses of the server, by transport."""
        tcp, unix = self.started["addresses"]
        return {"tcp": tcp, "unix": unix}

    def options(self, transport: str = "tcp", **more: object) -> FarOptions:
        """Options to connect to the server."""
        chosen = {"token_file": str(self.token), "timeout_s": 2.0, **more}
        return FarOptions(self.addresses[transport], **chosen)  # type: ignore[arg-type]

    def settings(self, transport: str = "tcp", path: str = "budget.far") -> list[str]:
        """Arguments to connect to the server, for `train`; other commands need the path `far`."""
        return ["--far", self.addresses[transport], "--set", f"{path}.token_file={self.token}"]

    def kill(self) -> None:
        """Kills the server without a clean end."""
        self.process.kill()
        self.process.wait(10)

    def freeze(self) -> None:
        """Stops all threads of the server; its connections stay open."""
        self.process.send_signal(signal.SIGSTOP)
        # The signal reaches one thread; the other threads run until this thread is scheduled.
        ends = time.monotonic() + _FREEZES_S
        while not all(state == "T" for state in self._states()):
            assert time.monotonic() < ends, self._states()
            time.sleep(0.001)

    def _states(self) -> list[str]:
        """The state of each thread in `/proc`: R, S, T, ..."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        # The name before the state may contain any characters, also brackets.
        return [thread.read_text().rpartition(")")[2].split()[0] for thread in threads]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Ends the server cleanly: exit code, the rest of stdout, stderr."""
        os.kill(self.process.pid, number)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err
