"""What the door has let in, as the log tells it: claims of the door are not views, so this is how they are made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from anabranch.composition.storage import Storage
from schemas.errors import Erased, KeyLost, PermanentError
from schemas.events import AmendmentAccepted, DocumentAccepted, DocumentRemoved
from schemas.records import StoredRecord
from sql.claims import ERASED
from streams.topics import ACCEPTED, DEAD_LETTERS


@dataclass(slots=True)
class LetIn:
    known: dict[UUID, str] = field(default_factory=dict)
    """Internal id of a producer's event → hash of its payload, or ERASED: of what was erased it is known that it came."""
    owners: dict[UUID, tuple[str, str]] = field(default_factory=dict)
    """Document → tenant and source of its newest accepted revision."""
    unreadable: list[StoredRecord] = field(default_factory=list)
    """Accepted, and erased since."""


async def let_in(storage: Storage, behind: Mapping[str, Mapping[int, int]] | None = None) -> LetIn:
    """All of it, or what came at or behind the offsets of these topics, by partition. Of what nobody has the key any more it is not known: the door takes it once more,
    if topic `raw` still holds it."""
    found, start = LetIn(), behind or {}
    async for stored in storage.log.read(DEAD_LETTERS, start.get(DEAD_LETTERS)):
        try:
            await storage.codec.decode(stored)
        except KeyLost:
            continue
        except Erased:
            found.known |= _cause(stored)
        except PermanentError:
            continue
    async for stored in storage.log.read(ACCEPTED, start.get(ACCEPTED)):
        try:
            fact = await storage.codec.decode(stored)
        except KeyLost:
            continue
        except Erased:
            found.known |= _cause(stored)
            found.unreadable.append(stored)
            continue
        except PermanentError:
            continue
        if isinstance(fact.data, DocumentAccepted | AmendmentAccepted | DocumentRemoved) and fact.causation_id is not None:
            found.known[fact.causation_id] = fact.data.payload_sha256
            if isinstance(fact.data, DocumentAccepted):
                found.owners[fact.data.document_id] = (fact.data.tenant, fact.data.origin.source)
    return found


def sealed_with(stored: StoredRecord) -> dict[UUID, str]:
    """The key that a record was sealed with, and its tenant."""
    key, tenant = (stored.record.headers.get(name, b"").decode() for name in ("ce_keyid", "ce_tenant"))
    return {UUID(key): tenant} if key else {}


def _cause(stored: StoredRecord) -> dict[UUID, str]:
    cause = stored.record.headers.get("ce_causationid")
    return {UUID(cause.decode()): ERASED} if cause else {}
