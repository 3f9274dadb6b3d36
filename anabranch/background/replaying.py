"""Replays and redrives at work: any number of workers may look for one; of each, one works on it, and goes on where another stopped."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from anabranch.background.selection import Selection
from anabranch.composition.storage import Storage
from schemas.errors import AnabranchError, NotFound, PermanentError, TransientError
from schemas.events import BurialClosed, Fact
from schemas.ids import content_id
from schemas.records import Record, StoredRecord
from sql.replays import LEASE_S, Letter, PgReplays, Replay, Tally
from streams.again import Result, replayed
from streams.hosting import group_name
from streams.publisher import own_fact
from streams.runner import Runner
from streams.topics import DEAD_LETTERS

log = structlog.get_logger(__name__)
AUTHOR = "anabranch/replay"
POLL_S = 0.5
TOGETHER = 32
Runners = Callable[[], dict[tuple[str, str | None], Runner]]
"""What this process hosts now: (stage, generation; None for what all share) → its runner."""


@dataclass(slots=True)
class Replaying:
    storage: Storage
    runners: Runners
    clock: Callable[[], datetime]
    owner: UUID

    async def run(self) -> None:
        """Until cancelled. A lost database or log is waited for."""
        while True:
            await asyncio.sleep(POLL_S)
            try:
                while await self.once():
                    continue
            except TransientError as error:
                log.warning("replaying waits", code=error.code, detail=error.detail)

    async def once(self) -> bool:
        """Whether there was anything to do."""
        replays = PgReplays(self.storage.pool)
        found = await replays.lease(self.owner, list(self.runners()))
        if found is None:
            return False
        runner = self.runners().get((found.stage, found.generation))
        if runner is None:
            return False
        keeping = asyncio.create_task(self._keep(replays, found.id))
        try:
            done = await (self._redrive(replays, found, runner) if found.kind == "redrive" else self._replay(replays, found, runner))
        except TransientError:
            raise
        except AnabranchError as error:
            await replays.end(self.owner, found.id, f"{error.code}: {error.detail}")
        except Exception as error:
            log.exception("a bug in a replay", replay=str(found.id))
            await replays.end(self.owner, found.id, f"BUG: {type(error).__name__}: {error}")
        else:
            if done:
                await replays.end(self.owner, found.id, None)
        finally:
            keeping.cancel()
        return True

    async def _keep(self, replays: PgReplays, replay: UUID) -> None:
        """Hold on to it, however long a batch takes; where that fails it runs out, and another goes on from the last batch."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            try:
                await replays.keep(self.owner, replay)
            except TransientError as error:
                log.warning("a replay is not kept", replay=str(replay), code=error.code, detail=error.detail)

    async def _redrive(self, replays: PgReplays, found: Replay, runner: Runner) -> bool:
        tally, together = found.tally, _together(found)
        wanted = list(found.letters or ())[tally.read :]
        for start in range(0, len(wanted), together):
            some = wanted[start : start + together]
            named = await replays.letters(found.tenant, {"event_ids": some, "stage": found.stage})
            letters = [letter for letter in named if letter.generation == found.chosen.get("buried_in")]
            records = [stored for letter in letters if (stored := await self._read_again(letter)) is not None]
            results = await self._again(replays, found, runner, records, {})
            await self._close(letters, results)
            _add(tally, results, len(some))
            tally.buried += len(letters) - len(records)
            if not await replays.went_on(self.owner, found.id, {}, tally):
                return False
            await self._breathe(found, len(results))
        return True

    async def _replay(self, replays: PgReplays, found: Replay, runner: Runner) -> bool:
        places, tally = {**found.places}, found.tally
        await self._check_retained(found)
        selection = await chosen_by(replays, found.tenant, found.chosen)
        read = await self.storage.log.acknowledged(group_name(found.stage, found.generation), found.topic or "")
        async for batch in _batches(self.storage, found, _together(found)):
            chosen = [stored for stored in batch if selection.takes(stored)]
            results = await self._again(replays, found, runner, chosen, read)
            places |= {stored.position.partition: stored.position.offset + 1 for stored in batch}
            _add(tally, results, len(batch))
            if not await replays.went_on(self.owner, found.id, places, tally):
                return False
            await self._breathe(found, len(results))
        return True

    async def _check_retained(self, found: Replay) -> None:
        """While it waited, or was paused, retention went on."""
        expired = await self.storage.log.expired(found.topic or "")
        for partition, start in ({**found.starts, **found.places}).items():
            first = min(expired.get(partition, 0), found.ends.get(partition, 0))
            if start < first:
                raise PermanentError(
                    f"topic {found.topic}, partition {partition}, no longer holds offsets {start} to {first - 1}",
                    code="NOT_RETAINED",
                    remedy="Start another replay, of what is left.",
                )

    async def _again(self, replays: PgReplays, found: Replay, runner: Runner, records: Sequence[StoredRecord], read: Mapping[int, int]) -> list[Result]:
        """`read`: by partition, up to where the stage itself has read."""
        if not records:
            return []

        async def reopen(facts: Sequence[Fact[Any]]) -> None:
            if runner.stage.counts == "door":
                await replays.reopen_door({fact.id: fact.payload_sha256 for fact in facts})
            else:
                generation = "" if runner.stage.shared else found.generation or ""
                await replays.judge_anew(generation, runner.stage.name, [fact.id for fact in facts])

        return await replayed(runner, records, reopen, found.id, ended=lambda stored: stored.position.offset < read.get(stored.position.partition, 0))

    async def _read_again(self, letter: Letter) -> StoredRecord | None:
        """At its own place, or from the copy that was kept where the topic has forgotten it. None where neither is left: the letter stays as it is."""
        stored = await self.storage.log.read_at(letter.position)
        if stored is not None:
            return stored
        if letter.record_key is None or letter.headers_key is None or letter.appended_at is None:
            log.warning("a buried event is no longer in the log", fact=str(letter.event_id), topic=letter.position.topic, offset=letter.position.offset)
            return None
        try:
            headers, value = json.loads(await self.storage.blobs.get(letter.headers_key)), await self.storage.blobs.get(letter.record_key)
        except NotFound as error:
            log.warning("what was kept of a buried event is gone", fact=str(letter.event_id), detail=error.detail)
            return None
        given = {name: base64.b64decode(text) for name, text in headers.items()}
        return StoredRecord(Record(letter.position.topic, None, value, given), letter.position, letter.appended_at)

    async def _close(self, letters: Sequence[Letter], results: Sequence[Result]) -> None:
        """What went through this time is closed; what was buried again stays open with its new reason."""
        how = {result.stored.position: result.how for result in results}
        closed = [letter for letter in letters if how.get(letter.position) in ("replayed", "superseded")]
        await close_letters(self.storage, closed, lambda letter: "superseded" if how[letter.position] == "superseded" else "redriven", "", self.clock)

    async def _breathe(self, found: Replay, count: int) -> None:
        if found.per_second:
            await asyncio.sleep(count / found.per_second)


