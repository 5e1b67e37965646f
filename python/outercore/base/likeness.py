"""Suggests the most similar known name for a mistyped name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_LEAST = 0.6
"""Smallest similarity of whole names for a suggestion; the default of `difflib`."""
_LEAST_OF_LAST = 0.8
"""Smallest similarity of last parts. It is higher: short texts are often similar by chance."""
_LAST = re.compile(r"[^/.:#]+(?=[/.:#]*$)")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `name`, or None. Compares whole names and last parts.

    The last part of `/country/form_of_government` is `form_of_government`; the last part of
    `optimiser.weight_decay` is `weight_decay`.

    Cost: a few microseconds per known name.

    Example:
        >>> closest("form_of_goverment", ["/country/form_of_government", "/country/form"])
        '/country/form_of_government'
    """
    whole, last = name.casefold(), _last(name)
    of_whole, of_last = SequenceMatcher(b=whole), SequenceMatcher(b=last)
    scored = []
    for candidate in known:
        as_whole = _ratio(of_whole, candidate.casefold(), _LEAST)
        in_last = _ratio(of_last, _last(candidate), _LEAST_OF_LAST)
        if as_whole or in_last:
            scored.append((-max(as_whole, in_last), -as_whole, candidate))
    return min(scored)[-1] if scored else None


def suggestion(name: str, known: Iterable[str], *, otherwise: str = "known:") -> str:
    """A hint for an unknown name: the most similar known name, or `otherwise` and all known names.

    Example:
        >>> suggestion("wieght", ["time", "weight"])
        'did you mean `weight`?'
        >>> suggestion("x", ["time", "weight"], otherwise="it has")
        'it has time, weight'
    """
    known = list(known)
    similar = closest(name, known)
    if similar is not None:
        return f"did you mean `{similar}`?"
    return f"{otherwise} {', '.join(known) or 'none'}"


def hint_like(name: str, known: Iterable[str]) -> str:
    """A hint with the most similar known name, or empty; for a message that already lists them."""
    similar = closest(name, known)
    return "" if similar is None else f"\nhint: did you mean `{similar}`?"


def missing_attribute(
    owner: str, name: str, known: Iterable[str], hint: str = ""
) -> AttributeError:
    """The error for a missing attribute of `owner`, with a hint or the most similar known name.

    It is an `AttributeError`, so that `hasattr` works.
    """
    public = [attribute for attribute in known if not attribute.startswith("_")]
    guess = "" if name.startswith("_") else hint_like(name, public)
    more = f"\nhint: {hint}" if hint else guess
    return AttributeError(f"{owner} has no attribute `{name}`{more}")


def _last(name: str) -> str:
    match = _LAST.search(name.casefold())
    return match[0] if match else name.casefold()


def _ratio(matcher: SequenceMatcher[str], other: str, least: float) -> float:
    """The similarity of two texts, 0 to 1; 0 if it is below `least`."""
    matcher.set_seq1(other)
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= least else 0.0
