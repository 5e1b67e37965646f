"""Custom score functions, and their checks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from outercore.embedding.config import GIVE_SCORE
from outercore.errors import InvalidError
from outercore.runs.custom_code import CustomCode, custom_code, require_same_code

if TYPE_CHECKING:
    from outercore.embedding.gradients.models import ScoreFunction

_HINT = "hint: sum over the last extent, and let the others broadcast"


def load_score(score: ScoreFunction | str) -> CustomCode:
    """Loads a custom score function, given as a function or by its place `FILE.py:NAME`.

    The function takes heads, relations and tails as tensors [..., width] that broadcast, and
    returns scores [...]; see `outercore.embedding.gradients.models.CustomModel`. A file is loaded
    by running it.

    Errors: `NotFoundError` for a missing file or name; `InvalidError` if the value is not a
    function, and for a file that raises an error.

    Example:
        >>> load_score(max).place
        'builtins:max'
    """
    return custom_code("score", score, "--score my_scores.py:bilinear", "a function")


def check_score(code: CustomCode, width: int, relation_width: int) -> None:
    """Calls the function with rows as in training and ranking, before anything is written.

    Errors: `InvalidError` if the function fails, its result has a wrong shape, or its result does
    not depend on the rows.
    """
    import torch

    anchor, relation, many = (2, 1, width), (2, 1, relation_width), (3, width)
    paired = (4, width), (4, relation_width), (4, width)
    for shapes, expected in (
        ((anchor, relation, many), (2, 3)),
        ((many, relation, anchor), (2, 3)),
        (paired, (4,)),
    ):
        rows = [torch.linspace(0.1, 1.0, math.prod(shape)).reshape(shape) for shape in shapes]
        what = "heads {}, relations {}, tails {}".format(*map(list, shapes))
        try:
            scores: Any = code.value(*(some.requires_grad_() for some in rows))
        except Exception as error:
            raise InvalidError(
                f"score `{code.place}` fails for {what}: {type(error).__name__}: {error}\n{_HINT}"
            ) from error
        shape = tuple(getattr(scores, "shape", ()))
        if not isinstance(scores, torch.Tensor) or shape != expected:
            raise InvalidError(
                f"score `{code.place}`: {what}: expected a tensor {list(expected)}, found "
                f"{type(scores).__name__} {list(shape)}\n{_HINT}"
            )
        if not scores.requires_grad:
            raise InvalidError(f"score `{code.place}`: its result does not depend on the rows")


def require_same_score(
    what: str, made_with: tuple[str | None, str], score: ScoreFunction | str | None
) -> CustomCode | None:
    """Loads the custom score function `score`, and checks that `what` was made with it.

    `made_with` is the place of the score function of `what`, and the digest of its code.

    Errors: as `require_same_code` and `load_score`.
    """
    code = None if score is None else load_score(score)
    require_same_code(what, made_with, code, give=GIVE_SCORE, leave_out="leave out `score`")
    return code
