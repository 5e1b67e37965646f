"""Scalars of a run for TensorBoard."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outercore.files.atomic import device_errors


class Scalars:
    """Scalars by name and epoch, in a new file of a directory.

    The thread that adds a scalar also writes it. The writer of `tensorboardX` is not used, because
    it has a thread and an exit handler: on a full device both would fail, too, with a traceback.
    """

    def __init__(self, directory: Path, first_epoch: int, resume: str) -> None:
        """Opens a new file. It replaces points of `first_epoch` and later epochs in other files.

        `resume` is the hint in the error for a full device.

        Errors: `NoSpaceError`, `DeviceError`.
        """
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.record_writer import RecordWriter

        self._event, self._directory, self._resume = Event, directory, resume
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        with self._errors():
            directory.mkdir(parents=True, exist_ok=True)
            self._file = RecordWriter(str(directory / name))
            self._write(file_version="brain.Event:2")
            if first_epoch:
                self._write(step=first_epoch, session_log=SessionLog(status=SessionLog.START))

    def add(self, points: Mapping[str, float | None], epoch: int) -> None:
        """Writes the points of an epoch. Scalars without a value are left out.

        Errors: `NoSpaceError`, `DeviceError`.
        """
        from tensorboardX.summary import scalar

        with self._errors():
            for name, value in points.items():
                if value is not None:
                    self._write(step=epoch, summary=scalar(name, value))
            self._file.flush()

    def close(self) -> None:
        """Closes the file. It does not raise errors, because all points are written already."""
        # After a failed write the buffer is still full, and closing would fail again.
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, **event: Any) -> None:
        self._file.write(self._event(wall_time=time.time(), **event).SerializeToString())

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return device_errors(f"scalars in `{self._directory}`", self._resume)
