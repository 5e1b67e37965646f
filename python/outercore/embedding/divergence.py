"""How a training that leaves the finite numbers ends."""

from __future__ import annotations

from outercore.errors import InvalidError


class DivergedError(InvalidError):
    """A loss, a gradient or the sum of its squares was not finite.

    The tables are as the batch before left them.
    """
