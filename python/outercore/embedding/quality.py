"""Where partitions cost quality, by a rule that was measured. Pure; needs no PyTorch.

`docs/design/0018-quality-in-partitions.md` has the measurements.
"""

from __future__ import annotations

from outercore.embedding.tables.placement import FEW_COMPARED, Placement, Size

_FEW_ENTITIES = 1000
"""Quality falls where triples are compared with fewer entities at a time, whatever their share."""


def quality_warning(size: Size, placement: Placement) -> str | None:
    """What to say where a run in partitions is expected to rank worse than one in memory; `None`
    where no loss was measured.

    Example:
        >>> from outercore.embedding.tables.placement import Placement
        >>> size = Size(17_050, 51, 185_584)
        >>> print(quality_warning(size, Placement(1 << 30, 48, 3, "spare-slot")))
        warning: triples are compared with 4.2% of the entities at a time (710); below 10% MRR falls
        hint: more `--memory`, more `budget.slots`, fewer `budget.partitions`, `budget.swap=in-turn`
        >>> quality_warning(size, Placement(1 << 30, 8, 3, "in-turn"))
    """
    entities = int(placement.compared * size.entities)
    if placement.in_memory:
        return None
    if placement.compared < FEW_COMPARED:
        rule = f"{FEW_COMPARED:.0%}"
    elif entities < _FEW_ENTITIES:
        rule = f"{_FEW_ENTITIES:,} entities"
    else:
        return None
    in_turn = "" if placement.swap == "in-turn" else ", `budget.swap=in-turn`"
    return (
        f"warning: triples are compared with {placement.compared:.1%} of the entities at a time "
        f"({entities:,}); below {rule} MRR falls\n"
        f"hint: more `--memory`, more `budget.slots`, fewer `budget.partitions`{in_turn}"
    )
