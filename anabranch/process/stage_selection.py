"""Selection of stages by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from processors import STAGES
from schemas.errors import ConfigurationError
from streams.stage import Stage


def select_stages(names: Iterable[str], stages: Sequence[Stage] = STAGES) -> list[Stage]:
    """Return the named stages; `all` selects every stage.

    Raises ConfigurationError for an unknown name.
    """
    requested = list(names)
    stages_by_name = {stage.name: stage for stage in stages}
    unknown = [name for name in requested if name not in stages_by_name and name != "all"]
    if unknown:
        raise ConfigurationError(
            f"Unknown stage {', '.join(map(repr, unknown))}.",
            code="UNKNOWN_STAGE",
            remedy=f"Available stages: all, {', '.join(stages_by_name)}.",
        )
    return (
        list(stages)
        if "all" in requested
        else [stages_by_name[name] for name in dict.fromkeys(requested)]
    )
