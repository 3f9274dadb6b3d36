"""The inbox (idempotent consumer): which events a stage has claimed, and with which result."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from schemas.amendments import OrderKey
from schemas.ports.ledger import (
    ATTEMPTS_RECORDED_BY_CLAIM,
    ClaimResult,
    ClaimStatus,
    OrderingPolicy,
    VisibilityChange,
)
from schemas.rows import PartCompletedRow
from schemas.topics import Position, Record
from sql.database import Connection, Pool, encode_json_text, execute, format_array, load_query
from sql.errors import translate_database_errors
from sql.inbox.revision_policy import Verdict

ERASED_PAYLOAD = "erased"
"""Replaces the payload hash of an erased event: ingress recognizes its id and nothing else."""


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """An existing claim, with the payload hash and the log position that it was made for."""

    result: ClaimResult
    payload_sha256: str | None
    position: Position | None


class ClaimCollision(Exception):
    """Another transaction has claimed one of the events meanwhile."""


async def fetch_inbox_entries(
    connection: Pool | Connection, generation: str, stage: str, ids: Sequence[UUID]
) -> dict[UUID, InboxEntry]:
    rows = await connection.fetch(load_query("inbox_entries"), generation, stage, ids)
    return {
        row["event_id"]: InboxEntry(
            _parse_result(row),
            row["payload_sha256"],
            Position(row["log_topic"], row["log_partition"], row["log_offset"]),
        )
        for row in rows
    }


async def record_redelivery(
    connection: Connection, generation: str, stage: str, known_entries: Mapping[UUID, InboxEntry]
) -> dict[UUID, ClaimResult]:
    """Return the claims of the pending events among them, with this delivery."""
    pending = [
        identity
        for identity, entry in known_entries.items()
        if entry.result.status is not ClaimStatus.DONE
    ]
    if not pending:
        return {}
    rows = await connection.fetch(
        load_query("record_redelivery"), generation, stage, pending, ATTEMPTS_RECORDED_BY_CLAIM
    )
    return {
        row["event_id"]: replace(
            known_entries[row["event_id"]].result,
            delivery=row["deliveries"],
            owed_records=_decode_records(row["owed_records"]),
        )
        for row in rows
    }


async def claim_events(
    connection: Connection,
    generation: str,
    stage: str,
    ordering: OrderingPolicy,
    verdicts: Sequence[Verdict],
) -> None:
    """Insert claims. Raises ClaimCollision if one exists; the caller must roll back."""
    rows = [_to_values(ordering, verdict) for verdict in verdicts]
    claimed_rows = await connection.fetch(
        load_query("claim_events"), generation, stage, *map(list, zip(*rows, strict=True))
    )
    # Fewer rows than events: `on conflict do nothing` met a claim of another transaction.
    if len(claimed_rows) < len(verdicts):
        raise ClaimCollision


async def record_visibility_changes(
    connection: Connection, generation: str, stage: str, changes: Mapping[UUID, VisibilityChange]
) -> None:
    if changes:
        await connection.execute(
            load_query("record_visibility_changes"),
            generation,
            stage,
            list(changes),
            [encode_json_text(_encode_visibility_change(change)) for change in changes.values()],
        )


async def record_revived_revisions(
    connection: Connection, generation: str, stage: str, revived_orders: Mapping[UUID, OrderKey]
) -> None:
    if revived_orders:
        await connection.execute(
            load_query("record_revived_revisions"),
            generation,
            stage,
            list(revived_orders),
            [format_array(order) for order in revived_orders.values()],
        )


def _to_values(ordering: OrderingPolicy, verdict: Verdict) -> tuple[Any, ...]:
    event = verdict.event.event
    position = event.position
    assert position is not None, f"event {event.id} was not read from a log"
    # Entities are the last part of a revision: no reaction is pending after them.
    is_complete = any(
        isinstance(row, PartCompletedRow) and row.kind == "entities" for row in verdict.event.rows
    )
    has_document = ordering in (OrderingPolicy.LATEST, OrderingPolicy.VISIBLE)
    return (
        event.id,
        position.topic,
        position.partition,
        position.offset,
        verdict.claim.value,
        # Only producers may repeat an id with another payload; our ids derive from their cause.
        event.payload_sha256 if ordering == OrderingPolicy.ONCE_PER_ID else None,
        verdict.is_unchanged,
        event.data.document_id if has_document else None,
        format_array(event.data.order) if has_document else None,
        getattr(event.data, "part", 1) if has_document else None,
        "done" if is_complete else "running",
    )


def _parse_result(row: asyncpg.Record) -> ClaimResult:
    change = (
        _decode_visibility_change(row["visibility_change"]) if row["visibility_change"] else None
    )
    return ClaimResult(
        ClaimStatus.DONE if row["is_reaction_done"] else ClaimStatus(row["claim"]),
        change,
        row["is_unchanged"],
        abandoned_attempts=row["open_attempts"],
        owed_records=_decode_records(row["owed_records"]),
    )


def encode_owed(records: Sequence[Record]) -> str | None:
    """Encode records as JSON, with Base64 for bytes."""
    encoded = [
        {
            "topic": record.topic,
            "key": _to_base64(record.key),
            "value": _to_base64(record.value),
            "headers": {name: _to_base64(value) for name, value in record.headers.items()},
        }
        for record in records
    ]
    return encode_json_text(encoded) if encoded else None


def _decode_records(encoded: Sequence[Mapping[str, Any]] | None) -> tuple[Record, ...]:
    return tuple(map(_decode_record, encoded or ()))


def _decode_record(encoded: Mapping[str, Any]) -> Record:
    headers = {name: b64decode(value) for name, value in encoded["headers"].items()}
    key, value = (
        None if encoded[name] is None else b64decode(encoded[name]) for name in ("key", "value")
    )
    return Record(encoded["topic"], key, value, headers)


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _encode_visibility_change(change: VisibilityChange) -> dict[str, Any]:
    return {
        "document_id": str(change.document_id),
        "order": change.order,
        "chunks": change.n_chunks,
        "previous": change.previous,
    }


def _decode_visibility_change(value: Mapping[str, Any]) -> VisibilityChange:
    previous = value["previous"]
    return VisibilityChange(
        UUID(value["document_id"]),
        tuple(value["order"]),
        value["chunks"],
        None if previous is None else tuple(previous),
    )


async def restore_inbox(pool: Pool, accepted_events: Sequence[tuple[UUID, str]]) -> None:
    """Restore ingress claims: internal event ids with their payload hashes, or ERASED_PAYLOAD."""
    await execute(
        pool,
        "restore_inbox",
        [identity for identity, _ in accepted_events],
        [sha256 for _, sha256 in accepted_events],
    )


async def reset_reader_cursor(
    pool: Pool,
    group: str,
    topic: str,
    generation: str,
    stage: str,
    outputs: Sequence[str],
    *,
    max_age: timedelta | None = None,
    missing_keys: Collection[UUID] = (),
) -> None:
    """Move a group's cursor on the Postgres log before the first event whose reaction is pending.

    `outputs` are the topics in which a reaction would appear; without any the cursor moves to the
    end. Events older than `max_age` need no reaction. Events under `missing_keys` are left pending:
    ingress emits them again with the same id and new keys.
    """
    with translate_database_errors():
        # One transaction, since the new cursor is computed from the marks.
        async with pool.acquire() as connection, connection.transaction():
            if outputs:
                await connection.execute(
                    load_query("mark_reactions_done"),
                    generation,
                    stage,
                    topic,
                    list(outputs),
                    max_age,
                    [str(key) for key in missing_keys],
                )
            await connection.execute(
                load_query("reset_reader_cursor"), group, topic, generation, stage, bool(outputs)
            )
