"""A simulated device besides the CPU, for machines without a GPU; only PyTorch reads its tensors.

Its tensors are in the CPU's memory, but NumPy and the core cannot read them. As on a GPU, an
operation with tensors of both devices fails. A run on this device shows that all data is moved as
necessary. It does not test the kernels of a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

# With a name of its own the device is the accelerator, whose streams autograd asks for.
_setup_privateuseone_for_python_backend("other")
DEVICE = torch.device("other:0")

_aten = torch.ops.aten
_MOVES = {_aten._to_copy.default, _aten.copy_.default}
_READS, _WRITES = {_aten.index.Tensor}, {_aten.index_put.default, _aten.index_put_.default}


class OtherTensor(Tensor):
    """A tensor of the other device."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> OtherTensor:
        made = Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=DEVICE,
        )
        made.numbers = numbers
        return made

    def tolist(self) -> Any:
        """As on a GPU; PyTorch refuses this for subclasses of `Tensor`."""
        return self.numbers.tolist()

    def new_tensor(self, data: Any) -> Tensor:
        """A tensor on this device, as on a GPU; PyTorch would not call this class."""
        return torch.tensor(data, dtype=self.dtype).to(DEVICE)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class OtherDevice(TorchDispatchMode):
    """Context in which tensors can be created on `DEVICE`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _may_mix(func: Any, args: Any) -> bool:
    """Whether an operation takes tensors of both devices, as on a GPU: moves, and CPU indices."""
    if func in _READS or func in _WRITES:
        values = args[2:3] if func in _WRITES else ()
        return all(
            isinstance(value, OtherTensor) or not value.dim() for value in (args[0], *values)
        )
    return func in _MOVES


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    there: dict[int, OtherTensor] = {}
    here: list[Tensor] = []

    def inside(value: Any) -> Any:
        if isinstance(value, OtherTensor):
            there[id(value.numbers)] = value
            return value.numbers
        if isinstance(value, Tensor) and value.dim():
            here.append(value)
        return value

    cpu_args, cpu_kwargs = tree_map(inside, (args, kwargs))
    if there and here and not _may_mix(func, args):
        raise RuntimeError(f"{func}: expected all tensors on one device")
    to_other = bool(there)
    if func is _aten.copy_.default:
        to_other = isinstance(args[0], OtherTensor)
    if cpu_kwargs.get("device") is not None:
        to_other = torch.device(cpu_kwargs["device"]).type == DEVICE.type
        cpu_kwargs["device"] = torch.device("cpu")
    result = func(*cpu_args, **cpu_kwargs)

    def outside(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in there:
            return there[id(value)]
        return OtherTensor(value) if to_other else value

    return tree_map(outside, result)
