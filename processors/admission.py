"""What a producer may say: for which tenants, under which source, with which numbers, and of whose documents.

`ce_source` is a claim. Events of our own API and sources are known by their signature; what others claim is bound by settings and, where each has a topic of its
own, by the broker's ACLs.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from processors.pinning import Incoming
from schemas.errors import PermanentError
from schemas.events import Fact
from schemas.ports.bundle import ANY, Limits, Owners, Ports
from streams.codec import OWN
from streams.submission import SOURCE
from streams.topics import RAW


def check_producer(fact: Fact[Incoming], ports: Ports) -> None:
    """Raises PermanentError unless the producer may write for the tenant, under this source, on this topic, with this epoch and step."""
    if fact.ours:
        return
    if fact.source.startswith(OWN):
        raise PermanentError(
            f"source {fact.source!r} is reserved for events that this system signs",
            code="FORGED_SOURCE",
            remedy=f"Choose a ce_source that does not begin with {OWN!r}.",
        )
    _check_topic(fact, ports.limits)
    _check_tenant(fact, ports.limits)
    _check_numbers(fact, ports)


async def check_owner(fact: Fact[Incoming], document: UUID, ports: Ports) -> None:
    """Raises PermanentError where the document came by another source, and this one has no permission to change it."""
    allowed = _changeable(fact, ports.limits)
    if ANY not in allowed:
        _check_allowed(fact, document, await _owners(ports).owner(fact.data.tenant, document), allowed)


async def take_ownership(fact: Fact[Incoming], document: UUID, ports: Ports) -> None:
    """A document belongs to the source of its newest revision. Of two sources that begin one at once the first owns it. Raises as `check_owner`."""
    allowed = _changeable(fact, ports.limits)
    owner = await _owners(ports).own(fact.data.tenant, document, fact.source, allowed)
    _check_allowed(fact, document, owner, {fact.source})


def _changeable(fact: Fact[Incoming], limits: Limits) -> frozenset[str]:
    """The sources whose documents the event may change. The API checks its callers itself: a writer may change every document of its tenant."""
    if fact.ours and fact.source == SOURCE:
        return frozenset({ANY})
    return limits.takeover.get(fact.source, frozenset()) | {fact.source}


def _check_allowed(fact: Fact[Incoming], document: UUID, owner: str | None, allowed: Collection[str]) -> None:
    if owner is not None and owner not in allowed:
        raise PermanentError(
            f"document {document} came by another source than {fact.source!r}",
            code="FOREIGN_DOCUMENT",
            remedy="Send it by the source that it came by, or through the API; ANABRANCH_INGEST__TAKEOVER grants a source the documents of others.",
        )


def _check_topic(fact: Fact[Incoming], limits: Limits) -> None:
    topic = fact.position.topic if fact.position else RAW
    bound = {name for name, sources in limits.topics.items() if fact.source in sources}
    if (topic in limits.topics and topic not in bound) or (topic == RAW and bound):
        raise PermanentError(
            f"source {fact.source!r} may not write on topic {topic!r}",
            code="FORBIDDEN_TOPIC",
            remedy="ANABRANCH_INGEST__TOPICS binds topics to sources; each producer writes on its own topic.",
        )


def _check_tenant(fact: Fact[Incoming], limits: Limits) -> None:
    if fact.data.tenant not in limits.sources.get(fact.source, limits.sources.get(ANY, frozenset())):
        raise PermanentError(
            f"source {fact.source!r} may not write for tenant {fact.data.tenant!r}",
            code="FORBIDDEN_TENANT",
            remedy="Name the source and its tenants in ANABRANCH_INGEST__SOURCES.",
        )


def _check_numbers(fact: Fact[Incoming], ports: Ports) -> None:
    """Above the declared epoch, or as a correction, an event would stand behind everything that its document's owner can still send."""
    declared = ports.source_epochs.get(fact.source, 1)
    if fact.step or (fact.epoch is not None and fact.epoch > declared):
        what = f"ce_sequencestep {fact.step}" if fact.step else f"ce_sequenceepoch {fact.epoch} (declared: {declared})"
        raise PermanentError(
            f"source {fact.source!r} may not send {what}",
            code="FORBIDDEN_SEQUENCE",
            remedy="Leave it out; `anabranch source reset` declares a new epoch, under which the numbers of the source begin anew.",
        )


def _owners(ports: Ports) -> Owners:
    assert ports.owners is not None, "stage `receive` runs with owners"
    return ports.owners
