"""Files that are almost right: the form is kept, and one value in some is what nobody writes."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import numpy as np
from choices import Choices

import torch_pickles as made

_NUMBERS = (
    *(0, 1, 2, 3, 4, 8, 15, 16, 17, 64, 65, 127, 128, 255, 256, 257, 65_535, 65_536, -1, -2, -128),
    *(2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70),
    *(-(2**31), -(2**63), 10**30),
)
_CODES = ("u1", "i1", "u2", "i2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "b1", "O8", "U4", "V0")
_STORAGES = (
    *("LongStorage", "FloatStorage", "ByteStorage", "BoolStorage", "HalfStorage", "UntypedStorage"),
)
_FUNCTIONS = (
    *(("numpy", "dtype"), ("numpy", "ndarray"), ("numpy.core.multiarray", "_reconstruct")),
    *(("numpy.core.multiarray", "scalar"), ("numpy.core.numeric", "_frombuffer")),
    *(("numpy._core.multiarray", "scalar"), ("_codecs", "encode"), ("collections", "OrderedDict")),
    *(("__builtin__", "bytes"), ("torch", "LongStorage"), ("torch._utils", "_rebuild_tensor_v2")),
    *(("os", "system"), ("builtins", "eval"), ("numpy", "ndarray.__setstate__")),
)


def hostile_number(choose: Choices) -> bytes:
    """A number where a plain one is due: of NumPy, in an array, a fraction, a Boolean, a text."""
    value = choose.one(_NUMBERS)
    kind = choose.number(10)
    if kind < 5:
        return made.number(value)
    code = choose.one(_CODES[:11])
    wrapped = np.array(value % 256 if value > 0 else 1).astype(code)
    if kind == 5:
        return made.zero_dimensional(wrapped, code)
    if kind == 6:
        return made.scalar(wrapped, code)
    if kind == 7:
        return made.fraction(float(value))
    return choose.one((b"\x88", b"\x89", b"N", made.text("3"), made.raw(b"3"), b"]", b"}", b")"))


def small_number(choose: Choices) -> bytes:
    return hostile_number(choose) if choose.flag(6) else made.number(choose.one(_NUMBERS[:12]))


def shape(choose: Choices) -> bytes:
    items = [small_number(choose) for _ in range(choose.number(4))]
    kind = choose.number(12)
    if kind == 10:
        return made.listed(*items)
    if kind == 11:
        return hostile_number(choose)
    return made.several(*items)


def storage(choose: Choices) -> bytes:
    key = choose.one(("0", "1", "../0", "9"))
    return made.storage(key, choose.one(_STORAGES), small_number(choose))


def value(choose: Choices, depth: int = 0) -> bytes:
    """Any value: a tensor or an array, mostly."""
    kind = choose.number(16 if depth < 4 else 10)
    if kind < 4:
        more = made.mapped((made.text("neg"), b"\x88")) if choose.flag(8) else b""
        numbers = storage(choose) if not choose.flag(8) else value(choose, depth + 1)
        return made.tensor(numbers, small_number(choose), shape(choose), shape(choose), more)
    if kind < 7:
        code = choose.one(_CODES)
        return made.array(
            shape(choose), code, choose.bytes(64), choose.one((b"\x89", b"\x88", b"N"))
        )
    if kind == 7:
        return hostile_number(choose)
    if kind == 8:
        return made.text("é" * choose.number(9)) if choose.flag() else made.raw(choose.bytes(9))
    if kind == 9:
        return choose.one((b"h\x00", b"h\x01", b"q\x00", b"(", b"0", b"2", b"\x94", b"N", b"\x81"))
    items = [value(choose, depth + 1) for _ in range(choose.number(4))]
    if kind == 10:
        return made.listed(*items) + (b"q\x00" if choose.flag() else b"")
    if kind == 11:
        return made.several(*items) + (b"q\x01" if choose.flag() else b"")
    if kind == 12:
        keys = [made.text(f"k{place}") for place in range(len(items))]
        return made.mapped(*zip(keys, items, strict=True))
    if kind == 13:
        return made.called(made.named(*choose.one(_FUNCTIONS)), *items)
    if kind == 14:
        target = items[0] if items else b"]"
        return target + made.several(*items[1:]) + made.BUILD
    return made.named(*choose.one(_FUNCTIONS))


def torch_file(data: bytes) -> bytes:
    """A file of `torch.save`."""
    choose = Choices(data)
    pickle = value(choose)
    return made.packed(pickle, {"0": bytes(range(128)), "1": choose.bytes(40)})


def mutated_torch_file(data: bytes) -> bytes:
    """One whose pickle is any bytes."""
    with_place = bytes(data)
    return made.packed(with_place, {"0": bytes(128)})


def header(choose: Choices) -> bytes:
    """The header of an array of NumPy."""
    extents = ", ".join(str(choose.one(_NUMBERS)) for _ in range(choose.number(4)))
    given = choose.one((f"({extents},)", f"({extents})", f"[{extents}]", "None", "True", "()"))
    descr = choose.one(
        (
            *("'<i8'", "'>f4'", "'|b1'", "'O'", "'<U3'", "'|V0'", "'|S9999999999'", "3", "'m8'"),
            *("[('a', '<i8')]", "()", "('<i8', (2, 3))", "'<i8,<f4'", "'<c16'", "b'<i8'", "'|V9'"),
        )
    )
    order = choose.one(("False", "True", "0", "None", "[]"))
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {given}}}"
    if choose.flag(4):
        place = choose.number(len(text))
        text = text[:place] + choose.bytes(8).decode("latin1") + text[place:]
    if choose.flag(16):
        text += choose.one((" " * 5000, "(" * 300, "9" * 5000, "\0", "L", "-" * 3000))
    return text.encode("latin1") + b"\n"


def npy(data: bytes) -> bytes:
    """An array in the form of `numpy.save`."""
    choose = Choices(data)
    body = header(choose)
    major = 2 if choose.flag(6) else choose.one((1, 1, 1, 3, 9))
    length = len(body) if not choose.flag(8) else choose.number(65_536)
    size = struct.pack("<H", min(length, 65_535)) if major == 1 else struct.pack("<I", length)
    start = b"\x93NUMPY" if not choose.flag(16) else choose.bytes(6)
    return start + bytes([major, choose.one((0, 0, 0, 1))]) + size + body + choose.bytes(200)


_MEMBERS = (
    *("format", "shape", "indptr", "indices", "data", "row", "col", "edge_index", "x"),
    *("num_nodes", "num_bonds", "atom", "bond_begin", "bond_end", "y", "bond"),
)


def _plain(choose: Choices, name: str) -> np.ndarray:
    """An array that may stand in an archive under this name."""
    if name == "format":
        return np.array(choose.one(("csr", "csc", "coo", b"csr", "dia", "")))
    count = choose.number(6)
    numbers = [choose.one(_NUMBERS[:8] if choose.flag() else _NUMBERS[:30]) for _ in range(count)]
    dtype = choose.one(("i8", "i8", "i8", "u8", "f8", "U4", "i1", "b1"))
    try:
        found = np.array(numbers).astype(dtype)
    except (OverflowError, ValueError):
        found = np.zeros(count, "i8")
    return found.reshape(choose.one(((-1,), (count, 1), (1, count))))


def npz(data: bytes) -> bytes:
    """An archive of arrays: a sparse matrix, molecules, edges, or some of these."""
    choose = Choices(data)
    file = io.BytesIO()
    how = choose.one((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    kinds = (_MEMBERS[:5], (*_MEMBERS[:2], *_MEMBERS[4:7]), _MEMBERS[9:], _MEMBERS[7:9])
    with zipfile.ZipFile(file, "w", how) as archive:
        for name in choose.one(kinds):
            if choose.flag(12):
                continue
            member = io.BytesIO()
            np.save(member, _plain(choose, name))
            content = npy(choose.bytes(60)) if choose.flag(6) else member.getvalue()
            archive.writestr(f"{name}.npy", content)
    found = bytearray(file.getvalue())
    for _ in range(choose.number(3) if choose.flag(4) else 0):
        found[choose.number(len(found))] ^= 1 << choose.number(8)
    return bytes(found)


_LEAVES = (
    "node",
    "edge",
    "x",
    "num",
    "3",
    "numpy",
    "torch",
    "csv",
    "e.csv",
    "../e.csv",
    "[",
    "a:b:c",
)
_KEYS = (
    *("graph", "nodes", "edges", "num", "type", "format", "path", "feature_data", "domain", "name"),
    *("tasks", "train_set", "data", "tables", "t", "file", "primary_key", "foreign_keys", "time"),
    *("features", "<<", "?"),
)


def _yaml(choose: Choices, depth: int) -> str:
    kind = choose.number(10 if depth < 6 else 5)
    if kind < 3:
        return choose.one(_LEAVES)
    if kind == 3:
        return choose.one(
            ("*a", "*b", "!!python/name:os.system", "!!binary x", "~", '"\\U0011FFFF"')
        )
    if kind == 4:
        return str(choose.one(_NUMBERS))
    anchor = choose.one(("", "", "", "&a ", "&b "))
    items = [_yaml(choose, depth + 1) for _ in range(choose.number(5))]
    if kind < 8:
        pairs = (f"{choose.one(_KEYS)}: {one}" for one in items)
        return f"{anchor}{{{', '.join(pairs)}}}"
    return f"{anchor}[{', '.join(items)}]"


def description(data: bytes) -> bytes:
    """A description in YAML: `metadata.yaml` or `tables.yaml`."""
    choose = Choices(data)
    if choose.flag(4):
        return choose.bytes(400)
    nodes, edges, more = (_yaml(choose, 1) for _ in range(3))
    start = choose.one(("", "a0: &a [x, x]\n", "b0: &b {t: *b}\n"))
    graph = f"graph: {{nodes: {nodes}, edges: {edges}}}\n"
    tables = f"tables: {{t: {more}, e: {{file: e.csv}}}}\n"
    tasks = f"feature_data: {more}\ntasks: {edges}\n"
    return (start + choose.one((graph + tasks, tables, _yaml(choose, 0)))).encode()


_FIELDS = (
    *(":ID", "name", "age:int", "v:float[]", ":LABEL", ":START_ID", ":END_ID", ":TYPE", ":IGNORE"),
    *("id:ID(User)", ":START_ID(User)", "t:datetime", "p:point{crs:4326}", "x:long", "y:boolean"),
    *("z:money", ":ID(", "a:int[](b){c", "", '"', "\0", ":ID{a:b}"),
)


def neo4j(data: bytes) -> bytes:
    """A file of an export for Neo4j: its header and some rows."""
    choose = Choices(data)
    separator = choose.one((",", ";", "\t", "|"))
    fields = [choose.one(_FIELDS) for _ in range(1 + choose.number(6))]
    lines = [separator.join(fields)]
    for _ in range(choose.number(5)):
        cells = [
            choose.one(("1", "2", "a", "", "x;y", '"', "1.5", "true", "9" * 30)) for _ in fields
        ]
        lines.append(separator.join(cells))
    text = choose.one(("\n", "\r\n", "\r")).join(lines).encode()
    return text + choose.bytes(20)


def safetensors(data: bytes) -> bytes:
    """Tensors with a header in JSON."""
    choose = Choices(data)
    tensors = {
        choose.one(("a", "b", "model/w", "__metadata__")): {
            "dtype": choose.one(("F32", "I64", "BF16", "X9", 3, None)),
            "shape": [choose.one(_NUMBERS) for _ in range(choose.number(4))],
            "data_offsets": [choose.one(_NUMBERS[:16]), choose.one(_NUMBERS[:16])],
        }
        for _ in range(choose.number(4))
    }
    text = json.dumps(tensors).encode()
    if choose.flag(4):
        text = choose.one((b"[" * 50_000, b'{"a":' * 20_000, b"9" * 5000, choose.bytes(60)))
    length = len(text) if not choose.flag(8) else choose.one(_NUMBERS[:30]) % 2**64
    return struct.pack("<Q", length) + text + choose.bytes(100)
