"""Options of an embedding run by short names, as the command line and `oc.embed` take them.

Needs no PyTorch.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outercore.embedding.config import EmbedConfig
from outercore.embedding.recipes import RECIPES
from outercore.embedding.recipes import recipe as recipe_of
from outercore.errors import InvalidError, NotFoundError

PLACES: dict[str, tuple[str, str]] = {
    "model": ("model", "kind"),
    "dim": ("model", "dim"),
    "norm": ("model", "norm"),
    "reciprocal": ("model", "reciprocal"),
    "init_scale": ("model", "init_scale"),
    "relation_dim": ("model", "relation_dim"),
    "loss": ("loss", "kind"),
    "margin": ("loss", "margin"),
    "temperature": ("loss", "temperature"),
    "negatives": ("negatives", "count"),
    "negative_kind": ("negatives", "kind"),
    "degree_share": ("negatives", "degree_share"),
    "degree_power": ("negatives", "degree_power"),
    "negative_filter": ("negatives", "filter"),
    "correction": ("negatives", "correction"),
    "optimiser": ("optimiser", "kind"),
    "learning_rate": ("optimiser", "learning_rate"),
    "relation_optimiser": ("optimiser", "relations"),
    "relation_learning_rate": ("optimiser", "relation_learning_rate"),
    "schedule": ("optimiser", "schedule"),
    "epochs": ("optimiser", "epochs"),
    "batch_size": ("optimiser", "batch_size"),
    "chunk_size": ("optimiser", "chunk_size"),
    "patience": ("optimiser", "patience"),
    "validate_every": ("optimiser", "validate_every"),
    "regulariser": ("regulariser", "kind"),
    "regulariser_weight": ("regulariser", "weight"),
    "relation_regulariser_weight": ("regulariser", "relation_weight"),
    "held_out": ("data", "held_out"),
    "memory": ("budget", "memory"),
    "partitions": ("budget", "partitions"),
    "slots": ("budget", "slots"),
    "order": ("budget", "order"),
    "swap": ("budget", "swap"),
    "sweeps": ("budget", "sweeps"),
    "spread": ("budget", "spread"),
    "rename": ("budget", "rename"),
    "group": ("budget", "group"),
    "threads": ("budget", "threads"),
    "candidates": ("evaluation", "candidates"),
    "candidate_count": ("evaluation", "count"),
    "also": ("evaluation", "also"),
    "filtered": ("evaluation", "filtered"),
    "valid_triples": ("evaluation", "valid_triples"),
    "test_triples": ("evaluation", "test_triples"),
    "seed": ("run", "seed"),
    "device": ("run", "device"),
    "checkpoint_seconds": ("run", "checkpoint_seconds"),
}
"""Where each short name stands in the configuration."""
CHANGEABLE = (
    "epochs",
    "patience",
    "learning_rate",
    "relation_learning_rate",
    "regulariser_weight",
    "relation_regulariser_weight",
    "checkpoint_seconds",
)
"""Options that a run may go on with that it did not begin with."""


def configuration(
    base: EmbedConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    recipe: str | None = None,
    plain_graph: bool = False,
    **options: Any,
) -> EmbedConfig:
    """A configuration from a recipe, then `base`, then single options; the last one counts.

    `base` is a configuration, its groups, or a JSON file of them; an option that is `None` is not
    given. A plain graph's links have no kinds, so its model is `dot` if nothing says another. Of
    other data sets the share `held_out` is that of their triples, too.

    Errors: `InvalidError` for an unknown option, key or recipe; `NotFoundError` for the file.

    Example:
        >>> config = configuration({"model": {"dim": 64}}, model="distmult", epochs=3)
        >>> config.model.kind, config.model.dim, config.optimiser.epochs
        ('distmult', 64, 3)
    """
    groups: dict[str, dict[str, Any]] = {}
    if isinstance(base, EmbedConfig):
        _merge(groups, base.to_dict())
    else:
        if recipe is not None:
            _merge(groups, _given(recipe))
        if isinstance(base, (str, Path)):
            base = _read(Path(base))
        _merge(groups, base or {})
    for name, value in options.items():
        if name not in PLACES:
            close = difflib.get_close_matches(name, PLACES, n=1)
            guess = f"did you mean `{close[0]}`" if close else f"known: {', '.join(PLACES)}"
            raise InvalidError(f"embed: unknown option `{name}`\nhint: {guess}")
        if value is not None:
            group, key = PLACES[name]
            groups.setdefault(group, {})[key] = str(value) if name == "memory" else value
    if options.get("held_out") is not None and not plain_graph:
        groups["data"]["held_out_triples"] = options["held_out"]
    if plain_graph and "kind" not in groups.get("model", {}):
        groups.setdefault("model", {})["kind"] = "dot"
    return EmbedConfig.from_dict(groups)


def _given(name: str) -> dict[str, Any]:
    """What a recipe says; what it does not say is left to others."""
    recipe_of(name)
    return RECIPES[name]


def _merge(into: dict[str, dict[str, Any]], more: Mapping[str, Any]) -> None:
    for group, values in more.items():
        if isinstance(values, Mapping):
            into[group] = {**into.get(group, {}), **values}
        else:
            # Not a group: the configuration itself will say what it expected.
            into[group] = values


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise NotFoundError(f"configuration `{path}`: {error.strerror}") from error
    except ValueError as error:
        raise InvalidError(f"configuration `{path}`: expected JSON, found: {error}") from None
    # The file of a run has the configuration as one of its parts.
    if isinstance(found, Mapping) and "fingerprint" in found and "config" in found:
        found = found["config"]
    if not isinstance(found, Mapping):
        raise InvalidError(f"configuration `{path}`: expected an object, found {found!r}")
    return found
