"""Keys in the blob store: of documents, and of bytes staged until ingress has pinned them."""

from __future__ import annotations

from uuid import UUID


def upload_staging_prefix(tenant: str, event_id: UUID) -> str:
    """Return the prefix of an API upload, readable only by the event with this internal id.

    The SHA-256 follows.
    """
    return f"{api_staging_prefix(tenant)}{event_id}/"


def api_staging_prefix(tenant: str) -> str:
    """Return the prefix of all API uploads of a tenant.

    Ingress deletes blobs under it once they are pinned.
    """
    return f"uploads/{tenant}/api/"


def fetch_staging_prefix(tenant: str, event_id: UUID) -> str:
    """Return the prefix of the bytes that were downloaded for an event."""
    return f"uploads/{tenant}/fetched/{event_id}/"


def make_blob_key(tenant: str, document_id: UUID, sha256: str) -> str:
    """Return the key of a document's bytes. Keys are never shared between documents."""
    return f"{tenant}/{document_id}/{sha256}"
