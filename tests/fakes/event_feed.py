"""Records of an event feed, and documents that exist."""

from __future__ import annotations

from uuid import UUID

from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id
from schemas.sources import DeclaredSource
from schemas.topics import Record

DOCUMENT_ID = content_id("document", "default", "", "a")


class SingleGeneration:
    """A `Generations` port with one generation."""

    generation = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="live")

    async def fetch_live(self) -> Generation | None:
        return self.generation

    async def fetch(self, name: str) -> Generation | None:
        return self.generation

    async def fetch_undropped(self) -> list[Generation]:
        return [self.generation]


def make_record(kind: str, topic: str, tenant: str | None, document: UUID) -> Record:
    headers = {
        "ce_specversion": b"1.0",
        "ce_id": str(UUID(int=1)).encode(),
        "ce_source": b"anabranch/test",
        "ce_type": kind.encode(),
    }
    headers |= {"ce_document": str(document).encode()} | (
        {"ce_tenant": tenant.encode()} if tenant else {}
    )
    return Record(topic, str(document).encode(), b"{}", headers)


class NoKnownDocuments:
    """A store of known documents that is empty."""

    async def fetch_sources(self) -> list[DeclaredSource]:
        return []

    async def fetch_external_ids(self, ce_source: str, after: str, limit: int) -> list[str]:
        return []
