"""What cannot be processed is buried with its reason, and its producer is told. Nothing is lost: the record stays where it is, or in a blob where the topic forgets."""

from __future__ import annotations

import json
import traceback
from base64 import b64encode
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.errors import AnabranchError
from schemas.events import DocumentAmended, DocumentFailed, DocumentReceived, DocumentWithdrawn, EventBuried, Fact
from schemas.events.dead_letters import Place
from schemas.events.raw import is_tenant
from schemas.ids import content_id
from schemas.ports.bundle import Ports
from schemas.records import StoredRecord
from schemas.urls import redact_urls
from schemas.values import Said
from streams.codec import base_topic, clues, guessed_document, guessed_text, owner
from streams.stage import Stage, Statement
from streams.topics import RAW

LONGEST_DETAIL = 2000


@dataclass(frozen=True, slots=True)
class Burial:
    """A dead letter in the making."""

    stored: StoredRecord
    fact: Fact[Any] | None
    event: EventBuried

    @classmethod
    def of(cls, stored: StoredRecord, fact: Fact[Any] | None, stage: Stage, generation: str | None, error: Exception, attempts: int) -> Burial:
        code, detail, remedy, trace = described(error)
        position, tenant = stored.position, fact.tenant if fact else _guessed_tenant(stored)
        event = EventBuried(
            stage=stage.name,
            generation=generation,
            event_id=_identity(stored, fact, code),
            buried_type=fact.data.event_type() if fact else clues(stored.record)[2],
            tenant=tenant,
            document_id=_document(fact) if fact else _guessed_document(stored, tenant),
            place=Place(topic=position.topic, partition=position.partition, offset=position.offset),
            code=code,
            detail=detail if len(detail) <= LONGEST_DETAIL else f"{detail[:LONGEST_DETAIL]} …",
            remedy=remedy,
            traceback=trace,
            attempts=attempts,
            producer_event_id=_producer(stored, fact)[0],
            producer_source=_producer(stored, fact)[1],
            said=_said(stored, fact),
        )
        return cls(stored, fact, event)


def described(error: Exception) -> tuple[str, str, str, str | None]:
    """Code, detail, remedy, and the traceback where the error is a bug of ours."""
    match error:
        case AnabranchError():
            return error.code, error.detail, error.remedy, None
        case TimeoutError():
            return (
                "DEADLINE_EXCEEDED",
                "the reaction did not end within its deadline",
                "Send it again when the machine is less busy, or split the document.",
                None,
            )
        case _:
            text = "".join(traceback.format_exception(error))
            return (
                "BUG",
                # An OSError quotes a path of this machine.
                f"{type(error).__name__}: {error.strerror if isinstance(error, OSError) and error.strerror else error}",
                "This is a defect of the program: report it with the traceback, and send the document again after the fix.",
                text[-8000:],
            )


async def buried_facts(burial: Burial, stage: Stage, ports: Ports) -> list[Statement]:
    """The dead letter and, where a document fails with it, the outcome for its producer. Bytes of `raw` go into a blob, since that topic forgets."""
    event = burial.event
    if base_topic(burial.stored.position.topic) == RAW:
        value = burial.stored.record.value or b""
        headers = {name: b64encode(given).decode() for name, given in burial.stored.record.headers.items()}
        kept = {
            "record": await ports.blobs.put(f"_buried/{event.event_id}", value),
            "headers": await ports.blobs.put(f"_buried/{event.event_id}.headers", json.dumps(headers).encode(), media_type="application/json"),
        }
        event = event.model_copy(update={**kept, "appended_at": burial.stored.appended_at})
    cause = burial.fact or _stand_in(burial)
    parts = ("buried", stage.name, event.generation or "", str(event.event_id), *([str(event.redriven)] if event.redriven else []))
    statements = [Statement(cause, event, id_parts=parts)]
    if stage.essential:
        origin = getattr(cause.data, "origin", None)
        # However many parts of a revision fail, its producer is told once.
        said_by = ("outcome", DocumentFailed.name, str(origin.accepted_id)) if origin else (*parts, "outcome")
        statements.append(Statement(cause, _outcome(burial), id_parts=said_by))
    return statements


def _identity(stored: StoredRecord, fact: Fact[Any] | None, code: str) -> UUID:
    if fact is None:
        position = stored.position
        return content_id("unreadable", position.topic, position.partition, position.offset)
    return content_id("duplicate", fact.id, fact.payload_sha256) if code == "DUPLICATE_ID" else fact.id


def _producer(stored: StoredRecord, fact: Fact[Any] | None) -> tuple[str | None, str | None]:
    origin = getattr(fact.data, "origin", None) if fact else None
    if origin is not None:
        return origin.event_id, origin.source
    if fact is not None:
        return fact.event_id, fact.source
    return clues(stored.record)[:2]


def _said(stored: StoredRecord, fact: Fact[Any] | None) -> Said | None:
    """At the door only: behind it the document's row tells."""
    if base_topic(stored.position.topic) != RAW:
        return None
    told: dict[str, Any] = {name: getattr(fact.data, name, None) if fact else guessed_text(stored.record, name) for name in Said.model_fields}
    told["tags"] = list(told["tags"] or ()) if fact else []
    if fact and isinstance(fact.data, DocumentReceived):
        told["source_uri"] = told["source_uri"] or fact.data.content.url
    told["source_uri"] = redact_urls(told["source_uri"]) if told["source_uri"] else None
    return Said(**told) if any(told.values()) else None


def _outcome(burial: Burial) -> DocumentFailed:
    event, data = burial.event, burial.fact.data if burial.fact else None
    origin = getattr(data, "origin", None)
    return DocumentFailed(
        external_id=origin.external_id if origin else getattr(data, "external_id", None) or guessed_text(burial.stored.record, "external_id"),
        tenant=event.tenant,
        document_id=event.document_id if burial.fact else None,
        event_id=event.producer_event_id,
        source=event.producer_source,
        code=event.code,
        detail=event.detail,
        remedy=event.remedy,
    )


def _guessed_tenant(stored: StoredRecord) -> str | None:
    """So that what cannot be read is erased with whose it is; what is no tenant's name has no keys either."""
    tenant = owner(stored)
    return tenant if tenant is not None and is_tenant(tenant) else None


def _guessed_document(stored: StoredRecord, tenant: str | None) -> UUID | None:
    return guessed_document(stored, tenant) if tenant is not None else None


def _document(fact: Fact[Any]) -> UUID | None:
    """Of an event that could be read, also where it came to nothing at the door."""
    if isinstance(fact.data, DocumentReceived | DocumentAmended | DocumentWithdrawn):
        return fact.data.document(fact.source if fact.sequence is not None else "")
    return fact.document_id


def _stand_in(burial: Burial) -> Fact[Any]:
    """A cause for what follows from a record that is no fact."""
    return Fact(id=burial.event.event_id, data=burial.event, source="", event_id="", time=None, position=burial.stored.position)
