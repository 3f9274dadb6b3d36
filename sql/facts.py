"""Write and read facts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from schemas.facts import Fact, FactRequest
from schemas.principals import Principal, ReaderScope
from schemas.query_rows import FactDecisionRow, FactEventRow, FactRetractedRow, FactRow
from sql.encoding import replace_nul
from sql.invalidation import ALL_GENERATIONS, record_index_change
from sql.pool import Connection, Pool, fetch_row, fetch_value
from sql.query_loader import load_query


async def write_fact_row(
    connection: Connection, row: FactRow | FactEventRow | FactDecisionRow | FactRetractedRow
) -> None:
    match row:
        case FactRow(tenant=tenant, fact=fact):
            await connection.execute(
                load_query("insert_fact"),
                fact.fact_id,
                tenant,
                replace_nul(fact.subject),
                replace_nul(fact.predicate),
                replace_nul(fact.object),
                fact.certainty,
                fact.half_life_days,
                replace_nul(fact.source),
                fact.readers,
                fact.stated_by,
                fact.stated_at,
                fact.expires_at,
                fact.replaces,
                " ".join(_split_folded(fact.statement)),
            )
        case FactEventRow():
            await connection.execute(
                load_query("record_fact_event"), row.tenant, row.fact_id, row.log_offset
            )
        case FactDecisionRow():
            await connection.execute(
                load_query("decide_fact"),
                row.tenant,
                row.fact_id,
                row.decision,
                row.decided_by,
                row.decided_at,
                replace_nul(row.reason),
            )
            if row.decision == "approved":
                await connection.execute(load_query("replace_facts"), row.tenant, row.fact_id)
                # Cached answers were written without the fact.
                await record_index_change(connection, ALL_GENERATIONS, [row.tenant])
        case FactRetractedRow(tenant=tenant, fact_id=fact_id):
            await connection.execute(load_query("retract_fact"), tenant, fact_id)


async def search_facts(
    connection: Connection,
    tenant: str,
    readers: ReaderScope,
    stems: Sequence[str],
    now: datetime,
    limit: int,
) -> list[Fact]:
    """Return approved facts with a word that begins with one of the stems, or equals a number."""
    prefixes = {
        token if token.isdigit() else f"{token}:*"
        for stem in stems
        for token in _split_folded(stem)
    }
    if not prefixes:
        return []
    rows = await connection.fetch(
        load_query("matching_facts"), tenant, readers, " | ".join(sorted(prefixes)), now, limit
    )
    return [Fact(**row) for row in rows]


def _split_folded(text: str) -> list[str]:
    """Return words in lower case and without accents; neither Postgres nor a query sees others."""
    folded = unicodedata.normalize("NFKD", text.lower())
    return re.findall(
        r"[^\W_]+", "".join(char for char in folded if not unicodedata.combining(char))
    )


class PgFacts:
    """Facts that a caller may read. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, caller: Principal, fact_id: UUID) -> Fact | None:
        row = await fetch_row(self._pool, "fact", caller.tenant, fact_id, caller.readers)
        return Fact(**row) if row else None

    async def find_equal(self, tenant: str, request: FactRequest, now: datetime) -> UUID | None:
        """Return the fact with the same text and readers that is proposed or approved."""
        fact_id: UUID | None = await fetch_value(
            self._pool,
            "equal_fact",
            tenant,
            request.subject,
            request.predicate,
            request.object,
            request.readers,
            now,
        )
        return fact_id
