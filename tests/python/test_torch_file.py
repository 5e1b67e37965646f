"""Files of `torch.save`: whatever their pickles say, no byte outside of the file is read, and
reading takes time and memory as the file's size says."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import torch_pickles as made
from outercore.errors import InvalidError
from outercore.importing.table.torch_file import read_torch
from torch_pickles import number, several

zero = made.zero_dimensional
SCALAR = made.named("numpy.core.multiarray", "scalar")
NUMBERS = np.arange(16, dtype="i8")
STORAGE = made.storage("0", "LongStorage", number(16))


def tensor(
    shape: bytes, strides: bytes, offset: bytes = number(0), storage: bytes = STORAGE
) -> bytes:
    return made.tensor(storage, offset, shape, strides)


def refused(path: Path, pickle: bytes, match: str = "which is not read") -> None:
    made.write(path / "file.pt", pickle, {"0": NUMBERS.tobytes()})
    with pytest.raises(InvalidError, match=match):
        read_torch(path / "file.pt")


def test_a_tensor_is_read_as_it_was_written(tmp_path: Path) -> None:
    pickle = tensor(several(number(3), number(2)), several(number(5), number(2)), number(1))
    made.write(tmp_path / "file.pt", pickle, {"0": NUMBERS.tobytes()})
    found = read_torch(tmp_path / "file.pt")
    np.testing.assert_array_equal(found, [[1, 3], [6, 8], [11, 13]])
    assert not found.flags.writeable


WRAPPED = [
    # 64 steps of 128 are 8192, which is 0 in a byte.
    (several(zero(65, "u1"), number(8)), several(zero(128, "u1"), number(1))),
    (several(made.scalar(65, "u1"), number(8)), several(number(128), number(1))),
    (several(number(65), number(8)), several(zero(16, "u1"), number(1))),
    (several(b"\x88"), several(number(1))),
    (several(made.fraction(4.0)), several(number(1))),
    (several(number(2**32), number(2**32)), several(number(2**32), number(2**32))),
    (several(number(17)), several(number(1))),
    (several(number(16)), several(number(2))),
    (several(number(-1)), several(number(1))),
    (several(number(2)), several(number(-1))),
    (several(number(2)), several(number(1), number(1))),
    (several(number(2**70)), several(number(0))),
    (several(number(2**70)), several(number(2**70))),
    (made.listed(number(2)), several(number(1))),
    (zero(4, "i8"), several(number(1))),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "strides"), WRAPPED, ids=range(len(WRAPPED)))
def test_no_shape_and_no_strides_reach_beyond_the_numbers_of_a_tensor(
    tmp_path: Path, shape: bytes, strides: bytes
) -> None:
    refused(tmp_path, tensor(shape, strides))


@pytest.mark.parametrize("offset", [number(16), number(-1), number(2**63), made.scalar(255, "u1")])
def test_no_offset_reaches_beyond_the_numbers_of_a_tensor(tmp_path: Path, offset: bytes) -> None:
    refused(tmp_path, tensor(several(number(1)), several(number(1)), offset))


@pytest.mark.parametrize("count", [number(17), number(-1), number(2**61), zero(16, "u1"), b"\x88"])
def test_a_storage_has_the_numbers_that_are_in_the_file(tmp_path: Path, count: bytes) -> None:
    storage = made.storage("0", "LongStorage", count)
    refused(tmp_path, tensor(several(number(2)), several(number(1)), storage=storage))


def test_a_tensor_that_repeats_its_numbers_is_refused(tmp_path: Path) -> None:
    shape = several(number(10**9), number(10**9))
    refused(tmp_path, tensor(shape, several(number(0), number(0))), "repeats its numbers")
    windows = tensor(several(number(8), number(8)), several(number(1), number(1)))
    refused(tmp_path, windows, "repeats its numbers")


def test_a_tensor_whose_numbers_are_to_be_negated_is_refused(tmp_path: Path) -> None:
    said = made.mapped((made.text("neg"), b"\x88"))
    pickle = made.tensor(STORAGE, number(0), several(number(2)), several(number(1)), said)
    refused(tmp_path, pickle, "a tensor with metadata")


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        (several(number(3)), bytes(16)),
        (several(number(2**62), number(4)), b""),
        (several(number(2**62), number(0)), b""),
        (several(number(-1), number(-2)), bytes(16)),
        (several(zero(2, "u1")), bytes(16)),
        (several(b"\x88", number(2)), bytes(16)),
        (several(*[number(1)] * 40), bytes(8)),
        (b"N", bytes(16)),
    ],
)
def test_an_array_has_the_bytes_that_its_shape_says(
    tmp_path: Path, shape: bytes, data: bytes
) -> None:
    refused(tmp_path, made.array(shape, "i8", data))


OPERATIONS = {
    "a call of a text": made.called(made.text("os"), made.text("system")),
    "a call of an array": made.called(made.array(several(number(1)), "i8", bytes(8)), number(1)),
    "a call of a storage": made.called(made.named("torch", "LongStorage"), number(1)),
    "another function": made.called(made.named("os", "system"), made.text("touch evil")),
    "a class": made.named("builtins", "object") + b")\x81",
    "attributes of a list": b"]" + made.mapped((made.text("a"), number(1))) + made.BUILD,
    "items of an array": made.array(several(number(1)), "i8", bytes(8)) + number(0) * 2 + b"s",
    "an item for a tuple": b")" + number(1) + b"a",
    "a name that is no text": number(1) + number(2) + b"\x93",
    "an extension": b"\x82\x01",
    "a value that was not kept": b"h\x07",
    "an empty stack": b"0",
    "an end without a beginning": b"t",
    "a key that is a list": b"}" + b"]" + number(1) + b"s",
    "a key that is a tuple": b"}" + several(number(1)) + number(1) + b"s",
    "a number of 5,000 digits": number(10**5000),
    "digits without end": b"L" + b"9" * 5000 + b"L\n",
    "half of a surrogate pair": b"X\x03\0\0\0\xed\xa0\x80",
    "bytes that are no text": b"C\x01\xff",
    "a type of objects": made.called(SCALAR, made.dtype("O8"), made.raw(bytes(8))),
    "a scalar of too few bytes": made.called(SCALAR, made.dtype("f8"), made.raw(bytes(3))),
    "a set": b"\x8f",
    "a storage alone": STORAGE,
    "a type alone": made.dtype("f8"),
    "a mark alone": made.MARK,
    "a list that holds itself": b"]q\x00h\x00a",
    "lists in each other": b"]" * 200_000 + b"a" * 199_999,
    "a part outside of the archive": made.storage("../x", "LongStorage", number(1)),
    "another frame": b"\x95" + b"\xff" * 8,
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_pickle_that_wants_more_than_numbers_and_arrays_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(tmp_path, OPERATIONS[name], "file.pt`: ")
    assert not Path("evil").exists()


def test_a_shared_list_may_be_read_and_a_bomb_of_them_may_not(tmp_path: Path) -> None:
    shared = made.listed(number(1), number(2)) + b"q\x00"
    made.write(tmp_path / "file.pt", b"]" + shared + b"ah\x00a")
    assert read_torch(tmp_path / "file.pt") == [[1, 2], [1, 2]]
    bomb = b"]q\x00(" + number(1) * 10 + b"e0"
    for level in range(1, 12):
        bomb += b"]q" + bytes([level]) + b"(" + (b"h" + bytes([level - 1])) * 10 + b"e0"
    refused(tmp_path, bomb + b"h\x0b", "again and again")


def test_one_array_in_many_places_is_refused(tmp_path: Path) -> None:
    data = bytes(1 << 20)
    kept = made.array(several(number(len(data))), "u1", data) + b"q\x00"
    pickle = b"]" + kept + b"a" + b"h\x00a" * 10_000
    made.write(tmp_path / "file.pt", pickle)
    with pytest.raises(InvalidError, match="more numbers than the file has"):
        read_torch(tmp_path / "file.pt")


def test_a_text_that_is_encoded_again_and_again_is_refused(tmp_path: Path) -> None:
    encode = made.named("_codecs", "encode") + b"q\x00" + b"0"
    long = made.text("x" * (1 << 16)) + b"q\x01" + b"0"
    pickle = encode + long + (b"h\x00" + b"(h\x01" + made.text("latin1") + b"tR0") * 1000
    refused(tmp_path, pickle + b"N", "again and again")


@pytest.mark.parametrize("name", ["archive/data.pkl", "archive/data/0", "archive/more"])
def test_a_packed_part_is_refused_before_it_is_unpacked(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "file.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N.")
    with zipfile.ZipFile(tmp_path / "file.pt", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name.replace("data.pkl", "x/data.pkl"), bytes(1 << 22))
    with pytest.raises(InvalidError, match="a packed"):
        read_torch(tmp_path / "file.pt")
