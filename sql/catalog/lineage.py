"""Trace revisions, parts and chunks to their events in the log."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg
import numpy as np

from schemas.errors import unknown_document_error
from schemas.ids import make_received_id
from schemas.ports.lineage import PartPosition, RevisionLineage, StoredChunk
from schemas.principals import Principal
from schemas.records import Position
from schemas.values import BlobRef
from sql.pool import Pool, fetch_rows


class PgLineage:
    """Implements `schemas.ports.lineage.LineageStore`. Any method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_revision(
        self,
        caller: Principal,
        document_id: UUID,
        order: Sequence[int] | None,
        generation: str | None,
    ) -> RevisionLineage | None:
        rows = await fetch_rows(
            self._pool,
            "lineage_revision",
            caller.tenant,
            document_id,
            list(order) if order else None,
            generation,
            caller.readers,
        )
        if not rows:
            return None
        [row] = rows
        ingress_rows = await fetch_rows(
            self._pool,
            "lineage_ingress",
            make_received_id(caller.tenant, row["source"], row["event_id"]),
        )
        return RevisionLineage(
            document_id=row["document_id"],
            external_id=row["external_id"],
            title=row["title"],
            tenant=row["tenant"],
            order=tuple(row["ord"]),
            revision=row["revision"],
            generation=row["generation"],
            source=row["source"],
            event_id=row["event_id"],
            accepted_id=row["accepted_id"],
            accepted_position=_parse_position(row),
            received_position=_parse_position(ingress_rows[0]) if ingress_rows else None,
            content_sha256=row["content_sha256"],
            blob=BlobRef.model_validate(row["blob"]),
            text_sha256=row["text_sha256"],
            markdown=row["markdown"],
        )

    async def fetch_part_positions(
        self, document_id: UUID, order: Sequence[int], generation: str | None
    ) -> list[PartPosition]:
        rows = await fetch_rows(
            self._pool, "lineage_positions", document_id, list(order), generation
        )
        return [
            PartPosition(
                row["step"], row["part"], _parse_position(row), row["event_id"], row["generation"]
            )
            for row in rows
        ]

    async def fetch_text_position(
        self, caller: Principal, document_id: UUID, revision: int
    ) -> Position | None:
        rows = await fetch_rows(
            self._pool, "text_position", caller.tenant, document_id, revision, caller.readers
        )
        if not rows:
            raise unknown_document_error(f"{document_id}, revision {revision}")
        return _parse_position(rows[0]) if rows[0]["log_topic"] else None

    async def fetch_chunk(
        self, generation: str, document_id: UUID, order: Sequence[int], chunk_id: UUID
    ) -> StoredChunk | None:
        rows = await fetch_rows(
            self._pool, "lineage_chunk", generation, document_id, list(order), chunk_id
        )
        if not rows:
            return None
        [row] = rows
        vector = (
            # The bytes of the event: little-endian float16, to compare them exactly.
            np.array(row["vector"].strip("[]").split(","), "<f2").tobytes()
            if row["vector"]
            else None
        )
        return StoredChunk(row["text"], row["prefix"], row["char_start"], row["char_end"], vector)


def _parse_position(row: asyncpg.Record) -> Position:
    return Position(row["log_topic"], row["log_partition"], row["log_offset"])
