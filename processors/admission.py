"""Admission of documents: authorization of producers, and checks that ingress shares with the API.

`ce_source` is only a claim. Events of the API and of sources of this system are verified by
signature. Claims of other producers are restricted by settings and, for producers with a dedicated
topic, by the broker's ACLs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from schemas.errors import (
    CredentialsInUrl,
    InvalidRequest,
    NotFound,
    PermanentError,
    UnreadableDocument,
    too_large_error,
)
from schemas.events import (
    AmendmentAccepted,
    DocumentAccepted,
    DocumentAmended,
    DocumentReceived,
    DocumentRemoved,
    DocumentWithdrawn,
    Event,
)
from schemas.ids import api_staging_prefix, upload_staging_prefix
from schemas.ports.stage_ports import (
    ANY_SOURCE,
    Admission,
    DocumentOwners,
    IngressLimits,
    StagePorts,
)
from schemas.topics import RAW
from schemas.urls import has_user_info
from streams.codec import OWN_SOURCE_PREFIX
from streams.publisher import API_SOURCE

IngressData = DocumentReceived | DocumentAmended | DocumentWithdrawn


def check_producer(event: Event[IngressData], ports: StagePorts) -> None:
    """Raise PermanentError unless the producer may write this event.

    Checks the tenant, the source, the topic, the epoch and the step.
    """
    # The codec has verified the signature; only claims of other producers remain to be checked.
    if event.is_ours:
        return
    if event.source.startswith(OWN_SOURCE_PREFIX):
        raise PermanentError(
            f"Source {event.source!r} is reserved for signed events of this system.",
            code="FORGED_SOURCE",
            remedy=f"Choose a ce_source that does not begin with {OWN_SOURCE_PREFIX!r}.",
        )
    _check_topic(event, ports.limits)
    _check_tenant(event, ports.limits)
    _check_numbers(event, ports)


async def check_owner(event: Event[IngressData], document_id: UUID, ports: StagePorts) -> None:
    """Raise PermanentError if another source owns the document and this one may not change it."""
    changeable_sources = _resolve_changeable_sources(event, ports.limits)
    if ANY_SOURCE not in changeable_sources:
        _check_owner_allowed(
            event,
            document_id,
            await _require_owners(ports).fetch_owner(event.data.tenant, document_id),
            changeable_sources,
        )


async def take_ownership(
    event: Event[IngressData], accepted: DocumentAccepted, ports: StagePorts
) -> None:
    """Admit a revision, and make its source the owner of the document.

    The first of two sources that claim a new document at once becomes its owner. Raises like
    `check_owner`.
    """
    owner = await _require_owners(ports).admit(
        _make_admission(
            event,
            accepted,
            source=event.source,
            allowed=_resolve_changeable_sources(event, ports.limits),
        )
    )
    # The owner after the statement: another source here means that it claimed the document first.
    _check_owner_allowed(event, accepted.document_id, owner, {event.source})


async def admit_change(
    event: Event[IngressData], accepted: AmendmentAccepted | DocumentRemoved, ports: StagePorts
) -> None:
    """Admit an amendment or a withdrawal; the document keeps its owner."""
    await _require_owners(ports).admit(_make_admission(event, accepted))


def _make_admission(
    event: Event[IngressData],
    accepted: DocumentAccepted | AmendmentAccepted | DocumentRemoved,
    **ownership: Any,
) -> Admission:
    return Admission(
        accepted.tenant,
        accepted.document_id,
        event.id,
        accepted.order,
        accepted.numbered,
        **ownership,
    )


def _resolve_changeable_sources(event: Event[IngressData], limits: IngressLimits) -> frozenset[str]:
    """Return the sources whose documents the event may change."""
    # The API checks permissions itself: a writer may change every document of its tenant.
    if event.is_ours and event.source == API_SOURCE:
        return frozenset({ANY_SOURCE})
    return limits.takeover_by_source.get(event.source, frozenset()) | {event.source}


def _check_owner_allowed(
    event: Event[IngressData],
    document_id: UUID,
    owner: str | None,
    allowed_sources: Collection[str],
) -> None:
    if owner is not None and owner not in allowed_sources:
        raise PermanentError(
            f"Document {document_id} belongs to another source than {event.source!r}.",
            code="FOREIGN_DOCUMENT",
            remedy=(
                "Send it from the owning source or through the API, or let this source change "
                "documents of others with ANABRANCH_INGEST__TAKEOVER."
            ),
        )


def _check_topic(event: Event[IngressData], limits: IngressLimits) -> None:
    topic = event.position.topic if event.position else RAW
    # A source with a topic of its own is bound to it: there the broker's ACLs prove `ce_source`.
    bound_topics = {
        name for name, sources in limits.sources_by_topic.items() if event.source in sources
    }
    if (topic in limits.sources_by_topic and topic not in bound_topics) or (
        topic == RAW and bound_topics
    ):
        raise PermanentError(
            f"Source {event.source!r} may not write to topic {topic!r}.",
            code="FORBIDDEN_TOPIC",
            remedy="Write to the topic that ANABRANCH_INGEST__TOPICS assigns to the source.",
        )


def _check_tenant(event: Event[IngressData], limits: IngressLimits) -> None:
    if event.data.tenant not in limits.tenants_by_source.get(
        event.source, limits.tenants_by_source.get(ANY_SOURCE, frozenset())
    ):
        raise PermanentError(
            f"Source {event.source!r} may not write for tenant {event.data.tenant!r}.",
            code="FORBIDDEN_TENANT",
            remedy="List the source and its tenants in ANABRANCH_INGEST__SOURCES.",
        )


def _check_numbers(event: Event[IngressData], ports: StagePorts) -> None:
    # A later epoch, or a step, would outrank every event that the document's owner can still send.
    declared_epoch = ports.source_epochs.get(event.source, 1)
    if event.step or (event.epoch is not None and event.epoch > declared_epoch):
        forbidden_field = (
            f"ce_sequencestep {event.step}"
            if event.step
            else f"ce_sequenceepoch {event.epoch} (declared: {declared_epoch})"
        )
        raise PermanentError(
            f"Source {event.source!r} may not set {forbidden_field}.",
            code="FORBIDDEN_SEQUENCE",
            remedy=(
                "Omit it. To restart the numbers of the source, declare a new epoch with "
                "`anabranch source reset`."
            ),
        )


def _require_owners(ports: StagePorts) -> DocumentOwners:
    assert ports.owners is not None, "stage `receive` requires owners"
    return ports.owners


def check_size(size: int, max_bytes: int) -> None:
    """Raise UnreadableDocument for an empty document, and LimitExceeded for one above the limit."""
    if size == 0:
        raise UnreadableDocument(
            "The document has 0 bytes.",
            code="EMPTY_DOCUMENT",
            remedy="Send the file's content. `anabranch documents delete` removes a document.",
        )
    if size > max_bytes:
        raise too_large_error(max_bytes, size)


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
