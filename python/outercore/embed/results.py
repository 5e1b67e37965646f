"""Files of results, written as they are found: Parquet, or a text with a header. No PyTorch."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from outercore.embed.export import lines_hold, replacing, write_lines
from outercore.errors import InvalidError
from outercore.storage import device_errors, require_free

_TAB = pa.scalar("\t", pa.large_string())


class ResultFile:
    """A table that grows; a context manager. It appears under its name once it is complete.

    Errors: `InvalidError` where a file is there and `overwrite` is not given, for a suffix that
    is neither `.parquet` nor `.tsv`, and for a name that a text cannot hold; `NoSpaceError`,
    `DeviceError`.
    """

    def __init__(
        self, path: Path, columns: dict[str, pa.DataType], *, overwrite: bool = False
    ) -> None:
        if path.suffix not in (".parquet", ".tsv"):
            raise InvalidError(f"`{path}`: expected a name that ends in .parquet or .tsv")
        require_free(path, overwrite=overwrite)
        self.path = path
        self.rows = 0
        self._schema = pa.schema(list(columns.items()))
        self._replacing = replacing(path)
        self._file: Any = None

    def __enter__(self) -> ResultFile:
        with device_errors(f"results `{self.path}`"):
            partial = self._replacing.__enter__()
            if self.path.suffix == ".parquet":
                self._file = pq.ParquetWriter(partial, self._schema, compression="zstd")
            else:
                self._file = partial.open("wb")
                self._file.write(("\t".join(self._schema.names) + "\n").encode())
        return self

    def append(self, columns: dict[str, ArrayLike]) -> None:
        """Writes rows, given by columns."""
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        with device_errors(f"results `{self.path}`"):
            if self.path.suffix == ".parquet":
                self._file.write_batch(pa.record_batch(arrays, schema=self._schema))
            elif len(arrays[0]):
                texts = [lines_hold(array.cast(pa.large_string()), self.rows) for array in arrays]
                write_lines(self._file, pc.binary_join_element_wise(*texts, _TAB))
        self.rows += len(arrays[0])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with device_errors(f"results `{self.path}`"):
            self._file.close()
            self._replacing.__exit__(kind, error, traceback)
