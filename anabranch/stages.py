"""Stages by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from processors import STAGES
from schemas.errors import ConfigurationError
from streams.stage import Stage


def stages_named(names: Iterable[str], stages: Sequence[Stage] = STAGES) -> list[Stage]:
    """`all` names every stage. Raises ConfigurationError for a name that is none."""
    wanted = list(names)
    known = {stage.name: stage for stage in stages}
    unknown = [name for name in wanted if name not in known and name != "all"]
    if unknown:
        raise ConfigurationError(
            f"no stage {', '.join(map(repr, unknown))}", code="UNKNOWN_STAGE", remedy=f"The stages are {', '.join(known)}; `all` names every one."
        )
    return list(stages) if "all" in wanted else [known[name] for name in dict.fromkeys(wanted)]
