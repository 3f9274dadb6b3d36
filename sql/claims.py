"""Claims: which events a stage has handled, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from schemas.ports.ledger import NOTED_BY_CLAIMS, Claim, Claimed, Counts, Flip, Projected
from schemas.records import Position
from schemas.rows import OrderKey, SettledRow
from sql.pool import Connection, Pool
from sql.statements import statement
from sql.storable import array_text, json_text

ERASED = "erased"
"""In the place of a payload's hash: the door knows the event, and nothing of it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an event comes to, decided under the locks before anything is written."""

    event: Projected
    claim: Claim
    flip: Flip | None = None
    unchanged: bool = False
    written: bool = True
    """False for an event whose rows are there already."""
    revived: OrderKey | None = None
    """What a late withdrawal brought back."""

    @property
    def claimed(self) -> Claimed:
        return Claimed(self.claim, self.flip, self.unchanged)


@dataclass(frozen=True, slots=True)
class Handled:
    """A claim of before, with the hash of the payload that it was made for and the place where that stands."""

    claimed: Claimed
    payload_sha256: str | None
    place: Position | None


class Collision(Exception):
    """Another transaction has claimed one of the events meanwhile."""


async def claimed_before(connection: Pool | Connection, generation: str, stage: str, ids: Sequence[UUID]) -> dict[UUID, Handled]:
    rows = await connection.fetch(statement("claimed_before"), generation, stage, ids)
    return {row["event_id"]: Handled(_claimed(row), row["payload_sha256"], _place(row)) for row in rows}


async def note_another_try(connection: Connection, generation: str, stage: str, before: Mapping[UUID, Handled]) -> None:
    owed = [identity for identity, handled in before.items() if handled.claimed.claim is not Claim.DONE]
    if owed:
        await connection.execute(statement("try_again"), generation, stage, owed, NOTED_BY_CLAIMS)


async def claim_events(connection: Connection, generation: str, stage: str, counts: Counts, verdicts: Sequence[Verdict]) -> None:
    """Raises Collision, and then nothing may be written."""
    rows = [_row(counts, verdict) for verdict in verdicts]
    ours = await connection.fetch(statement("claim_events"), generation, stage, *map(list, zip(*rows, strict=True)))
    if len(ours) < len(verdicts):
        raise Collision


async def note_flips(connection: Connection, generation: str, stage: str, flips: Mapping[UUID, Flip]) -> None:
    if flips:
        await connection.execute(statement("note_flips"), generation, stage, list(flips), [json_text(_flip_json(flip)) for flip in flips.values()])


async def note_revived(connection: Connection, generation: str, stage: str, revived: Mapping[UUID, OrderKey]) -> None:
    if revived:
        await connection.execute(statement("note_revived"), generation, stage, list(revived), [array_text(order) for order in revived.values()])


def _row(counts: Counts, verdict: Verdict) -> tuple[Any, ...]:
    fact = verdict.event.fact
    position = fact.position
    assert position is not None, f"event {fact.id} was not read from a log"
    document = counts in ("latest", "visible")
    return (
        fact.id,
        position.topic,
        position.partition,
        position.offset,
        verdict.claim.value,
        fact.payload_sha256 if counts == "door" else None,
        verdict.unchanged,
        fact.data.document_id if document else None,
        array_text(fact.data.order) if document else None,
        getattr(fact.data, "part", 1) if document else None,
        "done" if _is_all(verdict) else "running",
    )


def _is_all(verdict: Verdict) -> bool:
    """With its entities written, nothing more is owed to an event."""
    return any(isinstance(row, SettledRow) and row.kind == "entities" for row in verdict.event.rows)


def _claimed(row: asyncpg.Record) -> Claimed:
    flip = _flip(row["flip"]) if row["flip"] else None
    return Claimed(Claim.DONE if row["reacted"] else Claim(row["claim"]), flip, row["unchanged"], lost=row["begun"])


def _place(row: asyncpg.Record) -> Position:
    return Position(row["log_topic"], row["log_partition"], row["log_offset"])


def _flip_json(flip: Flip) -> dict[str, Any]:
    return {"document_id": str(flip.document_id), "order": flip.order, "chunks": flip.chunks, "previous": flip.previous}


def _flip(value: Mapping[str, Any]) -> Flip:
    previous = value["previous"]
    return Flip(UUID(value["document_id"]), tuple(value["order"]), value["chunks"], None if previous is None else tuple(previous))
