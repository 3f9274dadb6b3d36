"""Dead letters and replays as people handle them: what is there, read it once more, give it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from anabranch.background.replaying import chosen_by, close_letters
from anabranch.composition.storage import Storage
from api.replays import Chosen, DiscardRequest, Offsets, RedriveRequest, ReplayRequest
from processors import STAGES
from schemas.errors import InvalidRequest, NotFound
from schemas.generations import Generation
from schemas.ports.log import EventLog
from schemas.records import Position, StoredRecord
from sql.generations import PgGenerations
from sql.replays import Letter, PgReplays, Replay, Tally
from streams.stage import Stage

NOTHING = "GET /v1/dead-letters lists what there is."
ALL_OF_IT, NOTHING_OF_IT = Offsets(partition=0), Offsets(partition=0, end=0)


@dataclass(frozen=True, slots=True)
class ReplayDesk:
    """`api.services.ReplayDesk`."""

    storage: Storage
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]

    async def causes(self, tenant: str) -> list[dict[str, Any]]:
        return await PgReplays(self.storage.pool).causes(tenant)

    async def redrive(self, tenant: str, wanted: RedriveRequest) -> dict[str, Any]:
        """One replay a stage and generation. What no generation reads any more is left out, unless it is asked for by its id."""
        chosen = wanted.model_dump(mode="json", exclude_none=True, exclude={"dry_run", "per_second"})
        letters = await self._letters(tenant, wanted)
        groups: dict[tuple[str, str | None], list[Letter]] = {}
        for letter in letters:
            groups.setdefault((letter.stage, letter.generation), []).append(letter)
        readers = {group: await self._reader(found[0]) for group, found in groups.items()}
        gone = {group: groups.pop(group) for group, reader in readers.items() if isinstance(reader, InvalidRequest)}
        if gone and (wanted.event_ids or not groups):
            raise next(reader for reader in readers.values() if isinstance(reader, InvalidRequest))
        stages = Counter(letter.stage for found in groups.values() for letter in found)
        body: dict[str, Any] = {"events": stages.total(), "stages": dict(stages), "left_out": sum(map(len, gone.values())), "replays": []}
        if wanted.dry_run:
            return body
        for (stage, buried_in), found in groups.items():
            origin, events = chosen | {"buried_in": buried_in}, tuple(letter.event_id for letter in found)
            reader = readers[stage, buried_in]
            assert not isinstance(reader, InvalidRequest)
            replay = self._replay(tenant, "redrive", stage, reader, origin, wanted.per_second, letters=events)
            await PgReplays(self.storage.pool).begin(replay, len(found))
            body["replays"].append(replay.id)
        return body

    async def _reader(self, letter: Letter) -> str | InvalidRequest | None:
        """The generation that reads it now: its own, or the live one, if it shares the topic of one that was dropped; else why none does."""
        if letter.generation is None:
            return None
        own = await PgGenerations(self.storage.pool).get(letter.generation)
        if own is not None and own.state != "dropped":
            return own.name
        live = await self._generation(None)
        if letter.position.topic in {live.topics.get(stage.topic, stage.topic) for stage in STAGES if stage.name == letter.stage}:
            return live.name
        detail = f"generation {letter.generation}, in which event {letter.event_id} was buried, was dropped, and no other reads {letter.position.topic}"
        return InvalidRequest(detail, code="GENERATION_GONE", remedy="Discard its dead letters, or redrive others by their ids or stage.")

    async def discard(self, tenant: str, wanted: DiscardRequest) -> dict[str, Any]:
        letters = await self._letters(tenant, wanted)
        if not wanted.dry_run:
            await close_letters(self.storage, letters, lambda letter: "discarded", wanted.reason, self.clock)
        return {"events": len(letters)}

    async def replay(self, tenant: str, wanted: ReplayRequest) -> dict[str, Any]:
        stage = _stage(wanted)
        generation = None if stage.shared else await self._generation(wanted.generation)
        topic = generation.topics.get(stage.topic, stage.topic) if generation else stage.topic
        starts, ends = limits(topic, await self.storage.log.ends(topic), wanted.offsets)
        total = await self.storage.records(topic, ends) - await self.storage.records(topic, starts)
        missing = await not_there(self.storage.log, topic, wanted, self.clock())
        estimate = {"missing": missing, "stage": stage.name, "topic": topic, "events_read": total, "starts": starts, "ends": ends}
        chosen = wanted.model_dump(mode="json", exclude_none=True, exclude={"dry_run", "per_second", "stage", "generation"})
        if wanted.dry_run:
            takes = (await chosen_by(PgReplays(self.storage.pool), tenant, chosen)).takes
            count = sum([takes(stored) async for stored in self.storage.log.read(topic, starts, ends)])
            return {**estimate, "replay_id": None, "events_chosen": count}
        if missing:
            raise not_retained(topic, missing, starts, ends)
        replay = self._replay(
            tenant, "replay", stage.name, generation.name if generation else None, chosen, wanted.per_second, topic=topic, starts=starts, ends=ends
        )
        await PgReplays(self.storage.pool).begin(replay, total)
        return {**estimate, "replay_id": replay.id}

    async def all(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return [_shown(row) for row in await PgReplays(self.storage.pool).shown(tenant, None, limit)]

    async def one(self, tenant: str, replay: UUID) -> dict[str, Any]:
        found = await PgReplays(self.storage.pool).shown(tenant, replay, 1)
        if not found:
            raise NotFound(f"no replay {replay}", remedy="GET /v1/replays lists them.")
        return _shown(found[0])

    async def set_state(self, tenant: str, replay: UUID, wanted: str) -> dict[str, Any]:
        """`paused`, `running` (again) or `cancelled`."""
        before = {"paused": ["running"], "running": ["paused", "failed"], "cancelled": ["running", "paused", "failed"]}[wanted]
        if not await PgReplays(self.storage.pool).set_state(tenant, replay, before, wanted):
            found = await self.one(tenant, replay)
            raise InvalidRequest(f"replay {replay} is {found['state']}", code="WRONG_STATE", remedy=f"Only one that is {' or '.join(before)} can be {wanted}.")
        return await self.one(tenant, replay)

    async def _letters(self, tenant: str, wanted: Chosen) -> list[Letter]:
        letters = await PgReplays(self.storage.pool).letters(tenant, dict(wanted))
        missing = set(wanted.event_ids or ()) - {letter.event_id for letter in letters}
        if missing or not letters:
            which = [", ".join(map(str, sorted(missing)))] if missing else []
            of = [f"of document {wanted.document_id}"] if wanted.document_id else []
            raise NotFound(" ".join(["no open dead letter", *which, *of]), code="NO_SUCH_DEAD_LETTER", remedy=NOTHING)
        return letters

    async def _generation(self, name: str | None) -> Generation:
        generations = PgGenerations(self.storage.pool)
        found = await (generations.get(name) if name else generations.live())
        if found is None or found.state == "dropped":
            raise NotFound(f"no generation {name or 'answers yet'}", remedy="GET /v1/generations lists them.")
        return found

    def _replay(self, tenant: str, kind: str, stage: str, generation: str | None, chosen: Mapping[str, Any], rate: float | None, **given: Any) -> Replay:
        places: dict[str, Any] = {"letters": None, "topic": None, "starts": {}, "ends": {}, "places": {}} | given
        return Replay(id=self.fresh_id(), tenant=tenant, kind=kind, stage=stage, generation=generation, chosen=chosen, per_second=rate, tally=Tally(), **places)


def limits(topic: str, there: Mapping[int, tuple[int, int]], asked: Sequence[Offsets]) -> tuple[dict[int, int], dict[int, int]]:
    """Where to start and to end in each partition: what is asked for, cut to what the log has. Nothing is read of a partition that is left out.
    Raises InvalidRequest where it asks for offsets of a partition that is not there."""
    if unknown := {place.partition for place in asked} - there.keys():
        raise InvalidRequest(f"topic {topic} has no partition {min(unknown)}", remedy=f"It has {len(there)}, from 0.")
    wanted = {place.partition: place for place in asked}
    starts, ends = {}, {}
    for partition, (first, following) in there.items():
        place = wanted.get(partition, NOTHING_OF_IT if wanted else ALL_OF_IT)
        starts[partition] = min(max(first, place.start or 0), following)
        ends[partition] = max(starts[partition], following if place.end is None else min(following, place.end))
    return starts, ends


async def not_there(log: EventLog, topic: str, wanted: ReplayRequest, now: datetime) -> list[dict[str, int]]:
    """`{partition, start, end}` (the end excluded) of what is asked for and retention has dropped. By time nothing is, where the beginning is younger than
    anything that retention drops, or the first that is left came no later."""
    asked = {place.partition: place for place in wanted.offsets}
    expired, missing = await log.expired(topic), []
    if expired and await _is_kept(log, topic, wanted.since, now):
        return []
    for partition, first in sorted(expired.items()):
        place = asked.get(partition, NOTHING_OF_IT if asked else ALL_OF_IT)
        start, end = place.start or 0, first if place.end is None else min(first, place.end)
        if start < end and not await _is_since(log, Position(topic, partition, first), wanted.since):
            missing.append({"partition": partition, "start": start, "end": end})
    return missing


async def _is_kept(log: EventLog, topic: str, since: datetime | None, now: datetime) -> bool:
    """Whether the topic still keeps all that was appended from a moment on, by its settings alone: of a partition where little comes, or nothing is left,
    its records cannot tell."""
    span = await log.keeps_at_least(topic) if since is not None else None
    return since is not None and span is not None and since >= now - span


async def _is_since(log: EventLog, left: Position, since: datetime | None) -> bool:
    """Whether a moment is not before the first record that is left."""
    if since is None:
        return False
    ends = await log.ends(left.topic)
    here = dict.fromkeys(ends, 0) | {left.partition: ends[left.partition][1]}
    async with aclosing(cast(AsyncGenerator[StoredRecord, None], log.read(left.topic, {left.partition: left.offset}, here))) as records:
        first = await anext(records, None)
    return first is not None and first.appended_at <= since


def not_retained(topic: str, missing: Sequence[Mapping[str, int]], starts: Mapping[int, int], ends: Mapping[int, int]) -> InvalidRequest:
    """`starts` and `ends`: of what is asked for, what is left."""
    gone = "; ".join(f"partition {place['partition']}: offsets {place['start']} to {place['end'] - 1}" for place in missing)
    left = " ".join(f"--offsets {partition}:{start}-{ends[partition]}" for partition, start in sorted(starts.items()) if start < ends[partition])
    return InvalidRequest(
        f"topic {topic} no longer holds all that is asked for, its retention has passed: {gone}",
        code="NOT_RETAINED",
        remedy=f"Ask for what is left ({left}), or for a later time (--since)."
        if left
        else "Nothing of it is left: ask for other offsets, or send the documents again.",
    )


def _stage(wanted: ReplayRequest) -> Stage:
    """Raises InvalidRequest."""
    known = {stage.name: stage for stage in STAGES if stage.react is not None and stage.name != "erase"}
    stage = known.get(wanted.stage)
    if stage is None:
        raise InvalidRequest(f"no stage {wanted.stage!r} that could be replayed", code="UNKNOWN_STAGE", remedy=f"The stages are {', '.join(known)}.")
    if stage.counts == "door" and (wanted.document_ids or wanted.collection):
        remedy = "Replay stage transcribe for some documents, or choose by time or offsets."
        raise InvalidRequest("events of topic raw do not tell their document before they are read", remedy=remedy)
    return stage


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """With what is left, and how long it will take: a range, since events differ."""
    rate, left = row["rate"], row["total"] - row["read"]
    eta = {"low": 0.7 * left / rate, "high": 1.5 * left / rate} if rate and row["state"] == "running" else None
    return {"replay_id": row.pop("id"), **row, "left": left, "eta_s": eta}
