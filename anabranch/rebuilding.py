"""Another generation from the same facts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anabranch.composition.storage import Storage
from anabranch.decisions import Decisions
from schemas.errors import TransientError
from sql.builds import PgBuilds
from sql.generations import PgGenerations

NUMBERED = re.compile(r"g(\d+)")


async def start_rebuild(storage: Storage, decisions: Decisions, *, keep: bool) -> str:
    """State that the live generation is to be built anew from the log; returns the new one's name. Workers do the rest, and switch. One that is under way
    already is gone on with. Raises TransientError with code NO_GENERATION."""
    live = await PgGenerations(storage.pool).live()
    if live is None:
        raise TransientError("no generation is live", code="NO_GENERATION", remedy="`anabranch rebuild` without a server projects the log into empty tables.")
    books = PgBuilds(storage.pool)
    under_way = [build for build in (await books.all()).values() if build.purpose == "rebuild" and build.generation.state in ("building", "shadow")]
    if under_way:
        return under_way[0].generation.name
    name = await fresh_name(storage)
    if keep:
        await books.keep_previous(name)
    await decisions.created(live.model_copy(update={"name": name, "state": "building"}), live.name, "rebuild")
    return name


async def fresh_name(storage: Storage) -> str:
    """The next of g1, g2, …; names of dropped generations are not used again."""
    return f"g{1 + max([0, *_numbers(await PgGenerations(storage.pool).names())])}"


def _numbers(names: Iterable[str]) -> Iterable[int]:
    return (int(match[1]) for name in names if (match := NUMBERED.fullmatch(name)))
