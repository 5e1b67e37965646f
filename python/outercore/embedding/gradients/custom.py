"""Custom score functions, and their checks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from outercore.errors import InvalidError
from outercore.runs.custom_code import digest_of, from_place, place_of

if TYPE_CHECKING:
    from outercore.embedding.gradients.models import ScoreFunction

_HINT = "hint: sum over the last extent, and let the others broadcast"
GIVE = "give it by `--score FILE.py:NAME`, in Python by `score=FUNCTION`"


class OwnScore(NamedTuple):
    """A custom score function with its place and digest, which a run records."""

    function: ScoreFunction
    place: str
    """`FILE.py:NAME`, or the module and name of a function, for people."""
    digest: str
    """Of its own source text; empty where Python knows none."""


def own_score(score: ScoreFunction | str) -> OwnScore:
    """A score function, or its place `FILE.py:NAME`.

    It takes heads, relations and tails as tensors [..., width] that broadcast, and returns scores
    [...]; see `outercore.embedding.gradients.models.CustomModel`. Runs the file.

    Errors: `NotFoundError` for the file or the name; `InvalidError` for any other value than a
    function, and for a file that fails.

    Example:
        >>> own_score(max).place
        'builtins:max'
    """
    if callable(score):
        return OwnScore(score, place_of(score), digest_of(score))
    function = from_place("score", score, "--score my_scores.py:bilinear")
    if not callable(function):
        raise InvalidError(f"score `{score}`: expected a function, found {type(function).__name__}")
    return OwnScore(function, score, digest_of(function))


def check_score(own: OwnScore, width: int, relation_width: int) -> None:
    """Tries the function on rows as training and ranking give it, before anything is written.

    Errors: `InvalidError` for one that fails, whose result has another shape than the scores, or
    does not depend on the rows.
    """
    import torch

    one, relation, many = (2, 1, width), (2, 1, relation_width), (3, width)
    paired = (4, width), (4, relation_width), (4, width)
    for shapes, expected in (
        ((one, relation, many), (2, 3)),
        ((many, relation, one), (2, 3)),
        (paired, (4,)),
    ):
        rows = [torch.linspace(0.1, 1.0, math.prod(shape)).reshape(shape) for shape in shapes]
        what = "heads {}, relations {}, tails {}".format(*map(list, shapes))
        try:
            found: Any = own.function(*(some.requires_grad_() for some in rows))
        except Exception as error:
            raise InvalidError(
                f"score `{own.place}` fails for {what}: {type(error).__name__}: {error}\n{_HINT}"
            ) from error
        shape = tuple(getattr(found, "shape", ()))
        if not isinstance(found, torch.Tensor) or shape != expected:
            raise InvalidError(
                f"score `{own.place}`: {what}: expected a tensor {list(expected)}, found "
                f"{type(found).__name__} {list(shape)}\n{_HINT}"
            )
        if not found.requires_grad:
            raise InvalidError(f"score `{own.place}`: its result does not depend on the rows")


def require_same(what: str, place: str, digest: str, own: OwnScore) -> None:
    """Refuses a function whose source differs from the source of the function at `place`.

    Errors: `InvalidError`, which begins with `what`.
    """
    if digest and own.digest and digest != own.digest:
        raise InvalidError(
            f"{what} was made with the score function `{place}`, and `{own.place}` has another "
            "text\nhint: give the function as it was, or start another run with `--from`"
        )
