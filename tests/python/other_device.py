"""A device that is not the CPU, where there is none: what lies on it is reached by PyTorch only.

Its tensors keep their numbers in the CPU's memory, out of reach of NumPy and of the core, and an
operation that is given tensors of both refuses them, as on a GPU. So a run on it shows that
whatever has to be moved is moved; that kernels of a GPU compute the same is another matter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend()
DEVICE = torch.device("privateuseone:0")

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
        """As on a GPU; PyTorch refuses it for classes of one's own."""
        return self.numbers.tolist()

    def new_tensor(self, data: Any) -> Tensor:
        """As on a GPU; PyTorch makes it where no class of one's own is asked."""
        return torch.tensor(data, dtype=self.dtype).to(DEVICE)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class OtherDevice(TorchDispatchMode):
    """While it is entered, tensors can be made on `DEVICE`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _may_mix(func: Any, args: Any) -> bool:
    """Moves, and on a GPU, too, indices of the CPU."""
    if func in _READS or func in _WRITES:
        values = args[2:3] if func in _WRITES else ()
        return all(isinstance(one, OtherTensor) or not one.dim() for one in (args[0], *values))
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
