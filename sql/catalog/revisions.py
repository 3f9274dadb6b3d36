"""Read the latest revisions of documents and the sources that own them, and compare generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.amendments import OrderKey
from schemas.batching import CallBatcher
from schemas.ports.stage_ports import LatestRevision, NewlyVisibleRevision
from sql.encoding import encode_json_text, format_array
from sql.pool import Pool, execute, fetch_row, fetch_rows


class PgRevisions:
    """Implements `schemas.ports.stage_ports.LatestRevisions` and `GenerationSwitches`.

    A document that the API has admitted is known even before a table has its revision.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def fetch_latest(self, tenant: str, document_id: UUID) -> LatestRevision | None:
        row = await fetch_row(self.pool, "latest_revision", tenant, document_id)
        return (
            LatestRevision(
                row["numbered"], row["external_id"], tuple(row["latest"]) if row["latest"] else None
            )
            if row
            else None
        )

    async def fetch_newly_visible(
        self, generation: str, previous: str
    ) -> list[NewlyVisibleRevision]:
        return [
            NewlyVisibleRevision(**dict(row))
            for row in await fetch_rows(self.pool, "newly_visible_revisions", generation, previous)
        ]

    async def find_unchanged(
        self, revisions: Sequence[tuple[UUID, OrderKey]]
    ) -> set[tuple[UUID, OrderKey]]:
        """Return the subset of revisions whose content the live generation already shows."""
        documents, orders = (
            [document for document, _ in revisions],
            [format_array(order) or "" for _, order in revisions],
        )
        rows = await fetch_rows(self.pool, "unchanged_revisions", documents, orders)
        return {(row["document_id"], tuple(row["ord"])) for row in rows}


@dataclass(frozen=True, slots=True)
class _OwnershipClaim:
    tenant: str
    document_id: UUID
    source: str
    allowed: Collection[str]


class PgDocumentOwners:
    """Implements `schemas.ports.stage_ports.DocumentOwners`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # Stage `receive` admits documents concurrently.
        self._fetches = CallBatcher(self._fetch_together)
        self._claims = CallBatcher(self._claim_together)

    async def fetch_owner(self, tenant: str, document_id: UUID) -> str | None:
        return await self._fetches.run((tenant, document_id))

    async def claim_ownership(
        self, tenant: str, document_id: UUID, source: str, allowed: Collection[str]
    ) -> str:
        return await self._claims.run(_OwnershipClaim(tenant, document_id, source, allowed))

    async def _fetch_together(self, documents: Sequence[tuple[str, UUID]]) -> list[str | None]:
        columns = [tenant for tenant, _ in documents], [document for _, document in documents]
        rows = await fetch_rows(self._pool, "document_owners", *columns)
        owners = {(row["tenant"], row["document_id"]): row["source"] for row in rows}
        return [owners.get(document) for document in documents]

    async def _claim_together(self, claims: Sequence[_OwnershipClaim]) -> list[str]:
        owners: dict[int, str] = {}
        # One statement changes a row only once: a repeated document waits for the next one.
        remaining = list(enumerate(claims))
        while remaining:
            by_document = {
                (claim.tenant, claim.document_id): (index, claim)
                for index, claim in reversed(remaining)
            }
            rows = await fetch_rows(
                self._pool,
                "claim_document_owners",
                [claim.tenant for _, claim in by_document.values()],
                [claim.document_id for _, claim in by_document.values()],
                [claim.source for _, claim in by_document.values()],
                [encode_json_text(list(claim.allowed)) for _, claim in by_document.values()],
            )
            for row in rows:
                index, _ = by_document[row["tenant"], row["document_id"]]
                owners[index] = row["source"]
            remaining = [(index, claim) for index, claim in remaining if index not in owners]
        return [owners[index] for index in range(len(claims))]


async def restore_owners(pool: Pool, owners: Mapping[UUID, tuple[str, str]]) -> None:
    """Restore owners after a rebuild: document → tenant and source of its newest revision."""
    columns = (
        list(owners),
        [tenant for tenant, _ in owners.values()],
        [source for _, source in owners.values()],
    )
    await execute(pool, "restore_owners", *columns)
