"""Rows of complex numbers: all real parts, then all imaginary parts."""

from __future__ import annotations

import torch
from torch import Tensor


def complex_product(first: Tensor, second: Tensor, *, conjugate_second: bool) -> Tensor:
    """The complex product of rows, each number of `first` and `second` read once."""
    half = first.size(1) // 2
    sign = -1.0 if conjugate_second else 1.0
    real, imaginary = first[:, :half], first[:, half:]
    other_real, other_imaginary = second[:, :half], second[:, half:]
    out = torch.empty_like(first)
    torch.mul(real, other_real, out=out[:, :half])
    out[:, :half].addcmul_(imaginary, other_imaginary, value=-sign)
    torch.mul(imaginary, other_real, out=out[:, half:])
    out[:, half:].addcmul_(real, other_imaginary, value=sign)
    return out


def turn_of(angles: Tensor) -> Tensor:
    """The complex numbers of modulus 1 at these angles."""
    return torch.cat([angles.cos(), angles.sin()], dim=1)
