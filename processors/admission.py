"""What a producer may say: for which tenants, under which source, with which numbers, and of whose documents.

`ce_source` is a claim. Events of our own API and sources are known by their signature; what others claim is bound by settings and, where each has a topic of its
own, by the broker's ACLs.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from processors.pinning import IngressData
from schemas.errors import PermanentError
from schemas.events import Event
from schemas.ports.stage_ports import ANY_SOURCE, DocumentOwners, IngressLimits, StagePorts
from streams.codec import OWN_SOURCE_PREFIX
from streams.submission import API_SOURCE
from streams.topics import RAW


def check_producer(event: Event[IngressData], ports: StagePorts) -> None:
    """Raises PermanentError unless the producer may write for the tenant, under this source, on this topic, with this epoch and step."""
    if event.is_ours:
        return
    if event.source.startswith(OWN_SOURCE_PREFIX):
        raise PermanentError(
            f"source {event.source!r} is reserved for events that this system signs",
            code="FORGED_SOURCE",
            remedy=f"Choose a ce_source that does not begin with {OWN_SOURCE_PREFIX!r}.",
        )
    _check_topic(event, ports.limits)
    _check_tenant(event, ports.limits)
    _check_numbers(event, ports)


async def check_owner(event: Event[IngressData], document_id: UUID, ports: StagePorts) -> None:
    """Raises PermanentError where the document came by another source, and this one has no permission to change it."""
    changeable_sources = _resolve_changeable_sources(event, ports.limits)
    if ANY_SOURCE not in changeable_sources:
        _check_owner_allowed(event, document_id, await _require_owners(ports).fetch_owner(event.data.tenant, document_id), changeable_sources)


async def take_ownership(event: Event[IngressData], document_id: UUID, ports: StagePorts) -> None:
    """A document belongs to the source of its newest revision. Of two sources that begin one at once the first owns it. Raises as `check_owner`."""
    changeable_sources = _resolve_changeable_sources(event, ports.limits)
    owner = await _require_owners(ports).claim_ownership(event.data.tenant, document_id, event.source, changeable_sources)
    _check_owner_allowed(event, document_id, owner, {event.source})


def _resolve_changeable_sources(event: Event[IngressData], limits: IngressLimits) -> frozenset[str]:
    """The sources whose documents the event may change. The API checks its callers itself: a writer may change every document of its tenant."""
    if event.is_ours and event.source == API_SOURCE:
        return frozenset({ANY_SOURCE})
    return limits.takeover_by_source.get(event.source, frozenset()) | {event.source}


def _check_owner_allowed(event: Event[IngressData], document_id: UUID, owner: str | None, allowed_sources: Collection[str]) -> None:
    if owner is not None and owner not in allowed_sources:
        raise PermanentError(
            f"document {document_id} came by another source than {event.source!r}",
            code="FOREIGN_DOCUMENT",
            remedy="Send it by the source that it came by, or through the API; ANABRANCH_INGEST__TAKEOVER grants a source the documents of others.",
        )


def _check_topic(event: Event[IngressData], limits: IngressLimits) -> None:
    topic = event.position.topic if event.position else RAW
    bound_topics = {name for name, sources in limits.sources_by_topic.items() if event.source in sources}
    if (topic in limits.sources_by_topic and topic not in bound_topics) or (topic == RAW and bound_topics):
        raise PermanentError(
            f"source {event.source!r} may not write on topic {topic!r}",
            code="FORBIDDEN_TOPIC",
            remedy="ANABRANCH_INGEST__TOPICS binds topics to sources; each producer writes on its own topic.",
        )


def _check_tenant(event: Event[IngressData], limits: IngressLimits) -> None:
    if event.data.tenant not in limits.tenants_by_source.get(event.source, limits.tenants_by_source.get(ANY_SOURCE, frozenset())):
        raise PermanentError(
            f"source {event.source!r} may not write for tenant {event.data.tenant!r}",
            code="FORBIDDEN_TENANT",
            remedy="Name the source and its tenants in ANABRANCH_INGEST__SOURCES.",
        )


def _check_numbers(event: Event[IngressData], ports: StagePorts) -> None:
    """Above the declared epoch, or as a correction, an event would stand behind everything that its document's owner can still send."""
    declared_epoch = ports.source_epochs.get(event.source, 1)
    if event.step or (event.epoch is not None and event.epoch > declared_epoch):
        forbidden_field = f"ce_sequencestep {event.step}" if event.step else f"ce_sequenceepoch {event.epoch} (declared: {declared_epoch})"
        raise PermanentError(
            f"source {event.source!r} may not send {forbidden_field}",
            code="FORBIDDEN_SEQUENCE",
            remedy="Leave it out; `anabranch source reset` declares a new epoch, under which the numbers of the source begin anew.",
        )


def _require_owners(ports: StagePorts) -> DocumentOwners:
    assert ports.owners is not None, "stage `receive` runs with owners"
    return ports.owners
