"""How fast this machine trains triples, and how fast a device moves partitions."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from outercore.embedding.config import EmbedConfig
from outercore.embedding.tables.placement import Size
from outercore.errors import DeviceError
from outercore.runs import record as records

if TYPE_CHECKING:
    from outercore.embedding.gradients.models import ScoreFunction

_FILE = 64 << 20
_PIECE = 4 << 20
_MOST_ENTITIES = 50_000
_LEAST_SECONDS = 1.0


def triples_per_second(
    config: EmbedConfig, size: Size, score: ScoreFunction | None = None
) -> float:
    """Trains random triples on a table in memory for a second.

    Needs PyTorch. Cost: as many rows as the table has, 50,000 at most.
    """
    import torch

    from outercore.embedding.gradients.models import build_model
    from outercore.embedding.gradients.threads import threads_of
    from outercore.embedding.gradients.trainer import Trainer, table_layout
    from outercore.embedding.tables.memory import MemoryStore

    entities = min(size.entities, _MOST_ENTITIES)
    batch = config.optimiser.batch_size
    random = torch.Generator().manual_seed(0)
    columns = [
        torch.randint(count, (batch,), generator=random)
        for count in (entities, size.relations, entities)
    ]
    with threads_of(config.budget.threads):
        model = build_model(config.model, score)
        layout = table_layout(config, model, size.relations)
        triples = torch.stack(columns, dim=1)
        store = MemoryStore.create(None, triples, entities, size.relations, layout, seed=0)
        trainer = Trainer(store, config, model)
        trainer.train_epoch(0)
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < _LEAST_SECONDS:
            done += trainer.train_epoch(done + 1).triples
        return done / (time.perf_counter() - started)


def read_rate(directory: Path) -> float | None:
    """Bytes a second that `outercore probe` measured for long reads, `None` where it did not."""
    profile = records.device_profile(directory)
    points = (profile or {}).get("points") or []
    return max((float(point["bytes_per_s"]) for point in points), default=None)


def measure_device(directory: Path) -> tuple[float, float]:
    """Bytes a second that the device under `directory` reads and writes in long pieces.

    Writes 64 MiB, waits until they are on the device, reads them past the page cache where the
    file system allows that, and removes them.

    Errors: `DeviceError` where nothing can be written there.
    """
    path = directory / f".bandwidth-{os.getpid()}"
    piece = mmap.mmap(-1, _PIECE)
    piece.write(os.urandom(_PIECE))
    try:
        started = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(_FILE // _PIECE):
                file.write(piece)
            os.fsync(file.fileno())
        written = time.perf_counter() - started
        started = time.perf_counter()
        _read_all(path, piece)
        return _FILE / (time.perf_counter() - started), _FILE / written
    except OSError as error:
        raise DeviceError(
            f"`{path}`: {error.strerror}\nhint: `--bandwidth READ,WRITE` says what the device does"
        ) from error
    finally:
        path.unlink(missing_ok=True)
        piece.close()


def _read_all(path: Path, piece: mmap.mmap) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        for place in range(0, _FILE, _PIECE):
            os.preadv(descriptor, [piece], place)
    finally:
        os.close(descriptor)
