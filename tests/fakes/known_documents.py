"""A source that has not sent any document yet."""

from __future__ import annotations

from schemas.sources import DeclaredSource


class NoKnownDocuments:
    """A store of known documents that is empty."""

    async def fetch_sources(self) -> list[DeclaredSource]:
        return []

    async def fetch_external_ids(self, ce_source: str, after: str, limit: int) -> list[str]:
        return []
