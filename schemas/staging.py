"""Where bytes wait until the door has pinned them: in the blob store, under a key that follows from the event that names them."""

from __future__ import annotations

from uuid import UUID


def upload_staging_prefix(tenant: str, event_id: UUID) -> str:
    """Of an upload by the API; `event` is the internal id of the event that names it, and no other may. The SHA-256 of the bytes follows."""
    return f"{api_staging_prefix(tenant)}{event_id}/"


def api_staging_prefix(tenant: str) -> str:
    """What lies here the door removes."""
    return f"uploads/{tenant}/api/"


def fetch_staging_prefix(tenant: str, event_id: UUID) -> str:
    """Of what was fetched from an address for an event."""
    return f"uploads/{tenant}/fetched/{event_id}/"
