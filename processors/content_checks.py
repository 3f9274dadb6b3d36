"""Checks of a document's content, shared by ingress and the API."""

from __future__ import annotations

from uuid import UUID

from schemas.errors import (
    CredentialsInUrl,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    UnreadableDocument,
)
from schemas.staging import api_staging_prefix, upload_staging_prefix
from schemas.urls import has_user_info


def check_size(size: int, max_bytes: int) -> None:
    """Raise UnreadableDocument for an empty document, and LimitExceeded for one above the limit."""
    if size == 0:
        raise UnreadableDocument(
            "The document has 0 bytes.",
            code="EMPTY_DOCUMENT",
            remedy="Send the file's content. To remove a document, withdraw it.",
        )
    if size > max_bytes:
        raise LimitExceeded(
            f"The document of {size} bytes exceeds the limit of {max_bytes}.",
            code="TOO_LARGE",
            remedy="Split the document, or raise ANABRANCH_INGEST__MAX_BYTES.",
        )


def check_url_credentials(name: str, url: str | None) -> None:
    """Raise CredentialsInUrl if the URL in this field contains a user name or password."""
    if url is not None and has_user_info(url):
        raise CredentialsInUrl(f"{name} contains a user name or password.")


def check_storage_key(key: str, tenant: str, event_id: UUID | None = None) -> None:
    """Raise InvalidRequest with code FORBIDDEN_KEY unless the event may read this key.

    Keys outside the tenant's uploads and keys staged for another event are forbidden.
    """
    folder = f"uploads/{tenant}/"
    if not key.startswith(folder) or ".." in key.split("/"):
        raise InvalidRequest(
            f"storage_key {key!r} is not under {folder}.",
            code="FORBIDDEN_KEY",
            remedy=f"Upload the file under {folder}.",
        )
    is_own = event_id is not None and key.startswith(upload_staging_prefix(tenant, event_id))
    if key.startswith(api_staging_prefix(tenant)) and not is_own:
        # Staged uploads are deleted once their own event is ingested.
        raise InvalidRequest(
            f"storage_key {key!r} belongs to another upload through the API.",
            code="FORBIDDEN_KEY",
            remedy=f"Upload the file elsewhere under {folder}.",
        )


def missing_blob_error(key: str) -> NotFound:
    """Make the error for a storage_key without a blob."""
    return NotFound(
        f"No blob has storage_key {key!r}.",
        code="NO_SUCH_BLOB",
        remedy="Upload the file before sending the event.",
    )
