"""Read the latest revisions of documents and the sources that own them, and compare generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from schemas.amendments import OrderKey
from schemas.ports.stage_ports import LatestRevision, NewlyVisibleRevision
from sql.encoding import format_array
from sql.pool import Pool, execute, fetch_row, fetch_rows, fetch_value


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


class PgDocumentOwners:
    """Implements `schemas.ports.stage_ports.DocumentOwners`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_owner(self, tenant: str, document_id: UUID) -> str | None:
        source: str | None = await fetch_value(self._pool, "document_owner", tenant, document_id)
        return source

    async def claim_ownership(
        self, tenant: str, document_id: UUID, source: str, allowed: Collection[str]
    ) -> str:
        owner: str = await fetch_value(
            self._pool, "claim_document_owner", tenant, document_id, source, list(allowed)
        )
        return owner


async def restore_owners(pool: Pool, owners: Mapping[UUID, tuple[str, str]]) -> None:
    """Restore owners after a rebuild: document → tenant and source of its newest revision."""
    columns = (
        list(owners),
        [tenant for tenant, _ in owners.values()],
        [source for _, source in owners.values()],
    )
    await execute(pool, "restore_owners", *columns)
