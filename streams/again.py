"""Events read once more at their own place, through the stage's own runner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from schemas.errors import PermanentError
from schemas.events import DocumentSuperseded, Fact
from schemas.ports.ledger import Claim
from schemas.records import StoredRecord
from streams.runner import Runner, Work

Reopen = Callable[[Sequence[Fact[Any]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a record: `replayed`, `superseded` or `buried`."""

    stored: StoredRecord
    how: str


async def replayed(runner: Runner, records: Sequence[StoredRecord], reopen: Reopen, replay: UUID, *, ended: Callable[[StoredRecord], bool]) -> list[Result]:
    """Claimed anew, reacted to and published under the ids that they always have; with their own order, so that nothing old comes back over what is newer.
    `reopen` makes the ledger forget that these were done. The producer of what has `ended` once, well or not, was told so, and is not told that a later one
    came first: it came since. Raises TransientError, FatalError; NewerVersion before anything is done, where one of them is newer
    than this program."""
    await reopen(await _readable(runner, records))
    works = await runner.claim(records)
    owed = [work for work in works if work.counted is not None and work.burial is None]
    results = [Result(work.stored, _how(work)) for work in works]
    for group in _groups(owed, runner.stage.batch):
        for late in await runner.react(group):
            await runner.react([late])
    for work in owed:
        if ended(work.stored):
            work.statements = [said for said in work.statements if not isinstance(said.data, DocumentSuperseded)]
    ending = [work for work in works if work.counted is not None or work.burial is not None]
    for work in ending:
        if work.burial is not None:
            event = work.burial.event.model_copy(update={"redriven": replay})
            work.burial = replace(work.burial, event=event)
    if ending:
        await runner.finish(ending)
    return [replace(result, how="buried") if work.burial else result for work, result in zip(works, results, strict=True)]


def _how(work: Work) -> str:
    return "superseded" if work.counted is not None and work.counted.claim is Claim.SUPERSEDED else "replayed"


async def _readable(runner: Runner, records: Sequence[StoredRecord]) -> list[Fact[Any]]:
    found = []
    for stored in records:
        with suppress(PermanentError):
            found.append(await runner.codec.decode(stored))
    return found


def _groups(works: Sequence[Work], most: int) -> list[list[Work]]:
    return [list(works[start : start + most]) for start in range(0, len(works), most)]