async def close_letters(storage: Storage, letters: Sequence[Letter], how: Callable[[Letter], str], reason: str, clock: Callable[[], datetime]) -> None:
    """Say on the log that nothing is left to do about these."""
    now = clock()
    records = []
    for letter in letters:
        said = BurialClosed.model_validate(
            {"stage": letter.stage, "generation": letter.generation, "event_id": letter.event_id, "tenant": letter.tenant}
            | {"how": how(letter), "reason": reason, "closed_at": now}
        )
        identity = content_id("event", "burial.closed", letter.event_id, letter.stage, letter.generation or "", now.isoformat())
        records.append(await storage.codec.encode(own_fact(said, identity, AUTHOR, clock, tenant=letter.tenant), DEAD_LETTERS, str(letter.event_id)))
    if records:
        await storage.log.append(records)


def _together(found: Replay) -> int:
    """Records of one batch: of a slow replay no more than a second's, so that it is soon paused."""
    return min(TOGETHER, max(1, int(found.per_second))) if found.per_second else TOGETHER


async def chosen_by(replays: PgReplays, tenant: str, chosen: Mapping[str, Any]) -> Selection:
    collection = chosen.get("collection")
    return Selection.of(chosen, tenant, None if collection is None else await replays.documents(tenant, collection))


async def _batches(storage: Storage, found: Replay, together: int) -> AsyncIterator[list[StoredRecord]]:
    """What it has still to read."""
    assert found.topic is not None
    batch: list[StoredRecord] = []
    last = {partition: following - 1 for partition, following in found.places.items()}
    async for stored in storage.log.read(found.topic, found.starts, found.ends, behind=last):
        batch.append(stored)
        if len(batch) == together:
            yield batch
            batch = []
    if batch:
        yield batch


def _add(tally: Tally, results: Sequence[Result], read: int) -> None:
    tally.read += read
    became = Counter(result.how for result in results)
    tally.replayed += became["replayed"]
    tally.superseded += became["superseded"]
    tally.buried += became["buried"]
