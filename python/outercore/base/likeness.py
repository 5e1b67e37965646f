"""Which known name somebody may have meant by one that is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_LEAST = 0.6
"""Of whole names, as `difflib` has it."""
_LEAST_OF_LAST = 0.8
"""Of last parts: they are short, and chance makes them alike."""
_LAST = re.compile(r"[^/.:#]+(?=[/.:#]*$)")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The name most like `name`, as a whole or in its last part; `None` where none is like it.

    The last part of `/country/form_of_government` is `form_of_government`, that of
    `optimiser.weight_decay` is `weight_decay`.

    Cost: some microseconds a name.

    Example:
        >>> closest("form_of_goverment", ["/country/form_of_government", "/country/form"])
        '/country/form_of_government'
    """
    whole, last = name.casefold(), _last(name)
    of_whole, of_last = SequenceMatcher(b=whole), SequenceMatcher(b=last)
    scored = []
    for one in known:
        as_whole = _ratio(of_whole, one.casefold(), _LEAST)
        in_last = _ratio(of_last, _last(one), _LEAST_OF_LAST)
        if as_whole or in_last:
            scored.append((-max(as_whole, in_last), -as_whole, one))
    return min(scored)[-1] if scored else None


def suggestion(name: str, known: Iterable[str], *, otherwise: str = "known:") -> str:
    """A hint for a name that is not known: the one most like it, or all after `otherwise`.

    Example:
        >>> suggestion("wieght", ["time", "weight"])
        'did you mean `weight`?'
        >>> suggestion("x", ["time", "weight"], otherwise="it has")
        'it has time, weight'
    """
    known = list(known)
    found = closest(name, known)
    if found is not None:
        return f"did you mean `{found}`?"
    return f"{otherwise} {', '.join(known) or 'none'}"


def hint_like(name: str, known: Iterable[str]) -> str:
    """The line of a hint for a message that lists `known` already; empty where none is like it."""
    found = closest(name, known)
    return "" if found is None else f"\nhint: did you mean `{found}`?"


def missing_attribute(
    owner: str, name: str, known: Iterable[str], hint: str = ""
) -> AttributeError:
    """The error for an attribute that `owner` lacks, with a hint or the known name most like it.

    An `AttributeError`, so that `hasattr` works.
    """
    public = [one for one in known if not one.startswith("_")]
    guess = "" if name.startswith("_") else hint_like(name, public)
    more = f"\nhint: {hint}" if hint else guess
    return AttributeError(f"{owner} has no attribute `{name}`{more}")


def _last(name: str) -> str:
    found = _LAST.search(name.casefold())
    return found[0] if found else name.casefold()


def _ratio(matcher: SequenceMatcher[str], other: str, least: float) -> float:
    """How alike the texts are, 0 to 1; 0 below `least`."""
    matcher.set_seq1(other)
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= least else 0.0
