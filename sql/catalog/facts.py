"""Write and read facts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from schemas.events import FactApproved, FactProposed, FactRejected, FactRetracted
from schemas.facts import Fact, FactRequest
from schemas.principals import Principal, ReaderScope
from sql.database import Connection, PgStore, load_query, read_values
from sql.invalidation import ALL_GENERATIONS, record_index_change

FactEvent = FactProposed | FactApproved | FactRejected | FactRetracted


async def write_fact_event(connection: Connection, data: FactEvent, offset: int) -> None:
    fact = data.tenant, data.fact_id
    match data:
        case FactProposed():
            texts = read_values(data, "subject", "predicate", "object", "certainty")
            terms = read_values(data, "half_life_days", "source", "readers", "stated_by")
            times = read_values(data, "stated_at", "expires_at", "replaces")
            words = " ".join(_split_folded(f"{data.subject} {data.predicate} {data.object}"))
            await connection.execute(
                load_query("insert_fact"), data.fact_id, data.tenant, *texts, *terms, *times, words
            )
        case FactApproved():
            decision = read_values(data, "decided_by", "decided_at")
            await connection.execute(load_query("decide_fact"), *fact, "approved", *decision, None)
            await connection.execute(load_query("replace_facts"), *fact)
            # Cached answers were written without the fact.
            await record_index_change(connection, ALL_GENERATIONS, [data.tenant])
        case FactRejected():
            decision = read_values(data, "decided_by", "decided_at", "reason")
            await connection.execute(load_query("decide_fact"), *fact, "rejected", *decision)
        case FactRetracted():
            await connection.execute(load_query("retract_fact"), *fact)
    await connection.execute(load_query("record_fact_event"), *fact, offset)


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


class PgFacts(PgStore):
    """Facts that a caller may read. Every method may raise DatabaseUnavailable."""

    async def find(self, caller: Principal, fact_id: UUID) -> Fact | None:
        row = await self._fetch_row("fact", caller.tenant, fact_id, caller.readers)
        return Fact(**row) if row else None

    async def find_equal(self, tenant: str, request: FactRequest, now: datetime) -> UUID | None:
        """Return the fact with the same text and readers that is proposed or approved."""
        fact_id: UUID | None = await self._fetch_value(
            "equal_fact",
            tenant,
            request.subject,
            request.predicate,
            request.object,
            request.readers,
            now,
        )
        return fact_id
