"""List, redrive and discard dead letters; start and control replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from processors import STAGES
from schemas.errors import InvalidRequest, NotFound, unknown_resource_error
from schemas.ports.ledger import OrderingPolicy
from schemas.ports.log import EventLog
from schemas.replay_requests import (
    DeadLetterSelection,
    DiscardRequest,
    OffsetRange,
    RedriveRequest,
    ReplayRequest,
)
from schemas.topics import Position
from services.replay.replay_worker import close_dead_letters, load_record_filter
from services.storage import Storage
from sql.operations.replays import OpenDeadLetter, Replay
from streams.stage import Stage

NO_DEAD_LETTERS_REMEDY = "List open dead letters with GET /v1/dead-letters."
FULL_RANGE, EMPTY_RANGE = OffsetRange(partition=0), OffsetRange(partition=0, end=0)


@dataclass(frozen=True, slots=True)
class ReplayService:
    storage: Storage
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]

    async def list_causes(self, tenant: str) -> list[dict[str, Any]]:
        return await self.storage.replays.list_dead_letter_causes(tenant)

    async def redrive(self, tenant: str, request: RedriveRequest) -> dict[str, Any]:
        """Start one replay per stage and generation.

        Dead letters that no generation can read are left out, unless they are selected by id.
        """
        criteria = request.model_dump(
            mode="json", exclude_none=True, exclude={"dry_run", "per_second"}
        )
        dead_letters = await self._fetch_dead_letters(tenant, request)
        groups: dict[tuple[str, str | None], list[OpenDeadLetter]] = {}
        for dead_letter in dead_letters:
            groups.setdefault((dead_letter.stage, dead_letter.generation), []).append(dead_letter)
        targets = {
            group: await self._resolve_target(group_letters[0])
            for group, group_letters in groups.items()
        }
        unreadable = {
            group: groups.pop(group)
            for group, target in targets.items()
            if isinstance(target, InvalidRequest)
        }
        # Selected by id, or all of them: an error says more than an empty result.
        if unreadable and (request.event_ids or not groups):
            raise next(target for target in targets.values() if isinstance(target, InvalidRequest))
        stages = Counter(
            dead_letter.stage for group_letters in groups.values() for dead_letter in group_letters
        )
        body: dict[str, Any] = {
            "events": stages.total(),
            "stages": dict(stages),
            "skipped": sum(map(len, unreadable.values())),
            "replays": [],
        }
        if request.dry_run:
            return body
        for (stage, failed_generation), group_letters in groups.items():
            target = targets[stage, failed_generation]
            assert not isinstance(target, InvalidRequest)
            replay = Replay(
                self.fresh_id(),
                tenant,
                "redrive",
                stage,
                target,
                criteria | {"failed_in": failed_generation},
                request.per_second,
                tuple(dead_letter.event_id for dead_letter in group_letters),
            )
            await self.storage.replays.insert(replay, len(group_letters))
            body["replays"].append(replay.id)
        return body

    async def _resolve_target(self, dead_letter: OpenDeadLetter) -> str | InvalidRequest | None:
        """Return the generation to redrive in, else the reason why none can.

        This is the dead letter's own, or the live one if that shares the topic.
        """
        # The stage serves all generations.
        if dead_letter.generation is None:
            return None
        own_generation = await self.storage.generations.fetch(dead_letter.generation)
        if own_generation is not None and own_generation.state != "dropped":
            return own_generation.name
        live = await self.storage.generations.resolve(None)
        if dead_letter.position.topic in {
            live.topics.get(stage.topic, stage.topic)
            for stage in STAGES
            if stage.name == dead_letter.stage
        }:
            return live.name
        detail = (
            f"Generation {dead_letter.generation} of dead letter {dead_letter.event_id} was "
            f"dropped, and no other generation reads {dead_letter.position.topic}."
        )
        return InvalidRequest(
            detail,
            code="GENERATION_GONE",
            remedy="Discard its dead letters, or select others by id or stage.",
        )

    async def discard_dead_letters(self, tenant: str, request: DiscardRequest) -> dict[str, Any]:
        dead_letters = await self._fetch_dead_letters(tenant, request)
        if not request.dry_run:
            await close_dead_letters(
                self.storage,
                dead_letters,
                lambda dead_letter: "discarded",
                request.reason,
                self.clock,
            )
        return {"events": len(dead_letters)}

    async def start_replay(self, tenant: str, request: ReplayRequest) -> dict[str, Any]:
        stage = _resolve_stage(request)
        generation = (
            None
            if stage.serves_all_generations
            else await self.storage.generations.resolve(request.generation)
        )
        topic = generation.topics.get(stage.topic, stage.topic) if generation else stage.topic
        # Fixed now: events that are appended later are not part of the replay.
        starts, ends = resolve_offset_range(
            topic, await self.storage.log.fetch_offset_bounds(topic), request.offsets
        )
        total = await self.storage.log.count_records(
            topic, ends
        ) - await self.storage.log.count_records(topic, starts)
        missing = await find_missing_ranges(self.storage.log, topic, request, self.clock())
        estimate = {
            "missing": missing,
            "stage": stage.name,
            "topic": topic,
            "events_read": total,
            "starts": starts,
            "ends": ends,
        }
        criteria = request.model_dump(
            mode="json", exclude_none=True, exclude={"dry_run", "per_second", "stage", "generation"}
        )
        if request.dry_run:
            # Only the records tell which of them match, so a dry run reads the whole range.
            matches = (await load_record_filter(self.storage.replays, tenant, criteria)).matches
            count = sum(
                [matches(stored) async for stored in self.storage.log.read(topic, starts, ends)]
            )
            return {**estimate, "replay_id": None, "events_chosen": count}
        if missing:
            raise build_not_retained_error(topic, missing, starts, ends)
        replay = Replay(
            self.fresh_id(),
            tenant,
            "replay",
            stage.name,
            generation.name if generation else None,
            criteria,
            request.per_second,
            topic=topic,
            starts=starts,
            ends=ends,
        )
        await self.storage.replays.insert(replay, total)
        return {**estimate, "replay_id": replay.id}

    async def list_replays(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return [
            _format_replay(row)
            for row in await self.storage.replays.list_replays(tenant, None, limit)
        ]

    async def get_replay(self, tenant: str, replay_id: UUID) -> dict[str, Any]:
        rows = await self.storage.replays.list_replays(tenant, replay_id, 1)
        if not rows:
            raise unknown_resource_error("replay", replay_id, "List replays with GET /v1/replays.")
        return _format_replay(rows[0])

    async def set_replay_state(self, tenant: str, replay_id: UUID, state: str) -> dict[str, Any]:
        """Set `paused`, `running` (resume) or `cancelled`."""
        allowed_states = {
            "paused": ["running"],
            "running": ["paused", "failed"],
            "cancelled": ["running", "paused", "failed"],
        }[state]
        # Conditional in SQL, so that a state that changed meanwhile is not overwritten.
        if not await self.storage.replays.set_state(tenant, replay_id, allowed_states, state):
            replay_body = await self.get_replay(tenant, replay_id)
            raise InvalidRequest(
                f"Replay {replay_id} is {replay_body['state']}.",
                code="WRONG_STATE",
                remedy=f"Only a replay that is {' or '.join(allowed_states)} can be set to "
                f"{state}.",
            )
        return await self.get_replay(tenant, replay_id)

    async def _fetch_dead_letters(
        self, tenant: str, selection: DeadLetterSelection
    ) -> list[OpenDeadLetter]:
        dead_letters = await self.storage.replays.list_open_dead_letters(tenant, dict(selection))
        missing = set(selection.event_ids or ()) - {
            dead_letter.event_id for dead_letter in dead_letters
        }
        if missing or not dead_letters:
            missing_ids = [", ".join(map(str, sorted(missing)))] if missing else []
            document_note = (
                [f"of document {selection.document_id}"] if selection.document_id else []
            )
            raise NotFound(
                " ".join(["No open dead letter", *missing_ids, *document_note]) + ".",
                code="NO_SUCH_DEAD_LETTER",
                remedy=NO_DEAD_LETTERS_REMEDY,
            )
        return dead_letters


def resolve_offset_range(
    topic: str, log_ends: Mapping[int, tuple[int, int]], requested: Sequence[OffsetRange]
) -> tuple[dict[int, int], dict[int, int]]:
    """Clip the requested offsets to those in the log. Partitions that are not requested are empty.

    Raises InvalidRequest for a partition that does not exist.
    """
    if unknown := {offsets.partition for offsets in requested} - log_ends.keys():
        raise InvalidRequest(
            f"Topic {topic} has no partition {min(unknown)}.",
            remedy=f"Its partitions are 0 to {len(log_ends) - 1}.",
        )
    by_partition = {offsets.partition: offsets for offsets in requested}
    starts, ends = {}, {}
    for partition, (first, following) in log_ends.items():
        offsets = by_partition.get(partition, EMPTY_RANGE if by_partition else FULL_RANGE)
        starts[partition] = min(max(first, offsets.start or 0), following)
        ends[partition] = max(
            starts[partition], following if offsets.end is None else min(following, offsets.end)
        )
    return starts, ends


async def find_missing_ranges(
    log: EventLog, topic: str, request: ReplayRequest, now: datetime
) -> list[dict[str, int]]:
    """List `{partition, start, end}` (end exclusive) of requested offsets that retention has
    removed.

    With `since`, nothing is missing if the topic's retention covers it, or if the first retained
    record is not newer.
    """
    by_partition = {offsets.partition: offsets for offsets in request.offsets}
    expired, missing = await log.fetch_expired_offsets(topic), []
    if expired and request.since is not None:
        # By the topic's settings: the records of a quiet partition cannot tell.
        retention = await log.fetch_min_retention(topic)
        if retention is not None and request.since >= now - retention:
            return []
    for partition, first in sorted(expired.items()):
        offsets = by_partition.get(partition, EMPTY_RANGE if by_partition else FULL_RANGE)
        start, end = offsets.start or 0, first if offsets.end is None else min(first, offsets.end)
        if start < end and not await _is_at_or_after(
            log, Position(topic, partition, first), request.since
        ):
            missing.append({"partition": partition, "start": start, "end": end})
    return missing


async def _is_at_or_after(log: EventLog, first_retained: Position, since: datetime | None) -> bool:
    """Return whether `since` is not before the first retained record."""
    if since is None:
        return False
    ends = await log.fetch_offset_bounds(first_retained.topic)
    end_offsets = dict.fromkeys(ends, 0) | {
        first_retained.partition: ends[first_retained.partition][1]
    }
    # Close the reader of the log after one record.
    start_offsets = {first_retained.partition: first_retained.offset}
    async with aclosing(log.read(first_retained.topic, start_offsets, end_offsets)) as records:
        first = await anext(records, None)
    return first is not None and first.appended_at <= since


def build_not_retained_error(
    topic: str,
    missing: Sequence[Mapping[str, int]],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> InvalidRequest:
    """`starts` and `ends` are the requested offsets that the log still holds."""
    missing_ranges = "; ".join(
        f"partition {range_['partition']}: offsets {range_['start']} to {range_['end'] - 1}"
        for range_ in missing
    )
    retained_ranges = " ".join(
        f"--offsets {partition}:{start}-{ends[partition]}"
        for partition, start in sorted(starts.items())
        if start < ends[partition]
    )
    return InvalidRequest(
        f"Topic {topic} no longer holds the requested records: {missing_ranges}.",
        code="NOT_RETAINED",
        remedy=f"Request the retained offsets ({retained_ranges}), or a later time (--since)."
        if retained_ranges
        else "Request other offsets, or send the documents again.",
    )


def _resolve_stage(request: ReplayRequest) -> Stage:
    """Find the stage. Raises InvalidRequest if it cannot be replayed with this selection."""
    # An erasure is never carried out by a replay.
    stages = {
        stage.name: stage for stage in STAGES if stage.react is not None and stage.name != "erase"
    }
    stage = stages.get(request.stage)
    if stage is None:
        raise InvalidRequest(
            f"Unknown stage {request.stage!r}.",
            code="UNKNOWN_STAGE",
            remedy=f"Available stages: {', '.join(stages)}.",
        )
    if stage.ordering_policy == OrderingPolicy.ONCE_PER_ID and (
        request.document_ids or request.collection
    ):
        remedy = "Replay stage transcribe, or select by time or offsets."
        raise InvalidRequest("Events of topic raw cannot be selected by document.", remedy=remedy)
    return stage


def _format_replay(row: dict[str, Any]) -> dict[str, Any]:
    """Add the remaining count and an estimate of the remaining time, low and high."""
    rate, remaining = row["rate"], row["total"] - row["read"]
    eta = (
        {"low": 0.7 * remaining / rate, "high": 1.5 * remaining / rate}
        if rate and row["state"] == "running"
        else None
    )
    return {"replay_id": row.pop("id"), **row, "remaining": remaining, "eta_s": eta}
